"""The embedded cluster's state on disk: each advance and each action is done whole or not at all.

`state.json` is the state after an advance and is replaced at once. An action adds one line to
`actions-<generation>.jsonl`, because writing a large state again for each of hundreds would be most
of the work; the state and the whole lines of its generation, done again in their order, are the
truth. The next commit holds what they did and begins an empty file. Files for the spool are written
to `outbox/<generation>/` first, the commit names that generation, and only then is each renamed
into the spool; so a killed process leaves either nothing of an advance or all of it, and opening
the cluster again finishes what was committed. `ended.jsonl` and `meter.jsonl` only grow; the commit
says how many bytes of them count, and what a killed process wrote after that is cut off.

`seam` marks every point where a kill would hurt; the tests kill at each of them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gogh_core.errors import ClusterError, ClusterUnavailable

__all__ = ["OWN_FILES", "Disk"]

_SCHEMA = "gogh.simulated-cluster/1"
_LOGS = ("ended", "meter")
OWN_FILES = {"events": "cluster", "progress": "jobs", "gpu": "room"}
"""What its files are called, by folder of the spool."""


def seam(name: str) -> None:
    """A point between two steps on disk, named for the tests that kill there."""


class Disk:
    """The folder of one embedded cluster; everything happens under its lock."""

    def __init__(self, home: Path, spool: Path) -> None:
        self.home = home
        self.spool = spool
        self._seen: bytes | None = None
        self._state: dict[str, Any] = {}
        self._followed = 0  # bytes of the state's actions that this object knows

    @property
    def _file(self) -> Path:
        return self.home / "state.json"

    @property
    def exists(self) -> bool:
        """Whether there is a cluster already."""
        return self._file.exists()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time; a killed one lets go by itself."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("a") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def load(self) -> tuple[dict[str, Any], bool, list[dict[str, Any]]]:
        """The committed state, whether it is new to this object, and actions new to it since."""
        try:
            raw = self._file.read_bytes()
        except OSError as error:
            raise ClusterUnavailable(
                f"cannot be read: {error.strerror}", where=str(self._file)
            ) from error
        if raw == self._seen:
            return self._state, False, self._news()
        try:
            state = json.loads(raw)
        except ValueError as error:
            raise ClusterError("is not JSON", where=str(self._file)) from error
        if not isinstance(state, dict) or state.get("schema") != _SCHEMA:
            raise ClusterError("is no state of an embedded cluster", where=str(self._file))
        self._recover(int(state["generation"]))
        self._seen, self._state, self._followed = raw, state, 0
        return state, True, self._news()

    def forget(self) -> None:
        """Read the state again next time, whatever it is."""
        self._seen = None

    def add(self, action: Mapping[str, Any]) -> None:
        """Make an action that was done to the state part of the truth."""
        log = _actions(int(self._state["generation"]))
        self._followed += self._append(log, self._followed, [action])

    def commit(
        self,
        state: Mapping[str, Any],
        files: Mapping[str, bytes],
        rows: Mapping[str, Sequence[Mapping[str, Any]]],
    ) -> None:
        """Make a new state the committed one, together with its files and rows."""
        generation = int(self._state.get("generation", 0)) + 1
        lengths = dict(self._state.get("lengths") or dict.fromkeys(_LOGS, 0))
        outbox = self.home / "outbox" / str(generation)
        shutil.rmtree(outbox, ignore_errors=True)
        for name, content in files.items():
            path = outbox / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as handle:
                handle.write(content[: len(content) // 2])
                handle.flush()
                seam(f"half of {name} is in the outbox")
                handle.write(content[len(content) // 2 :])
            seam(f"{name} is in the outbox")
        for log, entries in rows.items():
            lengths[log] += self._append(log, lengths[log], entries)
        # There before the state is, so that both names are on the disk with it.
        (self.home / f"{_actions(generation)}.jsonl").write_bytes(b"")
        seam("the file of the next actions is there")
        state = {
            "schema": _SCHEMA,
            "generation": generation,
            "lengths": lengths,
            "outbox": bool(files),
            **state,
        }
        text = json.dumps(state, separators=(",", ":"), allow_nan=False).encode()
        self._replace(text)
        self._seen, self._state, self._followed = text, state, 0
        self._drop_actions(generation)
        self._publish(generation)

    def rows(self, log: str) -> list[dict[str, Any]]:
        """The committed rows of a log."""
        length = self._state["lengths"][log]
        path = self.home / f"{log}.jsonl"
        if not length:
            return []
        with path.open("rb") as handle:
            return [json.loads(line) for line in handle.read(length).splitlines()]

    def prune(self, before: int) -> None:
        """Delete our own files of the spool whose number, an epoch second, is older than that."""
        for folder, stem in OWN_FILES.items():
            for path in (self.spool / folder).glob(f"{stem}-*"):
                number = path.name.removeprefix(f"{stem}-").partition(".")[0]
                if number.isdigit() and int(number) < before:
                    path.unlink(missing_ok=True)

    def _news(self) -> list[dict[str, Any]]:
        """Actions on the committed state that this object has not followed; a half line is none."""
        path = self.home / f"{_actions(int(self._state['generation']))}.jsonl"
        if not path.exists():
            return []
        with path.open("rb") as handle:
            handle.seek(self._followed)
            whole, end, _ = handle.read().rpartition(b"\n")
        try:
            found = [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise ClusterError("is not JSON", where=str(path)) from error
        self._followed += len(whole + end)
        return found

    def _drop_actions(self, generation: int) -> None:
        """Take away the actions of other states than this one, which holds what they did."""
        for path in self.home.glob(f"{_actions('*')}.jsonl"):
            if path.stem != _actions(generation):
                path.unlink()
        seam("the actions of the last state are gone")

    def _append(self, log: str, at: int, entries: Sequence[Mapping[str, Any]]) -> int:
        if not entries:
            return 0
        text = "".join(
            json.dumps(entry, separators=(",", ":"), allow_nan=False) + "\n" for entry in entries
        ).encode()
        path = self.home / f"{log}.jsonl"
        path.touch()
        with path.open("r+b") as handle:
            handle.truncate(at)
            handle.seek(at)
            handle.write(text[: len(text) // 2])
            handle.flush()
            seam(f"half of the new rows are in {log}.jsonl")
            handle.write(text[len(text) // 2 :])
            handle.flush()
            os.fsync(handle.fileno())
        seam(f"the new rows are in {log}.jsonl")
        return len(text)

    def _replace(self, text: bytes) -> None:
        temporary = self.home / "state.json.new"
        with temporary.open("wb") as handle:
            handle.write(text[: len(text) // 2])
            handle.flush()
            seam("half of the state is written")
            handle.write(text[len(text) // 2 :])
            handle.flush()
            os.fsync(handle.fileno())
        seam("the state is written, not yet in force")
        temporary.replace(self._file)
        folder = os.open(self.home, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        seam("the state is in force")

    def _publish(self, generation: int) -> None:
        """Rename what was committed into the spool; renaming once more finds nothing left."""
        outbox = self.home / "outbox" / str(generation)
        if not outbox.exists():
            return
        for path in sorted(path for path in outbox.rglob("*") if path.is_file()):
            name = path.relative_to(outbox)
            target = self.spool / name
            target.parent.mkdir(parents=True, exist_ok=True)
            _carry(path, target)
            seam(f"{name} is in the spool")
        shutil.rmtree(outbox, ignore_errors=True)
        seam("the outbox is empty")

    def _recover(self, generation: int) -> None:
        """Finish what was committed, and throw away what was not."""
        self._drop_actions(generation)
        root = self.home / "outbox"
        if not root.exists():
            return
        self._publish(generation)
        for left in root.iterdir():
            shutil.rmtree(left, ignore_errors=True)


def _actions(generation: int | str) -> str:
    """The log of the actions on one state."""
    return f"actions-{generation}"


def _carry(source: Path, target: Path) -> None:
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The spool is on another disk: the name appears only when the bytes are all there.
        half = target.with_name(target.name + ".open")
        shutil.copyfile(source, half)
        half.replace(target)
        source.unlink()
