"""The worlds of the scoreboard: the embedded cluster, and traces at several loads.

A trace is replayed on the measured throughputs of a public table that is not part of this project
(`GOGH_DATA`). Its jobs are taken from a stretch that the seed chooses, its durations are scaled to
a mean of an hour and its arrivals to the asked load: GPU-seconds asked over GPU-seconds there are.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from gogh_core.domain import Server
from gogh_core.errors import InvalidInput
from gogh_core.settings import SimulationSettings
from gogh_core.simulation import TableTruth, World, new_world, read_jobs, trace_world

__all__ = ["LOADS", "TRACES", "Case", "case_of", "data_folder"]

LOADS = (0.6, 0.9, 1.2)
_MEAN_S = 3600.0
_JOBS = 80
_ROOM = (("k80", 8), ("k80", 8), ("p100", 4), ("p100", 4), ("p100", 4), ("p100", 4), ("v100", 8),
         ("v100", 8))  # fmt: skip
_BASE_W = {"k80": 240.0, "p100": 280.0, "v100": 320.0}
_SWITCH_S = 90.0

TRACES: dict[str, tuple[str, str | None]] = {
    "gavel": ("jobs_gavel.parquet", "gavel_msr_seed0/6c71a0"),
    "philly": ("jobs_philly.parquet", None),
    "alibaba": ("jobs_alibaba_openb.parquet", "openb_default"),
    "blox_pal": ("jobs_blox_pal.parquet", "blox_pal/philly/workload-1"),
    "tiresias": ("jobs_tiresias_60.parquet", None),
}
"""By name, a file of the public data and which of its traces."""


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of world; the seed makes the rest."""

    name: str
    make: Callable[[int], World]
    horizon_s: float
    to_the_end: bool = False


def data_folder() -> Path:
    """Where the public measurements and traces lie."""
    folder = Path(os.environ.get("GOGH_DATA") or "../shared/data")
    if not (folder / "throughput.parquet").exists():
        raise InvalidInput(
            "no measurements and traces there",
            where=str(folder),
            todo="set GOGH_DATA to their folder, or run the case `embedded`",
        )
    return folder


def case_of(name: str, *, windows: int, window_s: float) -> Case:
    """`embedded`, `makespan` (Gavel's trace of that name), or a trace at a load: `philly@0.9`."""
    horizon_s = windows * window_s
    if name == "embedded":
        return Case(name, lambda seed: new_world(SimulationSettings(), seed=seed), horizon_s)
    if name == "makespan":
        return Case(name, lambda _: _makespan(), horizon_s)
    trace, _, load = name.partition("@")
    try:
        asked = float(load or 0.9)
    except ValueError:
        asked = 0.0
    if trace not in TRACES or not 0 < asked <= 10:
        known = ", ".join(["embedded", "makespan", *(f"{trace}@LOAD" for trace in TRACES)])
        raise InvalidInput(f"case {name!r} is not known", todo=f"known: {known}")
    return Case(
        f"{trace}@{asked:g}", lambda seed: _at_load(trace, asked, seed), horizon_s, to_the_end=True
    )


@cache
def _truth() -> TableTruth:
    folder = data_folder()
    return TableTruth.read(folder / "throughput.parquet", folder / "power.parquet")


def _room(room: Sequence[tuple[str, int]]) -> tuple[Server, ...]:
    return tuple(
        Server(f"{kind}-{number:02d}", kind, gpus, _BASE_W[kind], 6.0, _BASE_W[kind] * _SWITCH_S)
        for number, (kind, gpus) in enumerate(room, start=1)
    )


def _makespan() -> World:
    """The first 60 jobs of Gavel's `minimize_makespan` on 48 GPUs of three types."""
    rows = read_jobs(
        data_folder() / "jobs_gavel.parquet", trace="gavel_physical/minimize_makespan", limit=60
    )
    servers = _room([(kind, 4) for kind in ("k80", "p100", "v100") for _ in range(4)])
    return trace_world(rows, _truth(), servers, seed=0).world


@cache
def _rows(trace: str) -> list[dict[str, Any]]:
    file, name = TRACES[trace]
    return read_jobs(data_folder() / file, trace=name)


def _at_load(trace: str, load: float, seed: int) -> World:
    rows = _rows(trace)
    usable = [row for row in rows if 0 < _gpus(row) <= 8]
    first = random.Random(f"gogh/loop/{trace}/{seed}").randrange(max(1, len(usable) - _JOBS))
    chosen = usable[first : first + _JOBS]
    servers = _room(_ROOM)
    scale = _MEAN_S / fmean(_duration_s(row) for row in chosen)
    asked = sum(_duration_s(row) * scale * _gpus(row) for row in chosen)
    span_s = asked / (load * sum(server.gpus for server in servers))
    begin, end = chosen[0]["arrival_s"], chosen[-1]["arrival_s"]
    stretch = span_s / max(end - begin, 1.0)
    jobs = [
        {
            **{name: value for name, value in row.items() if name != "total_steps"},
            "arrival_s": (row["arrival_s"] - begin) * stretch,
            "duration_s": _duration_s(row) * scale,
        }
        for row in chosen
    ]
    return trace_world(jobs, _truth(), servers, seed=seed).world


def _gpus(row: Mapping[str, Any]) -> int:
    return int(row.get("num_gpus") or row.get("num_gpu") or 0)


def _duration_s(row: Mapping[str, Any]) -> float:
    return max(float(row.get("duration_s") or row.get("duration") or 3600.0), 1.0)
