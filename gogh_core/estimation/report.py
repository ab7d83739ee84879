"""How what `study` computed is written down: Markdown tables and plots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["BAR", "draw", "page"]

BAR = "median and all siblings"


def page(result: dict[str, Any]) -> str:
    """Everything that was computed, as Markdown."""
    lines = ["# Estimators", ""]
    if "summary" in result:
        table = pd.DataFrame(result["summary"])
        for split in ("LOJO", "LOMO"):
            lines += _accuracy_lines(table[table["split"] == split], split)
        lines += _against_the_bar(table, result["served"])
    if "learning" in result:
        lines += _learning_lines(result)
    lines += _others_lines(result)
    if "feasibility" in result:
        lines += ["", "## Infeasible pairs found at 5 % of feasible ones refused", ""]
        lines += [f"- {name}: {100 * value:.0f} %" for name, value in result["feasibility"].items()]
    if "power" in result:
        lines += ["", "## Power (zeus)", ""]
        lines += [f"- {name}: {value:.3g}" for name, value in result["power"].items()]
    if "speed" in result:
        lines += ["", "## Speed, seconds of one core", ""]
    for name, value in result.get("speed", {}).items():
        lines.append(f"- {name}: {value:.3g}" if isinstance(value, float) else f"- {name}: {value}")
    lines.append(f"- peak_mb: {result['peak_mb']}")
    return "\n".join(lines)


def _learning_lines(result: dict[str, Any]) -> list[str]:
    curve = pd.DataFrame(result["learning"])
    keys = ["method", "kind", "step"]
    means = curve.groupby(keys, sort=False)["error"].mean().unstack("step")
    lines = ["## Learning curve (LOMO, cells never shown)", ""]
    lines += ["| method | kind | " + " | ".join(str(step) for step in means.columns) + " |"]
    lines += ["|---" * (2 + len(means.columns)) + "|"]
    for key, row in means.iterrows():
        method, kind = np.asarray(key)
        lines.append(f"| {method} | {kind} | " + " | ".join(f"{v:.3f}" for v in row) + " |")
    wide = curve[curve["method"] == f"{result['served']}, facts"].dropna()
    for kind, row in wide.groupby(["kind", "step"])["width"].mean().unstack("step").iterrows():
        lines.append(f"| spread | {kind} | " + " | ".join(f"{v:.3f}" for v in row) + " |")
    return lines


def _others_lines(result: dict[str, Any]) -> list[str]:
    """Other sources, and gangs: served against the bar."""
    lines = []
    for other, records in result.get("others", {}).items():
        table = pd.DataFrame(records)
        table = table[table["nmae"].notna()]
        lines += ["", f"## {other}", ""]
        for split in ("LOJO", "LOMO"):
            lines += _accuracy_lines(table[table["split"] == split], split)
    if "gangs" in result:
        lines += ["", "## Several GPUs, from single ones (jobs left out)", ""]
    lines += [
        f"- {row['method']}: {row['error']:.3f} / {100 * row['relative']:.0f} %, "
        f"inside {row['inside']:.2f}"
        for row in result.get("gangs", [])
    ]
    return lines


def _against_the_bar(table: pd.DataFrame, served: str) -> list[str]:
    """Change of the served networks against the bar, spread over seeds and over families."""
    lines = ["## Served against the bar: change, spread over seeds / over families", ""]
    tasks = list(dict.fromkeys(table["task"]))
    lines.append("| | " + " | ".join(tasks) + " | all inside |")
    lines.append("|---" * (len(tasks) + 2) + "|")
    for split in ("LOJO", "LOMO"):
        here = table[table["split"] == split].set_index(["method", "task"])
        for tag in ("name", "facts"):
            cells, inside, total = [], 0.0, 0.0
            for task in tasks:
                row, bar = here.loc[(f"{served}, {tag}", task)], here.loc[(BAR, task)]
                change = 100 * (row["nmae"] / bar["nmae"] - 1)
                cells.append(f"{change:+.0f} % ({row['seed_sd']:.3f} / {row['family_sd']:.3f})")
                if not np.isnan(row["coverage"]):
                    inside += row["coverage"] * row["cells"]
                    total += row["cells"]
            lines.append(f"| {split}, {tag} | " + " | ".join(cells) + f" | {inside / total:.2f} |")
    return [*lines, ""]


def _accuracy_lines(table: pd.DataFrame, split: str) -> list[str]:
    tasks = list(dict.fromkeys(table["task"]))
    lines = [f"## {split}: nMAE / median relative error / share inside the 80 % interval", ""]
    lines.append("| method | " + " | ".join(tasks) + " |")
    lines.append("|---" * (len(tasks) + 1) + "|")
    for method in dict.fromkeys(table["method"]):
        cells = []
        for task in tasks:
            row = table[(table["method"] == method) & (table["task"] == task)].iloc[0]
            held = "" if np.isnan(row["coverage"]) else f" / {100 * row['coverage']:.0f}"
            cells.append(f"{row['nmae']:.3f} / {100 * row['relative']:.0f} %{held}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def draw(result: dict[str, Any], folder: Path) -> None:
    """Learning curve, coverage by task and error by family as PNG files."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    if "learning" in result:
        _draw_learning(result, folder)
    if "summary" in result:
        _draw_intervals(result, folder)
        _draw_families(result, folder)
    plt.close("all")


def _draw_learning(result: dict[str, Any], folder: Path) -> None:
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    curve = pd.DataFrame(result["learning"])
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    colours = mpl.colormaps["tab20"].colors  # type: ignore[attr-defined]
    for axis, (kind, some) in zip(axes, curve.groupby("kind", sort=False), strict=False):
        for i, (method, line) in enumerate(some.groupby("method", sort=False)):
            means = line.groupby("step")["error"].mean()
            learned = str(method).endswith(", facts")
            axis.plot(
                range(len(means)), means.to_numpy(), label=str(method), marker="o", markersize=4,
                color=colours[i % len(colours)], linestyle="-" if learned else "--",
                linewidth=2.0 if learned else 1.0,
            )  # fmt: skip
            axis.set_xticks(range(len(means)), [str(s) for s in means.index])
        axis.set_title(str(kind))
        axis.set_xlabel("measured cells")
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("{x:g}")
        axis.tick_params(which="both", labelsize=8)
    axes[0].set_ylabel("nMAE of cells never shown")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=8)
    figure.savefig(folder / "learning-curve.png", dpi=80)


def _draw_intervals(result: dict[str, Any], folder: Path) -> None:
    import matplotlib.pyplot as plt

    table = pd.DataFrame(result["summary"]).dropna(subset=["coverage"])
    served = table[table["method"].str.startswith(result["served"])]
    figure, axis = plt.subplots(figsize=(8, 3.6))
    names = [f"{s} {m.split(', ')[1]}: {t}" for s, m, t in
             zip(served["split"], served["method"], served["task"], strict=True)]  # fmt: skip
    axis.barh(names, served["coverage"])
    axis.axvspan(0.65, 0.92, alpha=0.2)
    axis.axvline(0.8, color="black")
    axis.tick_params(labelsize=5)
    axis.set_xlabel("share of truths inside the 80 % interval")
    figure.tight_layout()
    figure.savefig(folder / "calibration.png", dpi=80)


def _draw_families(result: dict[str, Any], folder: Path) -> None:
    import matplotlib.pyplot as plt

    family = pd.DataFrame(result["families"])
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.2))
    for axis, task in zip(axes, ("P1 shape", "P2 alone"), strict=True):
        wide = family[family["task"] == task].pivot_table(
            index="family", columns="method", values="mean"
        )
        wide.plot.bar(ax=axis, title=f"{task}, families left out", fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / "error-by-family.png", dpi=80)
