"""The options of the last estimate, kept for increments: they need no network to be read again.

An increment uses them when they know every class, GPU type and number of GPUs that it plans;
otherwise it estimates anew. They are as old as the last full cycle, which is when telemetry was
last learned from.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from gogh_core.domain import ClusterState, Descriptors, JobState, Mode, PowerState
from gogh_core.settings import Settings

__all__ = ["Wanted", "keep_options", "kept_options", "wanted"]

_LIVE = (JobState.WAITING, JobState.RUNNING, JobState.MOVING)
_MARK = b"gogh"
Wanted = tuple[dict[str, Descriptors], list[str], list[int]]
"""Classes with their descriptors, GPU types, numbers of GPUs."""


def wanted(state: ClusterState, *, ended: bool) -> Wanted:
    """What a plan for this state has to know; with `ended`, classes of jobs that just left too."""
    jobs = [status.job for status in state.jobs if ended or status.state in _LIVE]
    classes = {job.job_class: job.descriptors for job in jobs}
    counts = {1, *(m for job in jobs if job.mode is Mode.GANG for m in job.gpu_counts)}
    types = {s.server.gpu_type for s in state.servers if s.power is not PowerState.DOWN}
    return classes, sorted(types), sorted(counts)


def _path(settings: Settings) -> Path:
    return settings.below_home(Path("run") / "options.arrow")


def keep_options(settings: Settings, options: pa.Table, version: str, known: Wanted) -> None:
    """Keep a table of options and what it knows, in the place of the last one."""
    mark = json.dumps({"version": version, "known": _told(known)}).encode()
    table = options.replace_schema_metadata({_MARK: mark})
    path = _path(settings)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    with part.open("wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    part.replace(path)


def kept_options(settings: Settings, need: Wanted) -> tuple[pa.Table, str] | None:
    """The kept table and the estimator's version; None where it knows too little."""
    try:
        with pa.memory_map(str(_path(settings))) as file:
            reader = pa.ipc.open_file(file)
            mark = json.loads(reader.schema.metadata[_MARK])
            return (reader.read_all(), str(mark["version"])) if _knows(mark, need) else None
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def _knows(mark: dict[str, Any], need: Wanted) -> bool:
    known_classes, known_types, known_counts = mark["known"]
    classes, types, counts = _told(need)
    return (
        all(known_classes.get(name) == described for name, described in classes.items())
        and set(types) <= set(known_types)
        and set(counts) <= set(known_counts)
    )


def _told(known: Wanted) -> tuple[dict[str, str], list[str], list[int]]:
    classes = {n: json.dumps(asdict(d), default=str, sort_keys=True) for n, d in known[0].items()}
    return classes, known[1], known[2]
