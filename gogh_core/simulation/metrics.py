"""What a stretch of the world's time amounts to: energy, promises kept, jobs, watts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gogh_core.simulation.records import CAUSES, Totals

__all__ = ["Metrics", "between"]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Figures of one stretch; shares are 1.0 where there was nothing to share out."""

    seconds: float
    energy_j: float
    mean_watts: float
    slo_attainment: float
    """Share of promised job-seconds, waiting included, in which the promise was kept."""
    running: float
    """Jobs placed, on average."""
    waiting: float
    finished: int
    failed: int
    submitted: int
    moves: int
    utilisation: float
    """Share of the GPU-seconds of servers that were on in which a GPU had work."""
    deadlines: int
    deadlines_met: int
    lost_job_s: float
    """Job-seconds of work that moves, stops and faults undid."""
    promised_job_s: float
    kept_job_s: float
    """Job-seconds with a promise, and those of them in which it was kept."""
    work_s: float
    """Work done, in seconds of a middling GPU: the same amount of work under every policy."""
    unkept_job_s: dict[str, float]
    """Promised job-seconds that were not kept, by cause; together, promised less kept."""
    stops: int

    @property
    def energy_per_work(self) -> float | None:
        """Joules for each second of work done; None when none was."""
        return self.energy_j / self.work_s if self.work_s > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """For reports and `--json`."""
        return asdict(self)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 1.0


def metrics_of(first: dict[str, float], last: dict[str, float]) -> Metrics:
    """Figures between two rows of the meter."""
    gone = {name: last[name] - first.get(name, 0.0) for name in last}
    seconds = gone["at_s"]
    span = seconds if seconds > 0 else 1.0
    return Metrics(
        seconds=seconds,
        energy_j=gone["energy_j"],
        mean_watts=gone["energy_j"] / span,
        slo_attainment=_share(gone["attained_s"], gone["promised_s"]),
        running=gone["running_s"] / span,
        waiting=gone["waiting_s"] / span,
        finished=round(gone["finished"]),
        failed=round(gone["failed"]),
        submitted=round(gone["submitted"]),
        moves=round(gone["moves"]),
        utilisation=_share(gone["busy_gpu_s"], gone["on_gpu_s"]),
        deadlines=round(gone["deadlines"]),
        deadlines_met=round(gone["deadlines_met"]),
        lost_job_s=gone["lost_steps_s"],
        promised_job_s=gone["promised_s"],
        kept_job_s=gone["attained_s"],
        work_s=gone["work_s"],
        unkept_job_s={cause: gone[f"unkept_{cause}_s"] for cause in CAUSES},
        stops=round(gone["stops"]),
    )


def meter_row(at_s: float, totals: Totals) -> dict[str, float]:
    """The meter at one moment: everything added up so far."""
    return {"at_s": at_s, **asdict(totals)}


def between(rows: Sequence[dict[str, float]], since_s: float, until_s: float) -> Metrics:
    """Figures from `since_s` to `until_s`; between two rows of the meter, in proportion."""
    return metrics_of(_at(rows, since_s), _at(rows, until_s))


def _at(rows: Sequence[dict[str, float]], at_s: float) -> dict[str, float]:
    before = rows[0]
    if at_s <= before["at_s"]:
        return before
    for row in rows[1:]:
        if row["at_s"] >= at_s:
            share = (at_s - before["at_s"]) / (row["at_s"] - before["at_s"] or 1.0)
            return {
                name: before.get(name, 0.0) + share * (row[name] - before.get(name, 0.0))
                for name in row
            }
        before = row
    return rows[-1]
