"""What `gogh demo` found: rows, the comparison, and the report file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from gogh_core.planning import CycleReport
    from gogh_core.settings import Settings
    from gogh_core.simulation import Comparison, Metrics

__all__ = ["NAMES", "cycle_row", "result", "sentence", "write"]

NAMES = {
    "gogh": "GOGH",
    "fcfs": "first come, first served",
    "best_fit": "best fit by energy",
}
_STEPS = ("ingest", "retrain", "estimate", "allocate", "emit")


def cycle_row(report: CycleReport, measured: Metrics) -> dict[str, Any]:
    """One cycle: what was planned, and what then came of it."""
    plan = report.plan
    return {
        "cycle": report.cycle.id,
        "window": f"{report.cycle.window_start:%H:%M}",
        "name": report.name,
        "outcome": report.outcome,
        "running": report.running,
        "waiting": len(plan.waiting) if plan is not None else 0,
        "moves": len(plan.moves) if plan is not None else 0,
        "gap": plan.gap if plan is not None else None,
        "planned_w": report.power_w,
        "measured_w": measured.mean_watts,
        "energy_wh": measured.energy_j / 3600,
        "slo_attainment": measured.slo_attainment,
        "estimate_error": report.estimate_error,
        "seconds": {name: round(value, 3) for name, value in report.seconds.items()},
        "degraded": list(report.degraded),
    }


def _figures(metrics: Metrics) -> dict[str, Any]:
    kept_h = metrics.slo_attainment * metrics.running * metrics.seconds / 3600
    return {
        "energy_wh": metrics.energy_j / 3600,
        "mean_w": metrics.mean_watts,
        "slo_attainment": metrics.slo_attainment,
        "running": metrics.running,
        "waiting": metrics.waiting,
        "finished": metrics.finished,
        "wh_per_job_hour": metrics.energy_j / 3600 / kept_h if kept_h > 0 else None,
    }


def result(
    settings: Settings, rows: Sequence[dict[str, Any]], ours: Metrics, others: Comparison
) -> dict[str, Any]:
    """Everything the demo found, as `--json` prints it."""
    outcomes = {outcome.policy: _figures(outcome.metrics) for outcome in others.outcomes}
    return {
        "home": str(settings.home),
        "seed": settings.simulation.seed,
        "window_s": settings.cycle.window_s,
        "cycles": list(rows),
        "comparison": {"gogh": _figures(ours), **outcomes},
    }


def sentence(found: dict[str, Any]) -> str:
    """What was saved, in one line."""
    ours = found["comparison"]["gogh"]
    first = found["comparison"].get("fcfs")
    if not first:
        return f"{ours['energy_wh']:,.0f} Wh"
    change = ours["energy_wh"] / first["energy_wh"] - 1
    less = "less" if change <= 0 else "more"
    return (
        f"{abs(change):.0%} {less} energy than first come, first served "
        f"({ours['energy_wh']:,.0f} against {first['energy_wh']:,.0f} Wh), promises kept "
        f"{ours['slo_attainment']:.0%} of the time against {first['slo_attainment']:.0%}"
    )


def write(settings: Settings, found: dict[str, Any]) -> Path:
    """The report as Markdown, in the home."""
    lines = [
        "# GOGH demo",
        "",
        f"{len(found['cycles'])} windows of {found['window_s']} s on the embedded cluster, "
        f"seed {found['seed']}, {found['seconds']:.0f} s of real time.",
        "",
        f"**{sentence(found)}.**",
        "",
        "## Windows",
        "",
        "| window | running | waiting | moves | W planned | W measured | Wh | promises kept | "
        "error of estimates | gap | " + " | ".join(f"{step} s" for step in _STEPS) + " |",
        "|" + "---|" * (10 + len(_STEPS)),
    ]
    for row in found["cycles"]:
        seconds = [f"{row['seconds'].get(step, 0.0):.1f}" for step in _STEPS]
        cells = [
            row["window"],
            row["running"],
            row["waiting"],
            row["moves"],
            _number(row["planned_w"]),
            _number(row["measured_w"]),
            _number(row["energy_wh"]),
            _share(row["slo_attainment"]),
            _share(row["estimate_error"]),
            _share(row["gap"], 2),
            *seconds,
        ]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    lines += ["", "## The same jobs under other schedulers", ""]
    lines += [
        "| scheduler | Wh | mean W | promises kept | jobs running | waiting | finished |",
        "|" + "---|" * 7,
    ]
    for name, figures in found["comparison"].items():
        lines.append(
            f"| {NAMES.get(name, name)} | {_number(figures['energy_wh'])} | "
            f"{_number(figures['mean_w'])} | {_share(figures['slo_attainment'])} | "
            f"{figures['running']:.1f} | {figures['waiting']:.1f} | {figures['finished']} |"
        )
    lines += [
        "",
        "The other two know the true mean throughputs of every job on every GPU type, which no "
        "real scheduler does; GOGH had to learn them. Promises kept: the share of promised "
        "job-seconds, waiting included, in which a job got the throughput it was promised.",
        "",
    ]
    degraded = [f"- {row['window']}: {what}" for row in found["cycles"] for what in row["degraded"]]
    if degraded:
        lines += ["## What was done without", "", *degraded, ""]
    path = settings.below_home(_here("report.md"))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def _here(name: str) -> Path:
    from pathlib import Path

    return Path(name)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _share(value: float | None, digits: int = 0) -> str:
    return "–" if value is None else f"{value:.{digits}%}"
