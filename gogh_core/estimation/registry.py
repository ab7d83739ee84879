"""Versions of the networks: kept with data, code, settings and scores; promoted, rolled back.

A version is a folder with `p1.safetensors`, `p2.safetensors` and `version.json`. `serving.json`
names the serving one and those before it; it is replaced in one step. A weight file that is
corrupt, foreign or hostile is refused (`WeightsRefused`) and never becomes the serving one.
"""

from __future__ import annotations

import hashlib
import json
import os
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
_LARGEST = 4_000_000
_SCHEMA = "gogh.networks/1"


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
    network.load_state_dict(tensors)
    return network.eval()


def _load_folder(folder: Path, version: Version) -> dict[str, nn.Module]:
    return {
        name: load_weights(
            folder / f"{name.lower()}.safetensors",
            version.kind,
            sha256=version.weights_sha256.get(name),
        )
        for name in ("P1", "P2")
    }


def _read_version(path: Path) -> Version:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if raw.get("schema") != _SCHEMA:
            raise WeightsRefused(f"schema is {raw.get('schema')!r}", where=str(path))
        return Version(**raw)
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

    sums = {}
    part = folder.with_name(folder.name + ".part")
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
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / "serving.json.part"
        part.write_text(json.dumps({"history": history}, indent=1) + "\n", encoding="utf-8")
        os.replace(part, self.folder / "serving.json")

    @property
    def serving(self) -> str:
        """The id of the serving version."""
        history = self._history()
        return history[-1]["version"] if history else SHIPPED

    def versions(self) -> list[Version]:
        """All versions kept here, oldest first."""
        found = sorted((self.folder / "versions").glob("*/version.json"))
        return [_read_version(path) for path in found]

    def add(self, networks: Mapping[str, nn.Module], version: Version) -> Version:
        """Keep a version; it does not serve until it is promoted."""
        folder = self.folder / "versions" / version.id
        if folder.exists():
            return _read_version(folder / "version.json")
        folder.parent.mkdir(parents=True, exist_ok=True)
        return write_version(folder, networks, version)

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
