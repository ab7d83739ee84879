"""Everything a planner may choose from: classes alone, under power limits, and in pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gogh_core.estimation.catalog import Column
from gogh_core.estimation.power import PowerModel
from gogh_core.estimation.view import NETWORKS, View, chances

__all__ = ["option_table"]

Array = np.ndarray[Any, Any]
# A column's number, and what the planner calls it.
Place = tuple[int, Column]


def option_table(
    view: View,
    power: PowerModel,
    who: Array,
    own: Sequence[Place],
    single: Sequence[Place],
    z: float,
) -> pa.Table:
    """Classes `who` alone on the columns `own`, and each two of them on the columns `single`."""
    names = pa.array([view.jobs.names[i] for i in who], pa.string())
    parts: list[pa.Table] = []
    every = np.arange(len(who))
    for column, name in own:
        free = _Options.alone(view, power, who, every, column, z)
        parts.append(free.table(name, names))
        for some, limit, watts, speed in power.worthwhile(who, column):
            parts.append(free.limited(some, limit, watts, speed).table(name, names))
    first, second = np.triu_indices(len(who)) if single else (every[:0], every[:0])
    for column, name in single:
        both = _Options.shared(view, power, who, (first, second), column, z)
        parts.append(both.table(name, names))
    return pa.concat_tables(parts).unify_dictionaries()


@dataclass(frozen=True)
class _Options:
    """Options on one column: numbers of classes, throughputs (low and mean), watts, chances."""

    column: int
    a: Array
    b: Array | None
    low: tuple[Array, Array | None]
    mean: tuple[Array, Array | None]
    watts: Array
    chance: Array
    network: Array
    limit: Array | None = None

    @classmethod
    def alone(
        cls, view: View, power: PowerModel, who: Array, a: Array, column: int, z: float
    ) -> _Options:
        job, place = who[a], np.full(len(a), column)
        said = view.alone(job, place)
        nobody = np.full(len(a), -1)
        hit = view.measured(job, nobody, place) >= 0
        chance, network = chances(view, job, nobody, place, hit, view.known()[job])
        watts = power.alone_w(job, place)
        low, mean = (said.quantile(-z), None), (said.estimate, None)
        return cls(column, a, None, low, mean, watts, chance, network)

    @classmethod
    def shared(
        cls,
        view: View,
        power: PowerModel,
        who: Array,
        pair: tuple[Array, Array],
        column: int,
        z: float,
    ) -> _Options:
        job, partner, place = who[pair[0]], who[pair[1]], np.full(len(pair[0]), column)
        own, theirs = view.shared(job, partner, place), view.shared(partner, job, place)
        hit = view.measured(job, partner, place) >= 0
        hit &= view.measured(partner, job, place) >= 0
        known = view.known()
        chance, network = chances(view, job, partner, place, hit, known[job] & known[partner])
        low, mean = (own.quantile(-z), theirs.quantile(-z)), (own.estimate, theirs.estimate)
        watts = power.shared_w(job, partner, place)
        return cls(column, *pair, low, mean, watts, chance, network)

    def limited(self, some: Array, limit: Array, watts: Array, speed: Array) -> _Options:
        """Some of the options alone under a power limit."""
        return _Options(
            self.column, self.a[some], None, (self.low[0][some] * speed, None),
            (self.mean[0][some] * speed, None), watts, self.chance[some],
            # A measured speed tells of the free GPU; under a limit it is estimated from it.
            np.maximum(self.network[some], 1).astype(np.int8), limit,
        )  # fmt: skip

    def table(self, kind: Column, names: pa.Array) -> pa.Table:
        """As a planner reads them."""
        count = len(self.a)
        nothing = pa.nulls(count, pa.float64())
        second = (
            pa.nulls(count, pa.int32()) if self.b is None else pa.array(self.b.astype(np.int32))
        )
        return pa.table(
            {
                "gpu_type": _repeated(kind.gpu_type, count),
                "gpus": pa.array(np.full(count, kind.gpus, np.int32)),
                "class_a": pa.DictionaryArray.from_arrays(self.a.astype(np.int32), names),
                "class_b": pa.DictionaryArray.from_arrays(second, names),
                "throughput_a": self.low[0],
                "throughput_b": nothing if self.low[1] is None else self.low[1],
                "mean_a": self.mean[0],
                "mean_b": nothing if self.mean[1] is None else self.mean[1],
                "power_w": self.watts,
                "power_limit_w": nothing if self.limit is None else pa.array(self.limit),
                "feasible_probability": self.chance,
                "network": pa.DictionaryArray.from_arrays(self.network, pa.array(NETWORKS)),
            }
        )


def _repeated(name: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), pa.array([name]))
