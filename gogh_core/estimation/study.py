"""What `gogh bench estimators` computes and how it is written down."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["accuracy_report", "data_folder", "draw", "page", "speed"]

BAR = "median and all siblings"


def data_folder(given: Path | None) -> Path | None:
    """The measurements: as given, GOGH_DATA, or beside the project."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    for folder in (
        given,
        Path(os.environ["GOGH_DATA"]) if "GOGH_DATA" in os.environ else None,
        beside,
    ):
        if folder is not None and (folder / "throughput.parquet").exists():
            return folder
    return None


def accuracy_report(folder: Path, source: str, *, quick: bool, seeds: int) -> dict[str, Any]:
    """Accuracy by method and task, learning curve, feasibility and power."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    from gogh_core.estimation import Catalog
    from gogh_core.estimation.baselines import BASELINES
    from gogh_core.estimation.evaluation import (
        Method,
        accuracy,
        feasibility,
        learning_curve,
        network_method,
        simple_method,
        summary,
    )
    from gogh_core.estimation.networks import KINDS
    from gogh_core.estimation.power_evaluation import power_accuracy, power_catalog
    from gogh_core.estimation.registry import shipped

    table = pq.read_table(folder / "throughput.parquet")
    one = pc.and_(pc.equal(table["source"], source), pc.equal(table["scale_factor"], 1))
    catalog = Catalog.from_table(table.filter(one), where=source)
    version, served = shipped()

    def methods_of(seed: int) -> list[Method]:
        found = [simple_method(name) for name in ([BAR] if quick else BASELINES)]
        for facts, tag in ((False, "name"), (True, "facts")):
            found.append(network_method(f"process, {tag}", {}, use_facts=facts, calibrated=False))
            for kind in [version.kind] if quick or not facts else KINDS:
                networks = served if kind == version.kind else shipped(kind)[1]
                name = f"{kind}, {tag}"
                found.append(network_method(name, networks, use_facts=facts, seed=seed))
        return found

    methods = methods_of(0)
    runs = [accuracy(catalog, methods_of(seed), partners=1, seed=seed) for seed in range(seeds)]
    rows = pd.concat([run.assign(seed=seed) for seed, run in enumerate(runs)])
    curves = [m for m in methods if m.name in (BAR, "process, facts", f"{version.kind}, facts")]
    feasible = {
        f"{split}, {tag}": feasibility(catalog, split=split, use_facts=facts)["found"]
        for split in ("LOJO", "LOMO")
        for facts, tag in ((False, "name"), (True, "facts"))
    }
    memory = _fitted_memory(catalog)
    feasible["LOMO, declared"] = feasibility(catalog, split="LOMO", declared=memory)["found"]
    power = pd.read_parquet(folder / "power.parquet")
    power = power[power["source"] == "zeus_nsdi23"]
    return {
        "served": version.kind,
        "summary": summary(rows).to_dict("records"),
        "families": _by_family(rows, version.kind),
        "learning": learning_curve(catalog, curves, seeds=(0, 1)).to_dict("records"),
        "feasibility": feasible,
        "power": power_accuracy(power_catalog(power), every=6 if quick else 3),
    }


def _fitted_memory(catalog: Any) -> dict[str, float]:
    """Memory as the whole catalog implies it: what a user would declare."""
    from gogh_core.estimation.feasibility import fit_memory
    from gogh_core.estimation.jobset import JobSet

    model = fit_memory(catalog, JobSet.of(catalog), catalog.columns)
    return dict(zip(catalog.names, np.exp(model.log_memory).tolist(), strict=True))


def _by_family(rows: pd.DataFrame, kind: str) -> list[dict[str, Any]]:
    chosen = rows[rows["method"].isin([BAR, f"{kind}, facts"]) & (rows["split"] == "LOMO")]
    means = chosen.assign(mean=[float(np.mean(e)) for e in chosen["error"]])
    table = means.groupby(["task", "family", "method"])["mean"].mean().reset_index()
    return [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]


def speed() -> dict[str, float]:
    """Seconds for 26 classes, for 1,000 classes with all pairs on 6 types, and of a retraining."""
    import tempfile

    from gogh_core.domain import Descriptors
    from gogh_core.estimation import Catalog, Estimator, Registry, retrain
    from gogh_core.estimation.registry import shipped
    from gogh_core.estimation.worlds import draw_table

    version, networks = shipped()
    types = ["k80", "p100", "v100", "t4", "a100", "h100"]
    catalog = Catalog.from_table(draw_table(7, most_jobs=40))
    out: dict[str, float] = {"observations": float(catalog.cells.count.sum())}
    for count, name in ((26, "classes_26_s"), (1000, "classes_1000_s")):
        jobs = [
            Descriptors(f"model-{i // 5}", 8 * 2 ** (i % 5), flops_per_step=1e10 * (1 + i % 97))
            for i in range(count)
        ]
        began = time.perf_counter()
        table = Estimator(version.id, networks).options(catalog, jobs, types)
        out[name] = time.perf_counter() - began
        out[name.replace("_s", "_cells")] = float(table.num_rows)
        del table
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        retrain(catalog, Registry(Path(folder)), budget_s=20, seed=0)
        out["retrain_s"] = time.perf_counter() - began
    return out


def page(result: dict[str, Any]) -> str:
    """Everything as Markdown."""
    lines = ["# Estimators", ""]
    if "summary" in result:
        table = pd.DataFrame(result["summary"])
        for split in ("LOJO", "LOMO"):
            lines += _accuracy_lines(table[table["split"] == split], split)
        lines += _against_the_bar(table, result["served"])
        lines += [
            "## Learning curve (LOMO, cells never shown)",
            "",
            "| method | kind | 0 | 1 | 2 | 4 | 8 |",
        ]
        lines.append("|---|---|---|---|---|---|---|")
        curve = pd.DataFrame(result["learning"])
        means = (
            curve.groupby(["method", "kind", "step"], sort=False)["error"].mean().unstack("step")
        )
        for key, row in means.iterrows():
            method, kind = np.asarray(key)
            lines.append(f"| {method} | {kind} | " + " | ".join(f"{v:.3f}" for v in row) + " |")
        wide = curve[curve["method"] == f"{result['served']}, facts"].dropna()
        for kind, row in wide.groupby(["kind", "step"])["width"].mean().unstack("step").iterrows():
            lines.append(f"| spread | {kind} | " + " | ".join(f"{v:.3f}" for v in row) + " |")
        lines += ["", "## Infeasible pairs found at 5 % of feasible ones refused", ""]
        lines += [f"- {name}: {100 * value:.0f} %" for name, value in result["feasibility"].items()]
        lines += ["", "## Power (zeus)", ""]
        lines += [f"- {name}: {value:.3g}" for name, value in result["power"].items()]
    lines += ["", "## Speed, one core", ""]
    lines += [f"- {name}: {value:.3g}" for name, value in result["speed"].items()]
    lines.append(f"- peak_mb: {result['peak_mb']}")
    return "\n".join(lines)


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
    curve = pd.DataFrame(result["learning"])
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2))
    for axis, (kind, some) in zip(axes, curve.groupby("kind", sort=False), strict=False):
        for method, line in some.groupby("method", sort=False):
            means = line.groupby("step")["error"].mean()
            axis.plot(range(len(means)), means.to_numpy(), marker="o", label=str(method))
            axis.set_xticks(range(len(means)), [str(s) for s in means.index])
        axis.set_title(str(kind))
        axis.set_xlabel("measured cells")
    axes[0].set_ylabel("nMAE of cells never shown")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / "learning-curve.png", dpi=80)
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
    family = pd.DataFrame(result["families"])
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.2))
    for axis, task in zip(axes, ("P1 shape", "P2 alone"), strict=True):
        wide = family[family["task"] == task].pivot_table(
            index="family", columns="method", values="mean"
        )
        wide.plot.bar(ax=axis, title=f"{task}, families left out", fontsize=7)
    figure.tight_layout()
    figure.savefig(folder / "error-by-family.png", dpi=80)
    plt.close("all")
