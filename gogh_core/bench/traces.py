"""Jobs as traces of real clusters saw them arrive: how many GPUs, which model, whose, how old.

A trace is a Parquet or CSV file with one row for each job; the columns are found by the names
that Gavel's, Philly's, Alibaba's, Tiresias' and Blox' traces use.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gogh_core.errors import InvalidInput

__all__ = ["TracedJob", "traced_jobs"]

_GPUS = ("num_gpus", "num_gpu")
_ARRIVAL = ("arrival_s", "submit_time")
_CLASS = ("job_type", "model", "model_name")
_OWNER = ("vc", "qos")


@dataclass(frozen=True, slots=True)
class TracedJob:
    """A job of a trace; `share` is the part of a GPU it asked for (1: all of it)."""

    gpus: int
    job_class: str | None
    owner: str
    share: float
    age_s: float
    """Since it arrived, when the last of the chosen jobs arrives."""


def traced_jobs(path: Path, number: int, seed: int) -> list[TracedJob]:
    """That many jobs that arrived one after the other, from a place that the seed chooses."""
    import pandas as pd

    try:
        table = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error
    gpus, arrival = _column(table, _GPUS), _column(table, _ARRIVAL)
    if gpus is None or arrival is None:
        wanted = f"{' or '.join(_GPUS)} and {' or '.join(_ARRIVAL)}"
        raise InvalidInput(f"has no columns {wanted}", where=str(path), todo="give a trace of jobs")
    table = table[table[gpus] > 0].sort_values(arrival, kind="stable")
    if len(table) == 0:
        raise InvalidInput("has no job with a GPU", where=str(path), todo="give a trace of jobs")
    start = int(np.random.default_rng([seed, 4]).integers(max(1, len(table) - number + 1)))
    # A trace that is too short is gone through again.
    rows = table.iloc[(start + np.arange(number)) % len(table)]
    names, owners = _column(table, _CLASS), _column(table, _OWNER)
    last = float(rows[arrival].max())
    found = []
    for row in rows.to_dict("records"):
        share = float(row.get("gpu_milli", 1000)) / 1000 if int(row[gpus]) == 1 else 1.0
        found.append(
            TracedJob(
                int(row[gpus]),
                None if names is None else str(row[names]),
                "" if owners is None else str(row[owners]),
                share if 0 < share <= 1 else 1.0,
                last - float(row[arrival]),
            )
        )
    return found


def _column(table: Any, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in table.columns), None)
