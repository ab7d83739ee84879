"""The catalog: everything measured so far, by job class, column and partner, in logarithms.

A *column* is what a job can run on: (GPU type, GPUs, whether the gang is spread over nodes). A
*cell* is one job on one column, alone or next to a partner; a row with a partner measures both
jobs. Repeated measurements of a cell are combined by weight (old ones fade), and a cell whose
newest measurements left the older ones behind is listed in `drifts`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa

from gogh_core.domain import Descriptors
from gogh_core.estimation.owners import Doubt, settle
from gogh_core.estimation.tables import check_table, describe_jobs, read_table

if TYPE_CHECKING:
    from gogh_core.store import Store

__all__ = ["Catalog", "Cells", "Column", "Drift", "load_catalog"]

Array = np.ndarray[Any, Any]

# Two campaigns on the same hardware differ by 4-5 % on the same cell: no cell is surer than that.
MEASUREMENT_SD = 0.045
# The newest measurements have drifted when they leave the older ones by this many spreads.
DRIFT_SIGMAS = 4.0


@dataclass(frozen=True, slots=True)
class Column:
    """What a job can run on."""

    gpu_type: str
    gpus: int = 1
    apart: bool = False
    """The gang's GPUs sit on several nodes."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Measured cells, one row each, sorted by key; `partner` is -1 when alone."""

    job: Array
    partner: Array
    column: Array
    log: Array
    variance: Array
    """Of the log mean, measurement noise included."""
    count: Array

    def __len__(self) -> int:
        return len(self.job)

    def take(self, which: Array) -> Cells:
        """Some of the cells."""
        return Cells(*(getattr(self, name)[which] for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Drift:
    """A cell whose newest measurements left the older ones behind."""

    job_class: str
    gpu_type: str
    partner_class: str | None
    ratio: float
    """Newest over older throughput."""


@dataclass(frozen=True)
class Catalog:
    """Measured cells and the jobs and columns they are about."""

    names: tuple[str, ...]
    jobs: tuple[Descriptors, ...]
    units: tuple[str, ...]
    columns: tuple[Column, ...]
    cells: Cells
    refused_job: Array
    refused_partner: Array
    refused_column: Array
    """Cells that did not run (and never did), each unordered pair once."""
    drifts: tuple[Drift, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    """What owners reported and is not used, or only for their own classes."""
    power: pd.DataFrame = field(default_factory=pd.DataFrame, compare=False)
    """Measured watts: job, column, partner, power_w, power_limit_w; empty without any."""
    sha256: str = ""

    @classmethod
    def empty(cls) -> Self:
        """A catalog without any measurement."""
        none = np.zeros(0, int)
        zero = np.zeros(0)
        return cls((), (), (), (), Cells(none, none, none, zero, zero, zero), none, none, none)

    @classmethod
    def from_table(
        cls,
        table: pa.Table,
        *,
        where: str = "catalog",
        now: datetime | None = None,
        half_life_days: float | None = None,
    ) -> Self:
        """From a throughput table; every fault is listed in one `InvalidCatalog`."""
        data = check_table(table, where=where, measured=True)
        if not len(data):
            return cls.empty()
        return cls._from_frame(data, now=now, half_life_days=half_life_days)

    @classmethod
    def from_store(cls, store: Store, *, now: datetime, half_life_days: float) -> Self:
        """From the store's observations with the descriptors of their jobs."""
        from gogh_core.store import fetch

        with store.read() as connection:
            table = fetch(connection, "estimation_observations")
        return cls.from_table(table, where="observations", now=now, half_life_days=half_life_days)

    @classmethod
    def _from_frame(
        cls, data: pd.DataFrame, *, now: datetime | None, half_life_days: float | None
    ) -> Self:
        described = describe_jobs(data)
        names = tuple(sorted(described))
        index = {name: i for i, name in enumerate(names)}
        column_of, columns = _columns(data)
        job = _codes(data["job_type"], index)
        alone = np.full(len(data), -1)
        partner = _codes(data["partner_job_type"], index) if "partner_job_type" in data else alone
        throughput = data["throughput"].to_numpy()
        ran = data["feasible"].fillna(True).to_numpy(bool) if "feasible" in data else throughput > 0
        weight = _weights(data, now, half_life_days)
        spread = _relative_spread(data, throughput)
        both = "partner_throughput" in data
        other = data["partner_throughput"].to_numpy() if both else np.full(len(data), np.nan)
        free = ~_limited(data, column_of)
        mirrored = ran & (partner >= 0) & (other > 0) & free
        own = ran & (throughput > 0) & free
        frame = pd.DataFrame(
            {
                "job": np.concatenate([job[own], partner[mirrored]]),
                "partner": np.concatenate([partner[own], job[mirrored]]),
                "column": np.concatenate([column_of[own], column_of[mirrored]]),
                "log": np.log(np.concatenate([throughput[own], other[mirrored]])),
                "weight": np.concatenate([weight[own], weight[mirrored]]),
                "spread": np.concatenate([spread[own], spread[mirrored]]),
            }
        )
        if "time" in data:
            time = data["time"].to_numpy()
            frame["time"] = np.concatenate([time[own], time[mirrored]])
        doubts: tuple[Doubt, ...] = ()
        if "owner" in data and data["owner"].notna().any():
            from gogh_core.estimation.roofline import facts_log

            owner = data["owner"].astype(object).fillna("").to_numpy()
            mate = np.where(partner >= 0, owner, "")
            frame["owner"] = np.concatenate([owner[own], mate[mirrored]])
            lone = data["alone"].fillna(False).to_numpy(bool) if "alone" in data else ran & False
            frame["alone"] = np.concatenate([lone[own], lone[mirrored]])
            facts = facts_log(tuple(described[name][0] for name in names), columns)
            frame, found = settle(frame, facts)
            doubts = tuple(found)
        frame, drifted = _fade_drifted(frame)
        cells = _combine(frame)
        drifts = tuple(
            Drift(
                names[int(job_)],
                columns[int(column_)].gpu_type,
                names[int(mate)] if mate >= 0 else None,
                float(np.exp(shift)),
            )
            for job_, mate, column_, shift in drifted[
                ["job", "partner", "column", "shift"]
            ].to_numpy()
        )
        refused = _refused(job[~ran], partner[~ran], column_of[~ran], cells)
        power = _power(data, job, partner, column_of, throughput)
        digest = hashlib.sha256()
        for part in (cells.job, cells.partner, cells.column, cells.log, *refused):
            digest.update(np.ascontiguousarray(part).tobytes())
        digest.update("\0".join(names).encode())
        return cls(
            names,
            tuple(described[name][0] for name in names),
            tuple(described[name][1] for name in names),
            columns,
            cells,
            *refused,
            drifts=drifts,
            doubts=doubts,
            power=power,
            sha256=digest.hexdigest(),
        )

    def believed(self) -> Catalog:
        """Without cells that serve their own class only: what other jobs are estimated from."""
        lone = [(doubt.job, doubt.partner, doubt.column) for doubt in self.doubts if doubt.used]
        if not lone:
            return self
        job, partner, column = np.array(lone).T
        at = self.find(job, partner, column)
        stays = np.ones(len(self.cells), bool)
        stays[at[at >= 0]] = False
        return replace(self, cells=self.cells.take(np.flatnonzero(stays)))

    def index(self) -> Mapping[str, int]:
        """Job class to its number."""
        return {name: i for i, name in enumerate(self.names)}

    def keys(self, job: Array, partner: Array, column: Array) -> Array:
        """One number for a cell; jobs and columns that are not in the catalog are -1."""
        size = len(self.names) + 1
        key = (job * size + partner + 1) * max(len(self.columns), 1) + column
        return np.where((job < 0) | (column < 0) | (partner < -1), -1, key)

    def find(self, job: Array, partner: Array, column: Array) -> Array:
        """The number of each cell, -1 where it was not measured; partner -2 is nobody we know."""
        mine = self.keys(self.cells.job, self.cells.partner, self.cells.column)
        asked = self.keys(job, partner, column)
        if not len(mine):
            return np.full(len(asked), -1)
        at = np.minimum(np.searchsorted(mine, asked), len(mine) - 1)
        return np.where((mine[at] == asked) & (asked >= 0), at, -1)

    def without(self, hidden: Sequence[int], *, keep: Array | None = None) -> Catalog:
        """The catalog as if these jobs had never been seen, as row or as partner.

        `keep` are numbers of cells that stay nevertheless: what has been revealed.
        """
        gone = np.zeros(len(self.names), bool)
        gone[list(hidden)] = True
        cells = self.cells
        stays = ~gone[cells.job] & ((cells.partner < 0) | ~gone[cells.partner])
        if keep is not None:
            stays[keep] = True
        refused = ~gone[self.refused_job] & (
            (self.refused_partner < 0) | ~gone[self.refused_partner]
        )
        power = self.power
        if len(power):
            power = power[~gone[power["job"].to_numpy()]]
        return Catalog(
            self.names,
            self.jobs,
            self.units,
            self.columns,
            cells.take(np.flatnonzero(stays)),
            self.refused_job[refused],
            self.refused_partner[refused],
            self.refused_column[refused],
            power=power,
            sha256=self.sha256,
        )


def load_catalog(path: Path) -> Catalog:
    """A catalog from a Parquet or CSV throughput table."""
    return Catalog.from_table(read_table(path), where=str(path))


def _codes(column: pd.Series[Any], index: Mapping[str, int]) -> Array:
    """Numbers of the names in a categorical column; missing is -1."""
    lookup = np.array([index.get(str(name), -1) for name in column.cat.categories] + [-1])
    return lookup[column.cat.codes.to_numpy()]


def _columns(data: pd.DataFrame) -> tuple[Array, tuple[Column, ...]]:
    gpus = np.ones(len(data), int)
    if "scale_factor" in data:
        gpus = data["scale_factor"].fillna(1).to_numpy().astype(int)
    apart = np.zeros(len(data), bool)
    if "consolidated" in data:
        apart = (data["consolidated"].fillna(True).to_numpy(bool) == 0) & (gpus > 1)
    kinds = data["gpu_type"].cat
    codes = (kinds.codes.to_numpy().astype(np.int64) * (gpus.max() + 1) + gpus) * 2 + apart
    values, first, inverse = np.unique(codes, return_index=True, return_inverse=True)
    columns = [
        Column(str(kinds.categories[kinds.codes.iloc[i]]), int(gpus[i]), bool(apart[i]))
        for i in first
    ]
    order = sorted(range(len(values)), key=lambda i: (columns[i].gpu_type, columns[i].gpus, i))
    rank = np.empty(len(values), int)
    rank[order] = np.arange(len(values))
    return rank[inverse], tuple(columns[i] for i in order)


def _limited(data: pd.DataFrame, column: Array) -> Array:
    """Rows under a limit below the highest one of the column: they tell of power only."""
    if "power_limit_w" not in data:
        return np.zeros(len(data), bool)
    limit = data["power_limit_w"].to_numpy()
    top = np.zeros(int(column.max()) + 1)
    np.maximum.at(top, column, np.nan_to_num(limit))
    return np.asarray(np.nan_to_num(limit, nan=np.inf) < 0.97 * top[column])


def _weights(data: pd.DataFrame, now: datetime | None, half_life_days: float | None) -> Array:
    """One for each sample behind a row, halved with every half-life of age."""
    weight = np.ones(len(data))
    if "samples" in data:
        weight = np.clip(np.nan_to_num(data["samples"].to_numpy(), nan=1.0), 1, 50)
    if now is not None and half_life_days and "time" in data:
        age = (pd.Timestamp(now) - data["time"]).dt.total_seconds().to_numpy() / 86_400
        weight = weight * 0.5 ** (np.clip(np.nan_to_num(age), 0, None) / half_life_days)
    return weight


def _relative_spread(data: pd.DataFrame, throughput: Array) -> Array:
    if "spread" not in data:
        return np.full(len(data), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.clip(data["spread"].to_numpy() / throughput, 0, 2))


def _fade_drifted(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Where the newer half of a cell's rows left the older half, the older half counts a tenth."""
    nothing = frame.iloc[:0].assign(shift=0.0)
    if "time" not in frame:
        return frame, nothing
    keys = ["job", "partner", "column"]
    frame = frame.sort_values([*keys, "time"], kind="stable").reset_index(drop=True)
    group = frame.groupby(keys, sort=False)
    size = group["log"].transform("size").to_numpy()
    newer = group.cumcount().to_numpy() >= size // 2
    frame["newer"] = newer
    halves = frame.groupby([*keys, "newer"])["log"].agg(["median", "std", "size"]).unstack("newer")
    if halves.empty or (("median", False) not in halves) or (("median", True) not in halves):
        return frame.drop(columns="newer"), nothing
    spread = np.hypot(
        halves[("std", False)].fillna(0) / np.sqrt(halves[("size", False)].fillna(1)),
        halves[("std", True)].fillna(0) / np.sqrt(halves[("size", True)].fillna(1)),
    )
    shift = halves[("median", True)] - halves[("median", False)]
    enough = (halves[("size", False)] >= 2) & (halves[("size", True)] >= 2)
    moved = shift[enough & (shift.abs() > DRIFT_SIGMAS * np.maximum(spread, MEASUREMENT_SD))]
    drifted = moved.rename("shift").reset_index()
    joined = frame.merge(drifted, on=keys, how="left")
    left = joined["shift"].notna().to_numpy() & ~newer
    frame.loc[left, "weight"] *= 0.1
    return frame.drop(columns="newer"), drifted


def _combine(frame: pd.DataFrame) -> Cells:
    """One row for each cell: weighted mean in logs, variance of that mean, how many rows."""
    keys = ["job", "partner", "column"]
    weighted = frame.assign(
        wx=frame["weight"] * frame["log"],
        wxx=frame["weight"] * frame["log"] ** 2,
        ws=frame["weight"] * frame["spread"].fillna(0) ** 2,
        one=1.0,
    )
    total = weighted.groupby(keys, sort=True)[["weight", "wx", "wxx", "ws", "one"]].sum()
    mean = total["wx"] / total["weight"]
    between = np.clip(total["wxx"] / total["weight"] - mean**2, 0, None)
    count = total["one"].to_numpy()
    variance = (between + total["ws"] / total["weight"]).to_numpy() / np.sqrt(count)
    faded = MEASUREMENT_SD**2 / np.clip(total["weight"].to_numpy(), 1e-3, 1.0)
    index = total.index.to_frame()
    return Cells(
        index["job"].to_numpy(),
        index["partner"].to_numpy(),
        index["column"].to_numpy(),
        mean.to_numpy(),
        np.clip(variance + faded, None, 4.0),
        count,
    )


def _refused(job: Array, partner: Array, column: Array, cells: Cells) -> tuple[Array, Array, Array]:
    """Unordered pairs (or single jobs, partner -1) that did not run; a measurement overrules."""
    alone = partner < 0
    low = np.where(alone, job, np.minimum(job, partner))
    high = np.where(alone, -1, np.maximum(job, partner))
    ran = set(
        zip(
            np.where(cells.partner < 0, cells.job, np.minimum(cells.job, cells.partner)).tolist(),
            np.where(cells.partner < 0, -1, np.maximum(cells.job, cells.partner)).tolist(),
            cells.column.tolist(),
            strict=True,
        )
    ) if len(job) else set()  # fmt: skip
    rows = sorted(set(zip(low.tolist(), high.tolist(), column.tolist(), strict=True)) - ran)
    found = np.array(rows, int).reshape(-1, 3)
    return found[:, 0], found[:, 1], found[:, 2]


def _power(
    data: pd.DataFrame, job: Array, partner: Array, column: Array, throughput: Array
) -> pd.DataFrame:
    if "power_w" not in data:
        return pd.DataFrame()
    power = pd.DataFrame(
        {
            "job": job,
            "partner": partner,
            "column": column,
            "throughput": throughput,
            "power_w": data["power_w"].to_numpy(),
            "power_limit_w": data["power_limit_w"].to_numpy()
            if "power_limit_w" in data
            else np.nan,
        }
    )
    good: pd.DataFrame = power[(power["power_w"] > 0) & np.isfinite(power["power_w"])]
    return good.reset_index(drop=True)
