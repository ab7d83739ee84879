"""What a run amounts to, from the world's own bookkeeping: every figure of the scoreboard.

Time alone is what a job would take on as many middling GPUs of this cluster as it asks for, with
nobody else there (a service: as long as it lasts). Bounded slowdown is the completion time over the
time alone, both at least 10 s, and at least 1. Finish-time fairness (rho) is the completion time
over the time on a fair share: with n jobs present on average from its arrival to its end and G GPUs
in the cluster, a job that asks for k GPUs is due G/n of them, so the fair time is the time alone
times max(1, k n / G). A rho over 1 says that a job would have been better off with its own share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from gogh_core.domain import JobState, Mode
from gogh_core.simulation.records import CAUSES, JobRecord
from gogh_core.simulation.world import World

__all__ = ["Figures", "fairness", "figures_of", "high", "time_alone_s"]

_BOUND_S = 10.0
_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a run from its beginning; None where nothing was there to measure."""

    seconds: float
    jobs: int
    """Jobs that came."""
    finished: int
    failed: int
    energy_j: float
    kwh: float
    work_s: float
    """Work done and kept, in seconds of a middling GPU."""
    joules_per_work_s: float | None
    promised_job_s: float
    kept_job_s: float
    kept_share: float | None
    unkept_job_s: dict[str, float]
    """Promised job-seconds that were not kept, by cause; together, promised less kept."""
    jct_mean_s: float | None
    jct_p95_s: float | None
    """Completion time of finished jobs."""
    queueing_mean_s: float | None
    queueing_p95_s: float | None
    """Seconds without a place, of all jobs that came."""
    slowdown_mean: float | None
    slowdown_p95: float | None
    """Bounded at 10 s, of finished jobs."""
    utilisation: float | None
    """Share of the GPU-seconds of the whole cluster in which a GPU had work."""
    utilisation_on: float | None
    """The same of servers that were on."""
    work_per_on_gpu_s: float | None
    """Work for each GPU-second of servers that were on: allocation efficiency."""
    makespan_s: float | None
    """Until the last job was through; None while jobs are there or still to come."""
    fairness_worst: float | None
    fairness_mean: float | None
    """Finish-time fairness rho of finished jobs."""
    moves_per_job: float | None
    stops_per_job: float | None
    evictions: int
    """Jobs thrown out because memory did not suffice."""
    lost_job_s: float
    """Job-seconds of work that moves, stops, evictions and faults undid."""
    lost_work_s: float
    """The same in the unit of work."""

    def to_dict(self) -> dict[str, Any]:
        """For reports and `--json`."""
        return asdict(self)


def figures_of(world: World) -> Figures:
    """Everything up to now; `world.ended` has to hold all jobs that ended since the beginning."""
    world.settle()
    world.count_all()
    totals, seconds = world.totals, world.now_s
    gpus = sum(record.server.gpus for record in world.servers.values())
    done = [record for record in world.ended if record.state is JobState.FINISHED]
    spans = [_jct_s(record) for record in done]
    here = [record for record in world.jobs.values() if record.active]
    waits = [record.waited_s for record in (*world.ended, *here)]
    slow = [_slowdown(world, record) for record in done]
    shares = [fairness(world, record, gpus) for record in done]
    over = world.coming is None and not here and bool(world.ended)
    return Figures(
        seconds=seconds,
        jobs=totals.submitted,
        finished=totals.finished,
        failed=totals.failed,
        energy_j=totals.energy_j,
        kwh=totals.energy_j / _JOULES_PER_KWH,
        work_s=totals.work_s,
        joules_per_work_s=_ratio(totals.energy_j, totals.work_s),
        promised_job_s=totals.promised_s,
        kept_job_s=totals.attained_s,
        kept_share=_ratio(totals.attained_s, totals.promised_s),
        unkept_job_s={cause: getattr(totals, f"unkept_{cause}_s") for cause in CAUSES},
        jct_mean_s=_mean(spans),
        jct_p95_s=high(spans),
        queueing_mean_s=_mean(waits),
        queueing_p95_s=high(waits),
        slowdown_mean=_mean(slow),
        slowdown_p95=high(slow),
        utilisation=_ratio(totals.busy_gpu_s, gpus * seconds),
        utilisation_on=_ratio(totals.busy_gpu_s, totals.on_gpu_s),
        work_per_on_gpu_s=_ratio(totals.work_s, totals.on_gpu_s),
        makespan_s=max(record.ended_s or 0.0 for record in world.ended) if over else None,
        fairness_worst=max(shares, default=None),
        fairness_mean=_mean(shares),
        moves_per_job=_ratio(totals.moves, totals.submitted),
        stops_per_job=_ratio(totals.stops, totals.submitted),
        evictions=totals.evictions,
        lost_job_s=totals.lost_steps_s,
        lost_work_s=totals.lost_work_s,
    )


def time_alone_s(world: World, record: JobRecord) -> float:
    """How long the job takes on as many middling GPUs as it asks for, alone."""
    total = record.demand.job.total_steps
    if total is None:
        return record.demand.lasts_s or 0.0
    return total / (world.middling(record) * _asked(record))


def fairness(world: World, record: JobRecord, gpus: int) -> float:
    """Finish-time fairness rho of a job that is through, in a cluster of so many GPUs."""
    crowded = max(1.0, _asked(record) * max(record.crowd, 1.0) / gpus)
    return _jct_s(record) / max(time_alone_s(world, record) * crowded, 1e-9)


def high(values: Iterable[float]) -> float | None:
    """The 95 % quantile."""
    ranked = sorted(values)
    return ranked[min(int(0.95 * len(ranked)), len(ranked) - 1)] if ranked else None


def _asked(record: JobRecord) -> int:
    job = record.demand.job
    return 1 if job.mode is Mode.SPREAD else min(job.gpu_counts)


def _jct_s(record: JobRecord) -> float:
    return (record.ended_s or 0.0) - record.demand.arrives_s


def _slowdown(world: World, record: JobRecord) -> float:
    return max(1.0, _jct_s(record) / max(time_alone_s(world, record), _BOUND_S))


def _mean(values: list[float]) -> float | None:
    return fmean(values) if values else None


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
