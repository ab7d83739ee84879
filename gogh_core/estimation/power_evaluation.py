"""How well watts and the best power limit are told for jobs that were left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from gogh_core.estimation.catalog import Catalog
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.power import PowerModel

__all__ = ["power_accuracy", "power_catalog"]


def power_catalog(table: pd.DataFrame) -> Catalog:
    """A catalog from a table of mean power by limit (gpu_type, model, dataset, batch_size, ...)."""
    model = table["model"].astype(str) + "/" + table["dataset"].astype(str)
    batch = table["batch_size"].astype(float)
    names = [f"{m} (batch size {int(b)})" for m, b in zip(model, batch, strict=True)]
    return Catalog.from_table(
        pa.table(
            {
                "gpu_type": table["gpu_type"].astype(str).to_list(),
                "model": model.to_list(),
                "batch_size": batch.to_list(),
                "job_type": names,
                "throughput": table["throughput"].to_list(),
                "power_w": table["avg_power_w"].to_list(),
                "power_limit_w": table["power_limit_w"].to_list(),
                "unit": table["unit"].astype(str).to_list(),
            }
        )
    )


def power_accuracy(catalog: Catalog, *, every: int = 1) -> dict[str, Any]:
    """Mean error in watts at the highest limit and excess energy of the chosen limit.

    `sibling`: the job is hidden, its siblings are not. `other`: the whole family is hidden but for
    the job's measurement on one other GPU type.
    """
    jobs = JobSet.of(catalog)
    power = catalog.power
    # What was measured several times (other optimisers) is one truth: its mean.
    truth = power.groupby(["job", "column", "power_limit_w"])[["power_w", "throughput"]].mean()
    truth = truth.reset_index()
    highest = truth.groupby("column")["power_limit_w"].transform("max")
    top = truth[truth["power_limit_w"] >= 0.97 * highest]
    cells = list(zip(top["job"], top["column"], top["power_w"], strict=True))
    job, column = power["job"].to_numpy(), power["column"].to_numpy()
    family = jobs.families[job]
    errors: dict[str, list[float]] = {"sibling": [], "other": []}
    excess: dict[str, list[float]] = {"sibling": [], "other": []}
    for i, (j, g, watts) in enumerate(cells):
        if i % every:
            continue
        views = [("sibling", job == j)]
        others = sorted({int(c) for c in column[job == j]} - {int(g)})
        if others:
            shown = (job == j) & (column == others[i % len(others)])
            views.append(("other", (family == jobs.families[j]) & ~shown))
        for kind, hidden in views:
            rest = replace(catalog, power=power[~hidden].reset_index(drop=True))
            model = PowerModel.of(rest, jobs, catalog.columns)
            errors[kind].append(abs(float(model.free_w[j, g]) - watts))
            mine = truth[(truth["job"] == j) & (truth["column"] == g)]
            energy = (mine["power_w"] / mine["throughput"]).to_numpy()
            limits = mine["power_limit_w"].to_numpy()
            chosen = model.best_limit(int(j), int(g), limits)
            at = int(np.argmin(np.abs(limits - chosen)))
            excess[kind].append(float(energy[at] / energy.min() - 1))
    return {
        f"{kind}_{name}": float(np.mean(values))
        for name, table in (("error_w", errors), ("excess_energy", excess))
        for kind, values in table.items()
        if values
    }
