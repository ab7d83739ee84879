"""Throughput tables as people hand them in: read, checked, every fault listed at once.

`read_table` takes Parquet or CSV; `check_table` gives columns of known types or raises
`InvalidCatalog` with all faults; `describe_jobs` collects the descriptors of each job named in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from gogh_core.domain import Descriptors, JobKind
from gogh_core.errors import InvalidCatalog, InvalidInput

__all__ = ["ABSURD_HIGH", "ABSURD_LOW", "check_table", "describe_jobs", "read_table"]

# Steps per second outside these bounds are no measurement of a training or inference job.
ABSURD_LOW, ABSURD_HIGH = 1e-9, 1e9
_SHOWN = 5

_TEXT = (
    "gpu_type", "job_type", "model", "partner_job_type", "partner_model", "unit",
    "source", "family", "kind", "precision", "partner_family", "partner_kind", "partner_precision",
    "owner",
)  # fmt: skip
_FACTS = ("parameters", "flops_per_step", "bytes_per_step", "memory_bytes")
_NUMBER = (
    "batch_size", "scale_factor", "partner_batch_size", "throughput", "partner_throughput",
    "spread", "samples", "power_w", "power_limit_w",
    *_FACTS, *(f"partner_{name}" for name in _FACTS),
)  # fmt: skip
_NAME = re.compile(r"^(?P<model>.*?)\s*\(batch size (?P<batch>\d+)\)\s*$")


def read_table(path: Path) -> pa.Table:
    """A Parquet or CSV file as it stands; anything else is refused with one line."""
    if not path.exists():
        raise InvalidInput("there is no such file", where=str(path))
    try:
        if path.suffix.lower() in (".csv", ".txt"):
            text = {name: pa.string() for name in _TEXT}
            options = pa_csv.ConvertOptions(column_types=text, strings_can_be_null=True)
            return pa_csv.read_csv(path, convert_options=options)
        return pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        line = str(error).splitlines()[0]
        raise InvalidCatalog(
            [f"not a readable Parquet or CSV file ({line})"], where=str(path)
        ) from error


def _rows(mask: np.ndarray[Any, Any]) -> str:
    where = np.flatnonzero(mask)
    shown = ", ".join(str(int(row) + 1) for row in where[:_SHOWN])
    more = f" and {len(where) - _SHOWN} more" if len(where) > _SHOWN else ""
    return f"row{'s' if len(where) > 1 else ''} {shown}{more}"


def _number(column: pa.ChunkedArray) -> np.ndarray[Any, Any] | None:
    """As float64 with NaN for missing; None when it holds no numbers."""
    try:
        return np.asarray(pc.cast(column, pa.float64()).to_numpy(), dtype=float)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def check_table(
    table: pa.Table,
    *,
    where: str,
    measured: bool,
    required: Iterable[str] = ("gpu_type", "job_type"),
) -> pd.DataFrame:
    """The known columns with known types; every fault of the table is listed in one error.

    With `measured` throughputs must be usable; queries need none. Row numbers count from 1.
    """
    faults: list[str] = []
    for name in required:
        if name not in table.column_names:
            faults.append(f"column {name!r} is missing")
    if measured and "throughput" not in table.column_names:
        faults.append("column 'throughput' is missing")
    if faults:
        raise InvalidCatalog(faults, where=where, todo="columns as in docs/estimation.md")
    data = _typed(table, faults)
    faults += _faults(data, measured=measured)
    if faults:
        raise InvalidCatalog(faults, where=where)
    return data


def _typed(table: pa.Table, faults: list[str]) -> pd.DataFrame:
    """The known columns as categories, floats, booleans and times."""
    frame: dict[str, Any] = {}
    for name in _TEXT:
        if name in table.column_names:
            column = pc.cast(table[name], pa.string())
            coded = column.combine_chunks().dictionary_encode()
            frame[name] = pd.Categorical.from_codes(
                coded.indices.fill_null(-1).to_numpy(zero_copy_only=False),
                pd.Index(coded.dictionary.to_pylist(), dtype=object),
            )
    for name in _NUMBER:
        if name in table.column_names:
            numbers = _number(table[name])
            if numbers is None:
                faults.append(f"column {name!r} holds no numbers")
                numbers = np.full(table.num_rows, np.nan)
            frame[name] = numbers
    for name in ("feasible", "consolidated", "alone"):
        if name in table.column_names:
            try:
                frame[name] = pc.cast(table[name], pa.bool_()).to_pandas()
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                faults.append(f"column {name!r} holds no true or false")
    for name in ("time", "window_end"):
        if name in table.column_names:
            frame["time"] = pd.to_datetime(table[name].to_pandas(), utc=True, errors="coerce")
    return pd.DataFrame(frame, index=pd.RangeIndex(table.num_rows))


def _faults(data: pd.DataFrame, *, measured: bool) -> list[str]:
    faults: list[str] = []
    for name in ("gpu_type", "job_type"):
        empty = (data[name].isna() | (data[name] == "")).to_numpy()
        if empty.any():
            faults.append(f"{name} is empty in {_rows(empty)}")
    for name in ("batch_size", "partner_batch_size", "scale_factor", *_FACTS):
        if name in data:
            values = data[name].to_numpy()
            bad = np.isinf(values) | (values <= 0)
            if bad.any():
                faults.append(f"{name} is not above 0 in {_rows(bad)}")
    if "scale_factor" in data:
        gpus = data["scale_factor"].to_numpy()
        broken = np.isfinite(gpus) & (gpus > 0) & (gpus != np.round(gpus))
        if broken.any():
            faults.append(f"scale_factor is no whole number of GPUs in {_rows(broken)}")
    if measured:
        faults += _throughput_faults(data)
    if "unit" in data:
        units = data[["job_type", "unit"]].dropna().drop_duplicates()
        for job, several in units.groupby("job_type", observed=True)["unit"]:
            if len(several) > 1:
                faults.append(
                    f"job_type {job!r} has several units ({', '.join(sorted(map(str, several)))})"
                )
    return faults


def _throughput_faults(data: pd.DataFrame) -> list[str]:
    faults = []
    ran = np.ones(len(data), bool)
    if "feasible" in data:
        ran = data["feasible"].fillna(True).to_numpy(bool)
    names = ["throughput"]
    partner = np.zeros(len(data), bool)
    if "partner_job_type" in data:
        partner = data["partner_job_type"].notna().to_numpy()
        if "partner_throughput" in data:
            names.append("partner_throughput")
    for name in names:
        values = data[name].to_numpy()
        if name == "throughput":
            asked = ran if "feasible" in data else ran & ~(values == 0)
        else:
            asked = ran & partner & ~np.isnan(values) & ~((values == 0) & ("feasible" not in data))
        with np.errstate(invalid="ignore"):
            kinds = {
                "missing": asked & np.isnan(values),
                "infinite": asked & np.isinf(values),
                "not above 0 although it ran": asked & (values <= 0) & ~np.isinf(values),
                f"absurd (outside {ABSURD_LOW:g} to {ABSURD_HIGH:g})": asked
                & (values > 0)
                & np.isfinite(values)
                & ((values < ABSURD_LOW) | (values > ABSURD_HIGH)),
            }
        for kind, bad in kinds.items():
            if bad.any():
                faults.append(f"{name} is {kind} in {_rows(bad)}")
    return faults


def _text(value: Any) -> str | None:
    return None if value is None or (isinstance(value, float) and np.isnan(value)) else str(value)


def _positive(value: Any) -> float | None:
    return float(value) if value is not None and np.isfinite(value) and value > 0 else None


def describe_jobs(data: pd.DataFrame) -> dict[str, tuple[Descriptors, str]]:
    """Descriptors and unit of each job named in the table, as row or as partner."""
    found: dict[str, tuple[Descriptors, str]] = {}
    for prefix in ("", "partner_"):
        key = f"{prefix}job_type"
        if key not in data:
            continue
        names = ("model", "batch_size", "family", "kind", "precision", *_FACTS)
        present = [n for n in names if f"{prefix}{n}" in data]
        columns = [key, *(f"{prefix}{n}" for n in present)] + (["unit"] if "unit" in data else [])
        first = data[columns].dropna(subset=[key]).drop_duplicates(subset=[key])
        for row in first.to_dict("records"):
            name = str(row[key])
            if name not in found:
                raw = {n: row[f"{prefix}{n}"] for n in present}
                found[name] = (_descriptors(name, raw), _text(row.get("unit")) or "steps/s")
    return found


def _descriptors(name: str, raw: dict[str, Any]) -> Descriptors:
    parsed = _NAME.match(name)
    model = _text(raw.get("model")) or (parsed["model"] if parsed else name)
    batch = _positive(raw.get("batch_size"))
    if batch is None and parsed:
        batch = float(parsed["batch"])
    kind = _text(raw.get("kind"))
    return Descriptors(
        model=model.strip() or name,
        batch_size=round(batch) if batch and batch >= 1 else None,
        kind=JobKind.INFERENCE if kind == "inference" else JobKind.TRAINING,
        family=_text(raw.get("family")),
        precision=_text(raw.get("precision")),
        parameters=_positive(raw.get("parameters")),
        flops_per_step=_positive(raw.get("flops_per_step")),
        bytes_per_step=_positive(raw.get("bytes_per_step")),
        memory_bytes=_positive(raw.get("memory_bytes")),
    )
