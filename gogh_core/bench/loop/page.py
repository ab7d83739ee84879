"""The scoreboard: a table for each case, energy against promises as a plot, and what was lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

__all__ = ["Score", "frontier", "page", "plot", "scores"]

RIVAL = "best_fit"
_COLUMNS: tuple[tuple[str, str, float], ...] = (
    ("kWh", "kwh", 1.0),
    ("JCT h", "jct_mean_s", 1 / 3600),
    ("p95", "jct_p95_s", 1 / 3600),
    ("queueing min", "queueing_mean_s", 1 / 60),
    ("p95", "queueing_p95_s", 1 / 60),
    ("slowdown", "slowdown_mean", 1.0),
    ("GPUs used", "utilisation", 100.0),
    ("of those on", "utilisation_on", 100.0),
    ("work / on-GPU-s", "work_per_on_gpu_s", 1.0),
    ("makespan h", "makespan_s", 1 / 3600),
    ("fairness", "fairness_mean", 1.0),
    ("worst", "fairness_worst", 1.0),
    ("moves/job", "moves_per_job", 1.0),
    ("stops/job", "stops_per_job", 1.0),
    ("lost work min", "lost_work_s", 1 / 60),
)


@dataclass(frozen=True, slots=True)
class Score:
    """One policy in one case, over its seeds."""

    case: str
    policy: str
    seeds: tuple[int, ...]
    joules: tuple[float, ...]
    """Joules per work-second, by seed."""
    kept: tuple[float, ...]
    """Percent of promised job-seconds, by seed."""
    figures: tuple[Mapping[str, Any], ...]

    def mean(self, name: str) -> float | None:
        """A figure, on average over the seeds that have it."""
        found = [f[name] for f in self.figures if f[name] is not None]
        return fmean(found) if found else None

    def lost(self, cause: str) -> float:
        """Percent of promised job-seconds lost to a cause, on average."""
        shares = [
            100 * f["unkept_job_s"][cause] / f["promised_job_s"]
            for f in self.figures
            if f["promised_job_s"]
        ]
        return fmean(shares) if shares else 0.0


def scores(results: Iterable[Mapping[str, Any]]) -> list[Score]:
    """Results gathered by case and policy, in the order in which they came."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for raw in results:
        groups.setdefault((raw["case"], raw["policy"]), []).append(raw)
    found = []
    for (case, policy), members in groups.items():
        own = sorted(members, key=lambda raw: raw["seed"])
        figures = [raw["figures"] for raw in own]
        found.append(
            Score(
                case,
                policy,
                tuple(raw["seed"] for raw in own),
                tuple(f["joules_per_work_s"] or float("nan") for f in figures),
                tuple(
                    100 * (f["kept_share"] if f["kept_share"] is not None else 1) for f in figures
                ),
                tuple(figures),
            )
        )
    return found


def frontier(found: Sequence[Score]) -> set[str]:
    """Policies that no other one beats in both energy and promises."""
    points = {s.policy: (fmean(s.joules), fmean(s.kept)) for s in found}
    return {
        name
        for name, (joules, kept) in points.items()
        if not any(
            other != name and j <= joules and k >= kept and (j, k) != (joules, kept)
            for other, (j, k) in points.items()
        )
    }


def page(found: Sequence[Score], *, command: str, day: str, plots: Mapping[str, str]) -> str:
    """All cases as Markdown."""
    lines = ["# The closed loop", "", f"`{command}`, {day}. Regenerate with the same command.", "",
             _INTRO, ""]  # fmt: skip
    for case in dict.fromkeys(score.case for score in found):
        own = [score for score in found if score.case == case]
        lines += [f"## {case}", "", *_main(own), ""]
        if case in plots:
            lines += [f"![energy against promises, {case}]({plots[case]})", ""]
        lines += [*_lost(own), "", *_rest(own), ""]
    return "\n".join(lines)


_INTRO = """Every policy meets the same jobs on the same servers; all may act on events, and all
switch idle servers off. Rivals are told the true mean speeds and watts of every job; `gogh` learns
them from what is measured, `gogh_true` is the same planner with the true means. A work-second is a
second of a middling GPU of the cluster. "Kept" is the share of promised job-seconds, waiting
included, in which the promise was kept. Spread is the standard deviation over seeds. **Bold**: on
the frontier of energy and promises. An *oracle* knows how long each job will take."""


def _main(own: Sequence[Score]) -> list[str]:
    rival = next((score for score in own if score.policy == RIVAL), None)
    best = frontier(own)
    lines = ["| policy | J per work-second | over best fit on events | promises kept | seeds |",
             "|---|---|---|---|---|"]  # fmt: skip
    for score in sorted(own, key=lambda s: fmean(s.joules)):
        name = f"**{score.policy}**" if score.policy in best else score.policy
        name += " (oracle)" if score.policy in ("sjf", "srtf") else ""
        lines.append(
            f"| {name} | {_spread(score.joules)} | {_over(score, rival)} | "
            f"{_spread(score.kept)} % | {len(score.seeds)} |"
        )
    return lines


def _over(score: Score, rival: Score | None) -> str:
    if rival is None:
        return "-"
    base = dict(zip(rival.seeds, rival.joules, strict=True))
    pairs = zip(score.seeds, score.joules, strict=True)
    ratios = [joules / base[seed] for seed, joules in pairs if seed in base]
    return _spread(ratios, "{:.3f}") if ratios else "-"


def _lost(own: Sequence[Score]) -> list[str]:
    causes = list(own[0].figures[0]["unkept_job_s"])
    lines = ["Promised job-seconds lost, in percent, by cause:", "",
             "| policy | " + " | ".join(cause.replace("_", " ") for cause in causes) + " |",
             "|---" * (len(causes) + 1) + "|"]  # fmt: skip
    for score in own:
        lines.append(
            f"| {score.policy} | " + " | ".join(f"{score.lost(c):.2f}" for c in causes) + " |"
        )
    return lines


def _rest(own: Sequence[Score]) -> list[str]:
    lines = ["| policy | " + " | ".join(title for title, _, _ in _COLUMNS) + " |",
             "|---" * (len(_COLUMNS) + 1) + "|"]  # fmt: skip
    for score in own:
        cells = []
        for _, name, factor in _COLUMNS:
            value = score.mean(name)
            cells.append("-" if value is None else f"{value * factor:.3g}")
        lines.append(f"| {score.policy} | " + " | ".join(cells) + " |")
    return lines


def _spread(values: Sequence[float], form: str = "{:.1f}") -> str:
    text = form.format(fmean(values))
    return f"{text} ± {form.format(stdev(values))}" if len(values) > 1 else text


def plot(own: Sequence[Score], path: Path) -> None:
    """Energy against promises, each policy a point with its spread, the frontier joined."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 5), layout="constrained")
    best = frontier(own)
    for score in own:
        x, y = fmean(score.joules), fmean(score.kept)
        ours = score.policy.startswith("gogh")
        axis.errorbar(
            x, y,
            xerr=stdev(score.joules) if len(score.joules) > 1 else None,
            yerr=stdev(score.kept) if len(score.kept) > 1 else None,
            fmt="o" if ours else "s", color="#c03a2b" if ours else "#1f5fa8",
            alpha=1.0 if score.policy in best else 0.55, elinewidth=0.7,
        )  # fmt: skip
        axis.annotate(score.policy, (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8)
    line = sorted((fmean(s.joules), fmean(s.kept)) for s in own if s.policy in best)
    axis.plot(*zip(*line, strict=True), color="#888", lw=1, ls="--", zorder=0)
    axis.set_xlabel("joules per work-second (less is better)")
    axis.set_ylabel("promised job-seconds kept, %")
    axis.set_title(f"{own[0].case}: {len(own[0].seeds)} seeds; dashed: frontier", fontsize=10)
    axis.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
