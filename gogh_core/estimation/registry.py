"""Versions of the networks: kept with data, code, settings and scores; promoted, rolled back.

A version is a folder with `p1.safetensors`, `p2.safetensors` and `version.json`. `serving.json`
names the serving one and those before it; it is replaced in one step. A weight file that is
corrupt, foreign or hostile, without a checksum or with absurd values is refused (`WeightsRefused`)
and never becomes the serving one. The newest `KEEP` versions and promotions are kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gogh_core import __version__
from gogh_core.errors import InvalidInput, WeightsRefused
from gogh_core.estimation.networks import KINDS, build

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Registry", "Version", "load_weights", "shipped"]

SHIPPED = "shipped"
KEEP = 24
_LARGEST = 4_000_000
# The largest weight of the networks we ship is 1.1; with features within -3 to 3 and answers that
# saturate at 1, such a weight says nothing any more.
_LARGEST_WEIGHT = 100.0
_SCHEMA = "gogh.networks/1"
_PART = ".part"


@dataclass(frozen=True)
class Version:
    """Where a version came from and how good it was."""

    id: str
    kind: str
    created_at: str
    data_sha256: str
    code_version: str = __version__
    parent: str = ""
    reason: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    scores: Mapping[str, Any] = field(default_factory=dict)
    weights_sha256: Mapping[str, str] = field(default_factory=dict)
    schema: str = _SCHEMA


def load_weights(path: Path, kind: str, *, sha256: str | None = None) -> nn.Module:
    """A network from a safetensors file; anything that is not exactly one of ours is refused."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load

    where = str(path)
    if kind not in KINDS:
        raise WeightsRefused(f"kind {kind!r} is not one of {', '.join(KINDS)}", where=where)
    try:
        if path.stat().st_size > _LARGEST:
            raise WeightsRefused(f"larger than {_LARGEST} bytes", where=where)
        raw = path.read_bytes()
    except OSError as error:
        raise WeightsRefused(f"cannot be read: {error.strerror}", where=where) from error
    if sha256 is not None and hashlib.sha256(raw).hexdigest() != sha256:
        raise WeightsRefused("its checksum is not the recorded one", where=where)
    try:
        tensors: dict[str, Tensor] = load(raw)
    except (SafetensorError, ValueError, KeyError, OverflowError) as error:
        raise WeightsRefused(f"no safetensors file ({error})", where=where) from error
    network = build(kind)
    wanted = network.state_dict()
    if set(tensors) != set(wanted):
        raise WeightsRefused("its tensors are not those of our network", where=where)
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape or tensor.dtype != wanted[name].dtype:
            raise WeightsRefused(f"tensor {name!r} has another shape or type", where=where)
        if not bool(torch.isfinite(tensor).all()):
            raise WeightsRefused(f"tensor {name!r} holds NaN or infinity", where=where)
        largest = float(tensor.abs().max()) if tensor.numel() else 0.0
        if largest > _LARGEST_WEIGHT:
            raise WeightsRefused(
                f"tensor {name!r} holds {largest:g}; weights are within {_LARGEST_WEIGHT:g}",
                where=where,
            )
    network.load_state_dict(tensors)
    return network.eval()


def _load_folder(folder: Path, version: Version) -> dict[str, nn.Module]:
    for name in ("P1", "P2"):
        if not version.weights_sha256.get(name):
            raise WeightsRefused(
                f"records no checksum of the weights of {name}", where=str(folder / "version.json")
            )
    return {
        name: load_weights(
            folder / f"{name.lower()}.safetensors",
            version.kind,
            sha256=version.weights_sha256[name],
        )
        for name in ("P1", "P2")
    }


def _read_version(path: Path) -> Version:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw.get("schema") != _SCHEMA:
            raise WeightsRefused(f"schema is {raw.get('schema')!r}", where=str(path))
        version = Version(**raw)
        if not isinstance(version.weights_sha256, dict):
            raise WeightsRefused("weights_sha256 is no table of checksums", where=str(path))
        return version
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise WeightsRefused(f"cannot be read: {error}", where=str(path)) from error


def shipped(kind: str | None = None) -> tuple[Version, dict[str, nn.Module]]:
    """The pre-trained networks that come with the package."""
    with resources.as_file(resources.files("gogh_core.estimation") / "weights") as folder:
        chosen = kind or json.loads((folder / "default.json").read_text(encoding="utf-8"))["kind"]
        version = _read_version(folder / chosen / "version.json")
        return version, _load_folder(folder / chosen, version)


def write_version(folder: Path, networks: Mapping[str, nn.Module], version: Version) -> Version:
    """Weights and description into a folder, complete or not at all."""
    from safetensors.torch import save

    from gogh_core.store import file_errors, whole_or_gone

    sums = {}
    part = folder.with_name(folder.name + _PART)
    with file_errors(folder), whole_or_gone(part):
        part.mkdir(parents=True, exist_ok=True)
        for name, network in networks.items():
            raw = save({key: value.contiguous() for key, value in network.state_dict().items()})
            sums[name] = hashlib.sha256(raw).hexdigest()
            (part / f"{name.lower()}.safetensors").write_bytes(raw)
        complete = Version(**{**asdict(version), "weights_sha256": sums})
        text = json.dumps(asdict(complete), indent=1, sort_keys=True)
        (part / "version.json").write_text(text + "\n", encoding="utf-8")
        if folder.exists():
            for old in folder.iterdir():
                old.unlink()
        os.replace(part, folder)
    return complete


class Registry:
    """Versions below one folder; without any, the shipped one serves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _history(self) -> list[dict[str, str]]:
        path = self.folder / "serving.json"
        if not path.exists():
            return []
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            return [{"version": str(e["version"]), "at": str(e["at"])} for e in raw["history"]]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise WeightsRefused(f"cannot be read: {error}", where=str(path)) from error

    def _write_history(self, history: list[dict[str, str]]) -> None:
        from gogh_core.store import file_errors, whole_or_gone

        part = self.folder / "serving.json.part"
        with file_errors(part), whole_or_gone(part):
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"history": history[-KEEP:]}, indent=1)
            part.write_text(text + "\n", encoding="utf-8")
            os.replace(part, self.folder / "serving.json")

    @property
    def serving(self) -> str:
        """The id of the serving version."""
        history = self._history()
        return history[-1]["version"] if history else SHIPPED

    def versions(self) -> list[Version]:
        """All versions kept here, oldest first."""
        return [_read_version(folder / "version.json") for folder in self._folders()]

    def _folders(self) -> list[Path]:
        found = sorted((self.folder / "versions").glob("*/version.json"))
        return [path.parent for path in found if path.parent.suffix != _PART]

    def add(self, networks: Mapping[str, nn.Module], version: Version) -> Version:
        """Keep a version; it does not serve until it is promoted."""
        folder = self.folder / "versions" / version.id
        if folder.exists():
            return _read_version(folder / "version.json")
        written = write_version(folder, networks, version)
        self._drop_oldest(keep=version.id)
        return written

    def _drop_oldest(self, keep: str) -> None:
        """The newest versions stay, and those that served or may be rolled back to."""
        kept = {keep, *(entry["version"] for entry in self._history())}
        for old in self._folders()[:-KEEP]:
            if old.name not in kept:
                gone = self.folder / f".gone-{old.name}"  # in one step: never seen half removed
                os.replace(old, gone)
        for gone in self.folder.glob(".gone-*"):
            shutil.rmtree(gone, ignore_errors=True)

    def load(self, version: str | None = None) -> tuple[Version, dict[str, nn.Module]]:
        """Networks of a version, the serving one by default; refused when anything is wrong."""
        name = version or self.serving
        if name == SHIPPED:
            return shipped()
        folder = self.folder / "versions" / name
        if name != Path(name).name or not folder.is_dir():
            raise InvalidInput(f"there is no version {name!r}", where=str(self.folder))
        described = _read_version(folder / "version.json")
        return described, _load_folder(folder, described)

    def promote(self, version: str, *, at: datetime) -> None:
        """Let a version serve; its weights are checked first."""
        if version != SHIPPED:
            self.load(version)
        history = self._history()
        if self.serving != version:
            self._write_history([*history, {"version": version, "at": at.isoformat()}])

    def rollback(self) -> str:
        """Back to the version before the serving one; its id."""
        history = self._history()
        if not history:
            raise InvalidInput("there is nothing to roll back to", where=str(self.folder))
        before = history[-2]["version"] if len(history) > 1 else SHIPPED
        try:
            self.load(before)
        except (WeightsRefused, InvalidInput) as error:
            raise WeightsRefused(
                f"version {before!r}, which served before, is broken ({error}); "
                f"{history[-1]['version']!r} goes on serving",
                where=str(self.folder),
                todo=f"remove {before!r} from serving.json and roll back again to go further back",
            ) from error
        self._write_history(history[:-1])
        return self.serving

    def load_good(self) -> tuple[Version, dict[str, nn.Module], str]:
        """The newest promoted version that is sound, and what was refused before it."""
        refused = []
        try:
            names = [entry["version"] for entry in reversed(self._history())]
        except WeightsRefused as error:
            names, refused = [], [str(error)]
        for name in [*names, SHIPPED]:
            try:
                version, networks = self.load(name)
                return version, networks, "; ".join(refused)
            except (WeightsRefused, InvalidInput) as error:
                refused.append(str(error))
        raise WeightsRefused("; ".join(refused), where=str(self.folder))
