"""Watts of an option, alone and shared, and what a power limit does to watts and speed.

A Gaussian process over (job, column) on standardised draw: a measured cell, siblings, the same job
on other GPU types and hardware facts speak in that order of nearness. What a limit does is taken
from measured curves of the jobs most alike. No public measurement exists of two jobs on one GPU:
what they draw together is an **assumption** (see `shared_w`) until telemetry of shared GPUs
corrects it through `shared_factor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from gogh_core.estimation.catalog import Catalog, Column
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.process import Conditioned, JobKernels, Observed, fit_variances
from gogh_core.estimation.roofline import column_likeness
from gogh_core.hardware import find

__all__ = ["PowerModel"]

Array = np.ndarray[Any, Any]

# Share of (maximum - idle) that a job draws where nothing is known, and its spread: half to nearly
# all of it, as published training profiles do.
USUAL_SHARE, USUAL_SPREAD = 0.6, 0.25
# Two jobs on one GPU: the second adds this part of its own share. Assumption, not measured.
SECOND_ADDS = 0.5
# A limit is offered where it saves at least this share of a step's energy; besides the best one,
# the best that keeps this share of the speed.
_LEAST_SAVING, _GENTLE_SPEED = 0.02, 0.95
# Speed under a limit below the free draw, where no curve was measured: the share of dynamic power
# to this exponent (power grows faster than the clock).
_BLIND_EXPONENT = 0.5
# Prior variances in the order of `JobKernels.between`: family, near, far, job, slope, facts.
_START = np.array([0.6, 0.05, 0.1, 0.02, 0.5, 0.02, 0.1, 0.01, 0.01, 0.005, 0.2, 0.02])
# Jobs that two columns must have in common; how firmly a line between them is held to its prior
# (shift, slope), in families; and its least spread, as a share of the range.
_FEWEST_IN_LINE, _LINE_HELD, _LINE_FLOOR = 4, (0.02, 0.1), 0.03
_MOST_CELLS, _FIT_CELLS = 1500, 150


@dataclass(frozen=True)
class PowerModel:
    """Draw of one GPU of each column under each job, and what limits do."""

    columns: tuple[Column, ...]
    idle_w: Array
    max_w: Array
    free_w: Array
    """Draw without a limit, one GPU, [jobs, columns]."""
    sd_w: Array
    curves: dict[tuple[int, int], tuple[Array, Array, Array]]
    """Of (job, column): limits, watts and relative speeds measured."""
    alike: Array
    """Likeness of jobs, [jobs, jobs], for curves that were not measured."""
    shared_factor: float = 1.0
    """Measured over assumed draw of shared GPUs; 1 until telemetry says otherwise."""

    @classmethod
    def of(cls, catalog: Catalog, jobs: JobSet, columns: Sequence[Column]) -> PowerModel:
        """From telemetry in the catalog where there is any, else from hardware facts."""
        idle = np.array([_facts(column)[0] for column in columns])
        top = np.array([_facts(column)[1] for column in columns])
        gpus = np.array([column.gpus for column in columns])
        power = catalog.power
        alone = power[power["partner"] < 0] if len(power) else power
        kernels = jobs.kernels()
        alike = 0.2 * kernels[0] + 0.6 * kernels[1] + 0.2 * kernels[5] + 10 * kernels[3]
        free, sd = _free(alone, jobs, tuple(columns), (idle, top, gpus))
        model = cls(tuple(columns), idle, top, free, sd, _curves(alone, gpus), alike)
        return model._with_shared(power, gpus)

    def _with_shared(self, power: pd.DataFrame, gpus: Array) -> PowerModel:
        """Telemetry of shared GPUs corrects the assumption."""
        both = power[power["partner"] >= 0] if len(power) else power
        if len(both) < 3:
            return self
        job, partner = both["job"].to_numpy(), both["partner"].to_numpy()
        column = both["column"].to_numpy()
        ratio = both["power_w"].to_numpy() / self.shared_w(job, partner, column)
        weight = len(both) / (len(both) + 10.0)
        factor = float(np.clip(np.exp(weight * np.log(np.median(ratio))), 0.5, 1.5))
        parts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return PowerModel(**{**parts, "shared_factor": factor})

    def alone_w(self, job: Array, column: Array, limit_w: Array | None = None) -> Array:
        """Draw of all GPUs of the option, idle part included."""
        draw = self.free_w[job, column]
        if limit_w is not None:
            draw = np.minimum(draw, np.maximum(limit_w, self.idle_w[column]))
        return np.asarray(draw * self._gpus()[column])

    def shared_w(
        self, job: Array, partner: Array, column: Array, limit_w: Array | None = None
    ) -> Array:
        """**Assumption**: the larger dynamic draw plus half of the smaller, up to the maximum."""
        idle, top = self.idle_w[column], self.max_w[column]
        a = self.free_w[job, column] - idle
        b = self.free_w[partner, column] - idle
        draw = np.maximum(a, b) + SECOND_ADDS * np.minimum(a, b)
        draw = np.minimum(idle + draw * self.shared_factor, top)
        if limit_w is not None:
            draw = np.minimum(draw, np.maximum(limit_w, idle))
        return np.asarray(draw * self._gpus()[column])

    def _gpus(self) -> Array:
        return np.array([column.gpus for column in self.columns])

    def under(self, jobs: Array, column: int, limits_w: Array) -> tuple[Array, Array]:
        """Draw of one GPU, and speed over that without a limit, [jobs, limits].

        From the measured curves most alike and the blind rule.
        """
        limits = np.asarray(limits_w, float)[None]
        free, idle = self.free_w[jobs, column][:, None], float(self.idle_w[column])
        capped = np.clip((limits - idle) / np.maximum(free - idle, 1.0), 0.02, 1.0)
        total = np.full((len(jobs), 1), 0.3)
        log_speed = 0.3 * _BLIND_EXPONENT * np.log(capped)
        log_draw = 0.3 * np.log(np.minimum(free, limits) / free)
        if self.curves:
            weight = np.stack(
                [
                    self.alike[jobs, other] * self._nearness(place, column)
                    for other, place in self.curves
                ],
                axis=1,
            )
            speeds, draws = zip(
                *(self._read(key, column, limits[0]) for key in self.curves), strict=True
            )
            log_speed = log_speed + weight @ np.array(speeds)
            log_draw = log_draw + weight @ np.array(draws)
            total = total + weight.sum(axis=1, keepdims=True)
        return free * np.exp(log_draw / total), np.exp(log_speed / total)

    def _nearness(self, place: int, column: int) -> float:
        """How much a curve of one column says of another."""
        if place == column:
            return 1.0
        return 0.5 if self.columns[place].gpu_type == self.columns[column].gpu_type else 0.05

    def _read(self, key: tuple[int, int], column: int, limits: Array) -> tuple[Array, Array]:
        """Logs of a measured curve's speed and draw, at the same limits over the maximum."""
        measured, watts, speeds = self.curves[key]
        at = limits * float(self.max_w[key[1]] / self.max_w[column])
        return (
            np.log(np.interp(at, measured, speeds)),
            np.log(np.interp(at, measured, watts) / watts[-1]),
        )

    def best_limit(self, job: int, column: int, limits_w: Sequence[float]) -> float:
        """The limit with the least energy for a step; the higher of equals."""
        limits = np.sort(np.asarray(limits_w, float))[::-1]
        draw, speed = self.under(np.array([job]), column, limits)
        return float(limits[int(np.argmin(draw[0] / np.maximum(speed[0], 1e-6)))])

    def limits_of(self, column: int) -> Array:
        """Limits that curves were measured at on the column's GPU type, ascending; often none."""
        kind = self.columns[column].gpu_type
        found = {
            float(limit)
            for (_, place), (limits, _, _) in self.curves.items()
            if self.columns[place].gpu_type == kind
            for limit in limits
        }
        return np.array(sorted(found))

    def worthwhile(self, jobs: Array, column: int) -> list[tuple[Array, Array, Array, Array]]:
        """Limits that save energy: which of the jobs, at what limit, its draw and its speed.

        Two a job at most: the limit of least energy, and the least that costs little speed.
        """
        limits = self.limits_of(column)
        if len(limits) < 2 or not len(jobs):
            return []
        draw, speed = self.under(jobs, column, limits)
        energy = draw / np.maximum(speed, 1e-6)
        saves = energy < (1 - _LEAST_SAVING) * energy[:, -1:]
        rows = np.arange(len(jobs))
        least = np.argmin(energy, axis=1)
        gentle = np.argmin(np.where(speed >= _GENTLE_SPEED, energy, np.inf), axis=1)
        out = []
        for chosen, keep in ((least, saves[rows, least]), (gentle, gentle != least)):
            some = np.flatnonzero(keep & saves[rows, chosen])
            at = chosen[some]
            watts = draw[some, at] * self.columns[column].gpus
            out.append((some, limits[at], watts, np.minimum(speed[some, at], 1.0)))
        return out


def _facts(column: Column) -> tuple[float, float]:
    gpu = find(column.gpu_type)
    return (gpu.idle_w, gpu.max_w) if gpu else (30.0, 250.0)


def _at_top(power: pd.DataFrame) -> pd.DataFrame:
    """Rows without a limit, or at the highest limit seen on the column."""
    highest = power.groupby("column")["power_limit_w"].transform("max")
    return power[power["power_limit_w"].isna() | (power["power_limit_w"] >= 0.97 * highest)]


def _free(
    alone: pd.DataFrame,
    jobs: JobSet,
    columns: tuple[Column, ...],
    facts: tuple[Array, Array, Array],
) -> tuple[Array, Array]:
    """Draw of one GPU without a limit and its standard deviation, [jobs, columns]."""
    idle, top, gpus = facts
    shape = (len(jobs.names), len(columns))
    centre = idle + USUAL_SHARE * (top - idle)
    scale = USUAL_SPREAD * (top - idle)
    if not len(alone):
        return np.broadcast_to(centre, shape).copy(), np.broadcast_to(scale, shape).copy()
    rows = _at_top(alone)
    mean = rows.groupby(["job", "column"])["power_w"].mean().reset_index()
    job, column = mean["job"].to_numpy(), mean["column"].to_numpy()
    watts = mean["power_w"].to_numpy() / gpus[column]
    for c in np.unique(column):
        mine = watts[column == c]
        count = len(mine)
        centre[c] = (np.median(mine) * count + centre[c] * 2) / (count + 2)
        scale[c] = np.sqrt((mine.var() * count + scale[c] ** 2 * 2) / (count + 2))
    value = (watts - centre[column]) / scale[column]
    seen = Observed(job, column, value, np.full(len(value), 0.002))
    kernels = JobKernels(jobs.kernels(), column_likeness(columns))
    some = seen.take(np.arange(0, len(value), int(np.ceil(len(value) / _FIT_CELLS))))
    kernel = fit_variances(kernels, some, _START, 0.002)
    if len(value) > _MOST_CELLS:
        seen = seen.take(np.arange(0, len(value), int(np.ceil(len(value) / _MOST_CELLS))))
    said, covariance = Conditioned(kernels, kernel, seen).posterior(np.arange(shape[0]), shape[1])
    sd = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 1e-6)) * scale
    free = centre + said * scale
    measured = np.full(shape, np.nan)
    measured[job, column] = watts
    span = (top - idle)[None]
    other, spread = _carried_over((measured - idle) / span, jobs.families)
    # By precision: siblings make the process sure, without them the other GPU type tells more.
    known = ~np.isnan(other)
    weight = np.where(known, sd**2 / (sd**2 + (spread * span) ** 2), 0.0)
    free = free + weight * np.where(known, idle + np.nan_to_num(other) * span - free, 0.0)
    sd = sd * np.sqrt(1 - weight)
    free = np.clip(free, idle[None] * 0.8, top[None])
    free[job, column] = watts
    return free, sd


def _carried_over(share: Array, families: Array) -> tuple[Array, Array]:
    """Shares of the range [jobs, columns] told from the job's other columns, and their spread.

    Two columns compare by a line through the jobs measured on both, families weighing the same,
    held to slope one; NaN where the job or the two columns have nothing in common.
    """
    count = share.shape[1]
    total = np.zeros(share.shape)
    precision = np.zeros(share.shape)
    for into in range(count):
        for source in range(count):
            both = ~np.isnan(share[:, into]) & ~np.isnan(share[:, source])
            if into == source or both.sum() < _FEWEST_IN_LINE:
                continue
            x, y = share[both, source], share[both, into]
            _, family, size = np.unique(families[both], return_inverse=True, return_counts=True)
            weight = 1.0 / size[family]
            rows = np.stack([np.ones(len(x)), x], axis=1)
            prior = np.array([np.median(y - x), 1.0])
            held = np.diag(_LINE_HELD)
            line = np.linalg.solve(
                rows.T @ (weight[:, None] * rows) + held, rows.T @ (weight * y) + held @ prior
            )
            missed = float((weight * (y - rows @ line) ** 2).sum() / weight.sum())
            sure = 1 / (missed * (1 + 4 / len(size)) + _LINE_FLOOR**2)
            mine = np.isnan(share[:, into]) & ~np.isnan(share[:, source])
            total[mine, into] += sure * (line[0] + line[1] * share[mine, source])
            precision[mine, into] += sure
    with np.errstate(invalid="ignore", divide="ignore"):
        return total / precision, np.sqrt(1 / precision)


def _curves(alone: pd.DataFrame, gpus: Array) -> dict[tuple[int, int], tuple[Array, Array, Array]]:
    """Measured watts and relative speeds by limit, where a cell has at least three limits."""
    out: dict[tuple[int, int], tuple[Array, Array, Array]] = {}
    if not len(alone):
        return out
    limited = alone.dropna(subset=["power_limit_w"])
    limited = limited[limited["throughput"] > 0]
    for key, some in limited.groupby(["job", "column"]):
        job, column = (int(part) for part in np.asarray(key))
        table = some.groupby("power_limit_w")[["power_w", "throughput"]].mean().sort_index()
        if len(table) >= 3:
            speeds = table["throughput"].to_numpy()
            watts = table["power_w"].to_numpy() / gpus[column]
            out[job, column] = (
                table.index.to_numpy(dtype=float),
                watts,
                np.clip(speeds / speeds[-1], 0.05, 1.2),
            )
    return out
