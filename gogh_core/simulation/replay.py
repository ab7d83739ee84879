"""Trace replay: the jobs of a file, on a throughput table, on a cluster file, under a policy.

No telemetry and no noise: what is compared is the policy. Jobs that the table or the cluster cannot
run at all are left out and counted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

from gogh_core import hardware
from gogh_core.domain import Descriptors, Job, JobState, Server, job_class
from gogh_core.errors import InvalidInput
from gogh_core.simulation.arrivals import CHECKPOINT_S, MOVE_S, Demand
from gogh_core.simulation.comparison import run_policy
from gogh_core.simulation.metrics import Metrics, meter_row, metrics_of
from gogh_core.simulation.policies import POLICIES, Policy
from gogh_core.simulation.table import TableTruth, read_rows
from gogh_core.simulation.world import World

__all__ = ["PolicyName", "ReplayReport", "read_cluster", "read_jobs", "replay"]

PolicyName = Literal["fcfs", "best_fit", "gogh"]
_START = datetime.fromisoformat("2026-01-05T00:00:00+00:00")
_TYPICAL_W = 180.0


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What a policy made of a trace; times in seconds, None where no job finished."""

    policy: str
    jobs: int
    left_out: int
    """Jobs that no server of the cluster can run, as far as the table says."""
    drawn_classes: int
    """Jobs whose class the trace does not name; it was drawn at random."""
    arrived: int
    finished: int
    running: int
    waiting: int
    """Jobs that still ran and still waited at the end."""
    energy_j: float
    mean_watts: float
    slo_attainment: float | None
    """Share of promised job-seconds, waiting included, in which the promise was kept."""
    jct_mean_s: float | None
    jct_median_s: float | None
    jct_p95_s: float | None
    queueing_mean_s: float | None
    queueing_p95_s: float | None
    utilisation: float
    simulated_s: float
    makespan_s: float | None
    """Until the last job was through; None if the limit came first."""
    moves: int
    note: str
    """Which jobs the limit cut off; empty if it cut off none."""

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


class _Listed:
    """Arrivals from a list."""

    def __init__(self, demands: Sequence[Demand]) -> None:
        self._demands = demands

    def draw(self, number: int, previous_s: float) -> Demand | None:
        """Arrival `number` of the list."""
        return self._demands[number] if number < len(self._demands) else None


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


def replay(
    jobs: Sequence[Mapping[str, Any]],
    truth: TableTruth,
    servers: Sequence[Server],
    policy: PolicyName,
    *,
    window_s: float = 300.0,
    promise: float = 0.5,
    seed: int = 0,
    max_hours: float = 1440.0,
    gap: float = 0.01,
    time_limit_s: float = 20.0,
    report: Callable[[float, int], None] | None = None,
) -> ReplayReport:
    """Run a trace to its end, or for `max_hours` of its time.

    `report` is told the hours gone by and the jobs that are through.
    """
    from gogh_core.simulation.planned import planned  # the planner, which a cluster does not need

    maker = _Maker(truth, servers, promise, seed)
    demands = [demand for row in jobs if (demand := maker.demand(row)) is not None]
    if not demands:
        raise InvalidInput("no job of the trace can run on this cluster with this table")
    first_s = demands[0].arrives_s
    demands = [_shifted(demand, first_s) for demand in demands]
    world = World(servers, truth, _Listed(demands), start=_START, seed=seed, alike=True)
    act: Policy = (
        planned(window_s=window_s, gap=gap, time_limit_s=time_limit_s)
        if policy == "gogh"
        else POLICIES[policy]
    )
    begin = meter_row(0.0, world.totals)
    every_s = None if policy == "fcfs" else window_s
    run_policy(world, act, max_hours * 3600, every_s=every_s, to_the_end=True, report=report)
    return _report(
        policy,
        world,
        metrics_of(begin, meter_row(world.now_s, world.totals)),
        demands,
        left_out=len(jobs) - len(demands),
        drawn=maker.drawn,
    )


def _report(
    policy: str,
    world: World,
    metrics: Metrics,
    demands: Sequence[Demand],
    *,
    left_out: int,
    drawn: int,
) -> ReplayReport:
    done = [job for job in world.ended if job.state is JobState.FINISHED]
    spans = [(job.ended_s or 0.0) - job.demand.arrives_s for job in done]
    waits = [job.waited_s for job in [*world.ended, *world.jobs.values()]] if done else []
    running = sum(bool(job.places) for job in world.jobs.values())
    waiting = len(world.jobs) - running
    through = len(world.ended)
    arrived = through + len(world.jobs)
    note = ""
    if through < len(demands):
        note = (
            f"stopped after {world.now_s / 3600:g} h with {len(demands) - through} of "
            f"{len(demands)} jobs unfinished: {running} ran, {waiting} waited, "
            f"{len(demands) - arrived} had not arrived yet "
            f"(the last arrives after {demands[-1].arrives_s / 3600:.0f} h)"
        )
    return ReplayReport(
        policy=policy,
        jobs=len(demands),
        left_out=left_out,
        drawn_classes=drawn,
        arrived=arrived,
        finished=len(done),
        running=running,
        waiting=waiting,
        energy_j=metrics.energy_j,
        mean_watts=metrics.mean_watts,
        slo_attainment=metrics.slo_attainment if done else None,
        jct_mean_s=fmean(spans) if spans else None,
        jct_median_s=median(spans) if spans else None,
        jct_p95_s=_high(spans),
        queueing_mean_s=fmean(waits) if waits else None,
        queueing_p95_s=_high(waits),
        utilisation=metrics.utilisation,
        simulated_s=metrics.seconds,
        makespan_s=None if note else metrics.seconds,
        moves=metrics.moves,
        note=note,
    )


def _high(values: Iterable[float]) -> float | None:
    ranked = sorted(values)
    return ranked[min(int(0.95 * len(ranked)), len(ranked) - 1)] if ranked else None


def _shifted(demand: Demand, first_s: float) -> Demand:
    at_s = demand.arrives_s - first_s
    job = replace(demand.job, submitted_at=_START + timedelta(seconds=at_s))
    return replace(demand, job=job, arrives_s=at_s)


class _Maker:
    """Makes jobs of a trace's rows."""

    def __init__(
        self, truth: TableTruth, servers: Sequence[Server], promise: float, seed: int
    ) -> None:
        self._truth = truth
        self._sizes: dict[str, int] = {}
        for server in servers:
            self._sizes[server.gpu_type] = max(self._sizes.get(server.gpu_type, 0), server.gpus)
        self._promise = promise
        self._rng = random.Random(f"gogh/replay/{seed}")
        self._names: set[str] = set()
        self.drawn = 0

    def demand(self, row: Mapping[str, Any]) -> Demand | None:
        """A job of a row; None when it cannot run anywhere here."""
        name = self._class(row)
        count = int(row.get("num_gpus") or row.get("num_gpu") or 1)
        rates = sorted(
            run.throughput[0]
            for gpu_type, most in self._sizes.items()
            if count <= most and (run := self._truth.run(gpu_type, count, (name,))) is not None
        )
        if not rates:
            return None
        usual = rates[len(rates) // 2]
        steps = float(row.get("total_steps") or row.get("iterations") or 0.0)
        lasts_s = float(row.get("duration_s") or row.get("duration") or 3600.0)
        total = steps or usual * lasts_s
        given = row.get("required_throughput")
        required = min(usual, rates[-1]) * self._promise if given is None else float(given)
        model, mark, rest = name.rpartition(" (batch size ")
        batch = int(rest.rstrip(")")) if mark and rest.rstrip(")").isdigit() else None
        return Demand(
            Job(
                id=self._id(row),
                descriptors=Descriptors(model if batch is not None else name, batch),
                submitted_at=_START,
                owner=str(row.get("owner") or row.get("vc") or ""),
                gpu_counts=(count,),
                max_gpus=count,
                required_throughput=required,
                total_steps=total,
                priority=float(row.get("priority_weight") or row.get("priority") or 1.0),
                move_cost_j=(MOVE_S + CHECKPOINT_S / 4) * _TYPICAL_W * count,
            ),
            arrives_s=float(row["arrival_s"]),
        )

    def _class(self, row: Mapping[str, Any]) -> str:
        known = self._truth.classes()
        if row.get("job_type"):
            return str(row["job_type"])
        if row.get("model") and row.get("batch_size"):
            return job_class(str(row["model"]), int(row["batch_size"]))
        self.drawn += 1
        return self._rng.choice(known)

    def _id(self, row: Mapping[str, Any]) -> str:
        name = str(row.get("job_id") if row.get("job_id") is not None else len(self._names) + 1)
        while name in self._names:
            name += "'"
        self._names.add(name)
        return name
