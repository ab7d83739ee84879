"""Trace replay: the jobs of a file, on a throughput table, on a cluster file, under a policy.

The table is the truth, without noise. A policy that learns is given an observer and sees only what
was measured. Jobs that the table or the cluster cannot run at all are left out and named.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from gogh_core import hardware
from gogh_core.domain import Server
from gogh_core.errors import InvalidInput
from gogh_core.simulation.arrivals import Demand, ListedSource
from gogh_core.simulation.board import Policy
from gogh_core.simulation.engine import Observer
from gogh_core.simulation.engine import run as run_world
from gogh_core.simulation.figures import Figures, figures_of
from gogh_core.simulation.table import TableTruth, read_rows
from gogh_core.simulation.trace import START, LeftOut, TraceReader
from gogh_core.simulation.world import World

__all__ = [
    "LeftOut",
    "ReplayReport",
    "TraceWorld",
    "read_cluster",
    "read_jobs",
    "replay",
    "trace_world",
]

_SAVE_S = 60.0


@dataclass(frozen=True, slots=True)
class TraceWorld:
    """A trace as a world that has not begun."""

    world: World
    demands: Sequence[Demand]
    left_out: tuple[LeftOut, ...]
    """Rows that are no job of this cluster, and why."""
    drawn: int
    """Jobs whose class the trace does not name; it was drawn from all."""
    drawn_batch_sizes: int
    """Jobs whose model the trace names without a batch size; it was drawn."""


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a policy made of a trace."""

    policy: str
    figures: Figures
    trace: TraceWorld
    running: int
    waiting: int
    """Jobs that still ran and still waited at the end."""
    note: str
    """Which jobs the limit cut off; empty if it cut off none."""

    def to_dict(self) -> dict[str, Any]:
        """For `--json`: all figures, and what was not run as the trace has it."""
        return {
            "policy": self.policy,
            "trace_jobs": len(self.trace.demands),
            **self.figures.to_dict(),
            "running": self.running,
            "waiting": self.waiting,
            "left_out": [asdict(one) for one in self.trace.left_out],
            "drawn_classes": self.trace.drawn,
            "drawn_batch_sizes": self.trace.drawn_batch_sizes,
            "note": self.note,
        }


def read_cluster(path: Path) -> tuple[Server, ...]:
    """Servers from JSON (`servers` as in a problem file), CSV or Parquet."""
    servers: dict[str, Server] = {}
    for number, row in enumerate(read_rows(path), start=1):
        where = f"{path}, server {number}"
        try:
            gpu = hardware.get(str(row["gpu_type"]))
            count = int(row["gpus"])
            name = str(row.get("id") or row.get("server") or f"{gpu.name}-{number:02d}")
            base_w = float(row["base_w"] if row.get("base_w") is not None else 250.0)
            switch_j = float(row.get("switch_cost_j") or 0.0)
            server = Server(name, gpu.name, count, base_w, float(row.get("off_w") or 0), switch_j)
        except KeyError as error:
            raise InvalidInput(f"lacks {error}", where=where) from error
        except (TypeError, ValueError) as error:
            raise InvalidInput(str(error), where=where) from error
        if name in servers:
            raise InvalidInput(f"{name} is there twice", where=where)
        servers[name] = server
    if not servers:
        raise InvalidInput("no servers", where=str(path))
    return tuple(servers.values())


def read_jobs(
    path: Path, *, trace: str | None = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """The jobs of a trace in order of arrival; a file of several traces needs one named."""
    rows = read_rows(path)
    traces = sorted({str(row["trace"]) for row in rows if row.get("trace") is not None})
    if trace is None and len(traces) > 1:
        some = ", ".join(traces[:4])
        raise InvalidInput(
            f"holds {len(traces)} traces", where=str(path), todo=f"name one with --trace: {some}, …"
        )
    if trace is not None:
        rows = [row for row in rows if str(row.get("trace")) == trace]
    rows = [{**row, "arrival_s": _arrival(row)} for row in rows]
    missing = [number for number, row in enumerate(rows, start=1) if row["arrival_s"] is None]
    if missing or not rows:
        what = f"row {missing[0]} has no arrival_s" if missing else "no jobs"
        raise InvalidInput(what, where=str(path))
    rows.sort(key=lambda row: row["arrival_s"])
    return rows[:limit]


def _arrival(row: Mapping[str, Any]) -> float | None:
    value = row.get("arrival_s", row.get("submit_time"))
    good = isinstance(value, int | float) and math.isfinite(value) and value >= 0
    return float(value) if good else None


def trace_world(
    jobs: Sequence[Mapping[str, Any]],
    truth: TableTruth,
    servers: Sequence[Server],
    *,
    promise: float = 0.5,
    seed: int = 0,
) -> TraceWorld:
    """A world into which the jobs of a trace come; its clock begins with the first of them."""
    reader = TraceReader(truth, servers, promise, seed)
    demands = [demand for row in jobs if (demand := reader.demand(row)) is not None]
    if not demands:
        reasons = sorted({one.why for one in reader.left_out})
        raise InvalidInput(
            "no job of the trace can run on this cluster with this table: " + "; ".join(reasons[:3])
        )
    first_s = demands[0].arrives_s
    demands = [_shifted(demand, first_s) for demand in demands]
    mark = hashlib.sha256(repr(demands).encode()).hexdigest()[:16]
    source = ListedSource(demands, mark=mark)
    world = World(servers, truth, source, start=START, seed=seed, alike=True)
    left_out = tuple(reader.left_out)
    return TraceWorld(world, demands, left_out, reader.drawn, reader.drawn_batch_sizes)


def replay(
    trace: TraceWorld,
    policy: Policy,
    *,
    horizon_s: float = 1440 * 3600.0,
    observer: Observer | None = None,
    report: Callable[[float, int], None] | None = None,
    saved: Path | None = None,
    save_every_s: float = _SAVE_S,
) -> ReplayReport:
    """Run a trace that has not begun to its end, or to the horizon.

    `report` is told the hours gone by and the jobs that are through; `saved` keeps the run, and a
    run that is there is resumed.
    """
    world = trace.world
    run_world(
        world,
        policy,
        horizon_s,
        to_the_end=True,
        observer=observer,
        report=report,
        saved=saved,
        save_every_s=save_every_s,
    )
    figures = figures_of(world)
    here = [record for record in world.jobs.values() if record.active]
    running = sum(bool(record.places) for record in here)
    waiting = len(here) - running
    note = _note(trace, running, waiting)
    return ReplayReport(policy.name, figures, trace, running, waiting, note)


def _note(trace: TraceWorld, running: int, waiting: int) -> str:
    world, demands = trace.world, trace.demands
    unfinished = len(demands) - len(world.ended)
    if unfinished <= 0:
        return ""
    return (
        f"stopped after {world.now_s / 3600:g} h with {unfinished} of {len(demands)} jobs "
        f"unfinished: {running} ran, {waiting} waited, {unfinished - running - waiting} had not "
        f"arrived yet (the last arrives after {demands[-1].arrives_s / 3600:.0f} h)"
    )


def _shifted(demand: Demand, first_s: float) -> Demand:
    at_s = demand.arrives_s - first_s
    job = replace(demand.job, submitted_at=START + timedelta(seconds=at_s))
    return replace(demand, job=job, arrives_s=at_s)
