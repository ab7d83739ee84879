"""What `gogh demo` found: rows, the comparison, and the report file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from gogh_core.planning import CycleReport
    from gogh_core.settings import Settings
    from gogh_core.simulation import Comparison, Metrics

__all__ = ["NAMES", "cycle_row", "frontier", "result", "sentence", "strongest", "write"]

NAMES = {
    "gogh": "GOGH",
    "fcfs": "first come, first served",
    "best_fit_window": "best fit by energy, each window",
    "best_fit": "best fit by energy, on events",
    "best_fit_tuned": "best fit by energy, tuned",
    "lucid": "packing as in Lucid",
}
_STRONG = ("best_fit", "best_fit_tuned", "lucid", "fcfs")
"""The others that act on events, of which the strongest is named."""
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
    return {
        "energy_wh": metrics.energy_j / 3600,
        "mean_w": metrics.mean_watts,
        "slo_attainment": metrics.slo_attainment,
        "running": metrics.running,
        "waiting": metrics.waiting,
        "finished": metrics.finished,
        "j_per_work_s": metrics.energy_per_work,
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


def strongest(found: dict[str, Any]) -> str | None:
    """The strongest of the others; None when none of them did any work.

    Of those that keep at least as many promises as GOGH, the one that needs the least energy for
    its work; where none keeps as many, the one that keeps the most.
    """
    others: dict[str, Any] = {
        name: figures
        for name, figures in found["comparison"].items()
        if name in _STRONG and figures["j_per_work_s"] is not None
    }
    kept = found["comparison"]["gogh"]["slo_attainment"]
    equals = [name for name, figures in others.items() if figures["slo_attainment"] >= kept]
    if equals:
        return min(equals, key=lambda name: float(others[name]["j_per_work_s"]))
    return max(others, key=lambda name: float(others[name]["slo_attainment"]), default=None)


def frontier(found: dict[str, Any]) -> list[str]:
    """Policies, GOGH among them, that no other beats in both energy for work and promises."""
    scored = {
        name: (figures["j_per_work_s"], -figures["slo_attainment"])
        for name, figures in found["comparison"].items()
        if figures["j_per_work_s"] is not None
    }
    return [
        name
        for name, (joules, unkept) in scored.items()
        if not any(
            other != (joules, unkept) and other[0] <= joules and other[1] <= unkept
            for other in scored.values()
        )
    ]


def sentence(found: dict[str, Any]) -> str:
    """Energy for the work done, and promises kept, against the strongest of the others."""
    ours, name = found["comparison"]["gogh"], strongest(found)
    if ours["j_per_work_s"] is None or name is None:
        return f"{ours['energy_wh']:,.0f} Wh, and no work was done to compare"
    theirs = found["comparison"][name]
    change = ours["j_per_work_s"] / theirs["j_per_work_s"] - 1
    return (
        f"{abs(change):.0%} {'less' if change <= 0 else 'more'} energy for the same work than "
        f"{NAMES[name]}, the strongest of the others ({ours['j_per_work_s']:.0f} against "
        f"{theirs['j_per_work_s']:.0f} J for each second of work), promises kept "
        f"{ours['slo_attainment']:.1%} of the time against {theirs['slo_attainment']:.1%}"
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
    best = frontier(found)
    lines += [
        "| scheduler | J per s of work | Wh | mean W | promises kept | jobs running | waiting | "
        "finished |",
        "|" + "---|" * 8,
    ]
    for name, figures in found["comparison"].items():
        mark = r" \*" if name in best else ""
        lines.append(
            f"| {NAMES.get(name, name)}{mark} | {_number(figures['j_per_work_s'])} | "
            f"{_number(figures['energy_wh'])} | "
            f"{_number(figures['mean_w'])} | {_share(figures['slo_attainment'])} | "
            f"{figures['running']:.1f} | {figures['waiting']:.1f} | {figures['finished']} |"
        )
    lines += [
        "",
        "The others know the true mean throughputs of every job on every GPU type, which no real "
        "scheduler does; GOGH had to learn them. A second of work is a second of a middling GPU: "
        "the same amount of work under every scheduler, so doing less is no saving. Promises kept: "
        "the share of promised job-seconds, waiting included, in which a job got the throughput it "
        r"was promised. \* No other scheduler here is better in both energy for work and promises.",
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
