"""A run on disk, so that a killed one is resumed: one JSON file, and one line for each ended job.

The file is replaced at once and says how many bytes of the lines count; what a killed process wrote
after that is cut off. Only reads the run: a run that is saved ends with the same figures as one
that is not.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gogh_core.errors import InvalidInput
from gogh_core.simulation.board import Resumable
from gogh_core.simulation.records import JobRecord

if TYPE_CHECKING:
    from gogh_core.simulation.engine import Run

__all__ = ["RunFile"]

_SCHEMA = "gogh.run/1"


class RunFile:
    """The file of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ended = path.with_name(path.name + ".ended")
        self._written = 0
        self._bytes = 0

    @property
    def exists(self) -> bool:
        """Whether a run was saved there."""
        return self.path.exists()

    def save(self, run: Run) -> None:
        """Write down how far the run is."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._add_ended(run.world.ended[self._written :])
        policy = run.policy
        raw = {
            "schema": _SCHEMA,
            "about": _about(run),
            "world": run.world.to_dict(),
            "changed": run.world.changed,
            "window_s": run.window_s,
            "wake_s": run.wake_s,
            "events": run.events,
            "decisions": run.decisions,
            "segments": run.watch.to_list() if run.watch is not None else [],
            "policy": policy.to_dict() if isinstance(policy, Resumable) else None,
            "ended": self._written,
            "ended_bytes": self._bytes,
        }
        fresh = self.path.with_name(self.path.name + ".new")
        with fresh.open("w", encoding="utf-8") as handle:
            json.dump(raw, handle, separators=(",", ":"), allow_nan=False)
            handle.flush()
            os.fsync(handle.fileno())
        fresh.replace(self.path)

    def resume(self, run: Run) -> None:
        """Bring a fresh run to where the saved one was."""
        raw = self._read()
        if raw["about"] != _about(run):
            raise InvalidInput(
                "is of another run",
                where=str(self.path),
                todo="delete it, or name the jobs, policy, seed and servers it was made with",
            )
        world, policy = run.world, run.policy
        with self._ended.open("rb") as handle:
            lines = handle.read(raw["ended_bytes"]).splitlines()
        world.ended = [JobRecord.from_dict(json.loads(line)) for line in lines]
        self._written, self._bytes = raw["ended"], raw["ended_bytes"]
        world.restore(raw["world"])
        world.changed = raw["changed"]
        run.window_s, run.wake_s = raw["window_s"], raw["wake_s"]
        run.events, run.decisions = raw["events"], raw["decisions"]
        if run.watch is not None:
            run.watch.restore(raw["segments"])
        if isinstance(policy, Resumable) and raw["policy"] is not None:
            policy.restore(raw["policy"])

    def _read(self) -> dict[str, Any]:
        try:
            raw = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidInput(f"cannot be read: {error}", where=str(self.path)) from error
        if not isinstance(raw, dict) or raw.get("schema") != _SCHEMA:
            raise InvalidInput("is no saved run", where=str(self.path))
        return raw

    def _add_ended(self, records: list[JobRecord]) -> None:
        text = "".join(json.dumps(record.to_dict()) + "\n" for record in records).encode()
        self._ended.touch()
        with self._ended.open("r+b") as handle:
            handle.truncate(self._bytes)
            handle.seek(self._bytes)
            handle.write(text)
            handle.flush()
            os.fsync(handle.fileno())
        self._written += len(records)
        self._bytes += len(text)


def _about(run: Run) -> dict[str, Any]:
    """What has to be the same for a run to be resumed."""
    world = run.world
    return {
        "policy": run.policy.name,
        "every_s": run.policy.every_s,
        "seed": world.seed,
        "start": world.start.isoformat(),
        "jobs": getattr(world.source, "mark", None),
        "servers": [
            [r.server.id, r.server.gpu_type, r.server.gpus] for r in world.servers.values()
        ],
    }
