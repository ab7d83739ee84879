"""The options table of the estimates, cut down to what this cluster can carry out.

Columns of the table: `gpu_type, gpus, class_a, class_b (null: alone), throughput_a, throughput_b`
at the chosen confidence, `mean_a, mean_b`, `power_w, power_limit_w, feasible_probability, network`.
It may have hundreds of thousands of rows, so it stays in columns all the way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gogh_core.allocation import Option, OptionTable
from gogh_core.cluster import Capabilities
from gogh_core.settings import Settings

__all__ = ["OPTIONS", "Rate", "Spot", "Way", "Ways", "options_table", "rates_of", "together"]

OPTIONS = pa.schema(
    {
        "gpu_type": pa.string(),
        "gpus": pa.int32(),
        "class_a": pa.string(),
        "class_b": pa.string(),
        "throughput_a": pa.float64(),
        "throughput_b": pa.float64(),
        "mean_a": pa.float64(),
        "mean_b": pa.float64(),
        "power_w": pa.float64(),
        "power_limit_w": pa.float64(),
        "feasible_probability": pa.float64(),
        "network": pa.string(),
    }
)


LEAST_CHANCE = 0.2
"""A class that is less likely to run than this, everywhere, waits until more is known of it."""
Spot = tuple[str, int, str, str | None]
"""Where a job runs: GPU type, GPUs, its class, its partner's class."""
Way = tuple[str, int, str, str | None, float | None]
"""A spot and the power limit there."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A throughput: the low end of its interval, and on average."""

    gpu_type: str
    low: float
    mean: float

    @property
    def high(self) -> float:
        """The mirror of `low`: intervals are symmetric in logarithms."""
        return self.mean * self.mean / self.low if self.low > 0 else self.mean


@dataclass(frozen=True)
class Ways:
    """What can be planned with; what each class reaches and costs alone, by (class, GPUs)."""

    table: pa.Table
    alone: Mapping[tuple[str, int], Sequence[Rate]]
    """What each class reaches alone, on each GPU type."""
    step_j: Mapping[tuple[str, int], Mapping[str, float]]
    """Energy of a step by GPU type, the GPUs' share of their server's own draw included."""
    classes: frozenset[str] = field(default_factory=frozenset)
    tried: Mapping[str, float] = field(default_factory=dict)
    """Classes that are unlikely to run anywhere, with the best probability there is."""

    @classmethod
    def of(
        cls,
        options: pa.Table,
        settings: Settings,
        capabilities: Capabilities,
        gpu_types: Collection[str],
        classes: Collection[str],
        in_use: Collection[Spot] = (),
        base_w: Mapping[str, float] | None = None,
    ) -> Ways:
        """The rows that this cluster and its manager can carry out and that likely run at all.

        `base_w` is by GPU type what a GPU's share of its server's own draw is.

        What is in use runs, whatever the estimates think of it. A class that nowhere likely runs is
        tried where it is likeliest: waiting would teach nobody anything.
        """
        keep = pc.is_in(
            options["gpu_type"].cast(pa.string()), pa.array(sorted(gpu_types), pa.string())
        )
        keep = pc.and_(keep, _of_classes(options, classes))
        surely_runs = pc.greater_equal(
            options["feasible_probability"], settings.estimation.minimum_feasible
        )
        runs = pc.or_(surely_runs, _in_use(options, in_use))
        tried, likeliest = _likeliest(options, pc.and_(keep, runs), keep)
        keep = pc.and_(keep, pc.or_(runs, tried))
        if not (settings.allocation.share and capabilities.pairs_named_jobs):
            keep = pc.and_(keep, pc.is_null(options["class_b"]))
        if not capabilities.sets_power_limits:
            keep = pc.and_(keep, pc.is_null(options["power_limit_w"]))
        table = options.filter(keep)
        alone = table.filter(pc.is_null(table["class_b"]))
        keys = list(zip(_texts(alone, "class_a"), alone["gpus"].to_pylist(), strict=True))
        kinds, means = _texts(alone, "gpu_type"), _floats(alone, "mean_a")
        share_w = np.array([(base_w or {}).get(kind, 0.0) for kind in kinds])
        watts = _floats(alone, "power_w") + share_w * alone["gpus"].to_numpy()
        paired = table.filter(pc.is_valid(table["class_b"]))
        names = {*_texts(table, "class_a"), *_texts(paired, "class_b")}
        return cls(
            table,
            _gathered(keys, kinds, _floats(alone, "throughput_a"), means),
            _step_j(keys, kinds, watts, means),
            frozenset(names),
            likeliest,
        )

    def here(self, places: Collection[Spot]) -> dict[Spot, Rate]:
        """The rates of some (GPU type, GPUs, class, partner's class), as jobs run now."""
        found = rates_of(self.table, {(*place, None) for place in places})
        return {way[:4]: rate for way, rate in found.items()}

    def with_options(self, more: Sequence[Option]) -> OptionTable:
        """All of them at their means, and some more, as a problem wants them."""
        table = self.table
        types, type_id = _codes(_texts(table, "gpu_type") + [o.gpu_type for o in more])
        first = _texts(table, "class_a") + [o.classes[0] for o in more]
        second = [*table["class_b"].to_pylist(), *[None for _ in more]]
        classes, codes = _codes([*first, *(name for name in second if name is not None)])
        class_b = np.full(len(first), -1, dtype=np.int64)
        shared = np.array([name is not None for name in second], dtype=bool)
        class_b[shared] = codes[len(first) :]
        rates_b = np.append(_floats(table, "mean_b"), np.zeros(len(more)))
        return OptionTable(
            types,
            classes,
            type_id,
            np.append(table["gpus"].to_numpy(), [o.gpus for o in more]).astype(np.int64),
            codes[: len(first)],
            class_b,
            np.append(_floats(table, "mean_a"), [o.throughput[0] for o in more]),
            np.where(shared, rates_b, 0.0),
            np.append(_floats(table, "power_w"), [o.power_w for o in more]),
            np.append(_floats(table, "power_limit_w"), np.full(len(more), np.nan)),
        )


def rates_of(options: pa.Table, ways: Collection[Way]) -> dict[Way, Rate]:
    """The rates of some ways to run a class; ways that have no option are left out."""
    names = pa.array(sorted({name for way in ways for name in way[2:4] if name}), pa.string())
    table = options.filter(pc.is_in(options["class_a"].cast(pa.string()), names))
    other = table["class_b"].cast(pa.string())
    table = table.filter(pc.or_(pc.is_null(other), pc.is_in(other, names)))
    found: dict[Way, Rate] = {}
    for row in table.to_pylist():
        kind, gpus, limit = row["gpu_type"], row["gpus"], row["power_limit_w"]
        a, b = row["class_a"], row["class_b"]
        found[(kind, gpus, a, b, limit)] = Rate(kind, row["throughput_a"], row["mean_a"])
        if b is not None:
            found[(kind, gpus, b, a, limit)] = Rate(kind, row["throughput_b"], row["mean_b"])
    return {way: found[way] for way in ways if way in found}


def together(rates: Sequence[Rate | None]) -> Rate | None:
    """What the spots of one job give together; None when it runs nowhere, or one is not known."""
    known = [rate for rate in rates if rate is not None]
    if not known or len(known) < len(rates):
        return None
    low, mean = sum(rate.low for rate in known), sum(rate.mean for rate in known)
    return Rate(known[0].gpu_type, low, mean)


def options_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A small options table by hand; what is not given is null, feasible and measured."""
    usual = {"feasible_probability": 1.0, "network": "measured"}
    full = [{**usual, "mean_a": row.get("throughput_a"), **row} for row in rows]
    full = [{**row, "mean_b": row.get("mean_b", row.get("throughput_b"))} for row in full]
    return pa.Table.from_pylist(full, schema=OPTIONS)


def _of_classes(options: pa.Table, classes: Collection[str]) -> Any:
    """Which rows are of these classes only."""
    names = pa.array(sorted(classes), pa.string())
    other = options["class_b"].cast(pa.string())
    both = pc.or_(pc.is_null(other), pc.is_in(other, names))
    return pc.and_(pc.is_in(options["class_a"].cast(pa.string()), names), both)


def _in_use(options: pa.Table, spots: Collection[Spot]) -> Any:
    """Which rows say how jobs run now."""
    keys = {"\0".join((kind, str(gpus), a, b or "")) for kind, gpus, a, b in spots}
    keys |= {"\0".join((kind, str(gpus), b, a)) for kind, gpus, a, b in spots if b}
    columns = [options[name].cast(pa.string()) for name in ("gpu_type", "gpus", "class_a")]
    other = pc.fill_null(options["class_b"].cast(pa.string()), "")
    joined = pc.binary_join_element_wise(*columns, other, "\0")
    return pc.is_in(joined, pa.array(sorted(keys), pa.string()))


def _likeliest(options: pa.Table, runs: Any, here: Any) -> tuple[Any, dict[str, float]]:
    """The likeliest rows alone of classes that have no row that runs, and how likely they are."""
    alone = pc.and_(here, pc.is_null(options["class_b"]))
    settled = pc.unique(options["class_a"].cast(pa.string()).filter(pc.and_(alone, runs)))
    names = options["class_a"].cast(pa.string())
    open_ = pc.and_(alone, pc.invert(pc.is_in(names, settled)))
    chances = pc.if_else(open_, options["feasible_probability"], 0.0).to_numpy()
    best: dict[str, float] = {}
    for name, chance in zip(names.to_pylist(), chances.tolist(), strict=True):
        if chance >= LEAST_CHANCE:
            best[name] = max(best.get(name, 0.0), chance)
    wanted = [best.get(name, 2.0) for name in names.to_pylist()]
    return pa.array(chances >= np.array(wanted, dtype=np.float64)), best


def _texts(table: pa.Table, name: str) -> list[str]:
    texts: list[str] = table[name].to_pylist()
    return texts


def _floats(table: pa.Table, name: str) -> Any:
    return table[name].to_numpy().astype(np.float64)


def _codes(names: Sequence[str]) -> tuple[list[str], Any]:
    known, codes = np.unique(np.array(names, dtype=object), return_inverse=True)
    return [str(name) for name in known], codes.astype(np.int64)


def _gathered(
    keys: Sequence[tuple[str, int]], types: Sequence[str], lows: Any, means: Any
) -> dict[tuple[str, int], list[Rate]]:
    found: dict[tuple[str, int], list[Rate]] = {}
    for key, kind, low, mean in zip(keys, types, lows.tolist(), means.tolist(), strict=True):
        found.setdefault(key, []).append(Rate(kind, low, mean))
    return found


def _step_j(
    keys: Sequence[tuple[str, int]], types: Sequence[str], watts: Any, means: Any
) -> dict[tuple[str, int], dict[str, float]]:
    found: dict[tuple[str, int], dict[str, float]] = {}
    for key, kind, power_w, mean in zip(keys, types, watts.tolist(), means.tolist(), strict=True):
        if mean > 0:
            by_type = found.setdefault(key, {})
            by_type[kind] = min(by_type.get(kind, power_w / mean), power_w / mean)
    return found
