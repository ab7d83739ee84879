"""The newest problems and plans as files, so that any plan can be verified and explained later.

`problems/<plan>/problem.json`, `options.parquet` and `plan.json` below the home, in the formats of
`gogh plan` and `gogh verify`. The newest `KEEP` are kept.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gogh_core.allocation import OptionTable, Problem
from gogh_core.domain import Plan
from gogh_core.errors import InvalidInput
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch, file_errors, whole_or_gone

__all__ = ["keep_files", "running_files"]

KEEP = 24


def keep_files(settings: Settings, problem: Problem, plan: Plan, *, name: str) -> Path:
    """Write the problem and the plan as it left the solver; the oldest ones go."""
    root = settings.below_home(Path("problems"))
    folder = root / name
    fresh = root / f".{name}.{os.getpid()}"
    with file_errors(folder), whole_or_gone(fresh):
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        raw = {**problem.to_dict(options=False), "options": {"file": "options.parquet"}}
        (fresh / "problem.json").write_text(json.dumps(raw), encoding="utf-8")
        pq.write_table(_columns(problem.table), fresh / "options.parquet")
        (fresh / "plan.json").write_text(plan.to_json(), encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        fresh.replace(folder)
    kept = sorted((p for p in root.iterdir() if not p.name.startswith(".")), reverse=True)
    for old in kept[KEEP:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def running_files(settings: Settings, store: Store) -> tuple[Path, Path]:
    """Problem and plan of the plan that runs now."""
    with store.read() as connection:
        rows = fetch(connection, "planning_last_plan").to_pylist()
    if not rows:
        raise InvalidInput("no plan is running yet", todo="run a cycle: `gogh replan`")
    folder = settings.below_home(Path("problems")) / rows[0]["plan_id"]
    if not (folder / "problem.json").exists():
        raise InvalidInput(
            "the files of the running plan are gone", where=str(folder), todo="make a new plan"
        )
    return folder / "problem.json", folder / "plan.json"


def _columns(table: OptionTable) -> pa.Table:
    """The options in the columns of a problem file."""
    paired = table.class_b >= 0
    lengths = 1 + paired.astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    first, second = offsets[:-1], offsets[:-1][paired] + 1
    classes = np.empty(int(offsets[-1]), dtype=np.int64)
    rates = np.empty(int(offsets[-1]), dtype=np.float64)
    classes[first], rates[first] = table.class_a, table.throughput_a
    classes[second], rates[second] = table.class_b[paired], table.throughput_b[paired]
    names = pa.array(table.classes, pa.string()).take(pa.array(classes))
    return pa.table(
        {
            "gpu_type": pa.array(table.types, pa.string()).take(pa.array(table.type_id)),
            "gpus": table.gpus,
            "classes": pa.ListArray.from_arrays(pa.array(offsets), names),
            "throughput": pa.ListArray.from_arrays(pa.array(offsets), pa.array(rates)),
            "power_w": table.power_w,
            "power_limit_w": pa.array(table.limit_w, from_pandas=True),
        }
    )
