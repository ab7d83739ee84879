"""The options of a problem as columns: one row is one way to run one job, or two that share.

A problem may bring millions of options (every job a class of its own), so they are numpy
columns, sorted once into one order that does not depend on how the file listed them.
`Option` is one row for people and tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.errors import InvalidProblem

__all__ = ["MOST", "MOST_GPUS", "Option", "OptionTable"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_SHOWN = 20
MOST, MOST_GPUS = 1e15, 1_000_000
"""No watts, joules or steps and no count of a cluster are beyond these: sums stay numbers."""


@dataclass(frozen=True, slots=True)
class Option:
    """A way to run one job, or two that share the same GPUs.

    `power_w` is the whole draw of the option's GPUs; `throughput[i]` belongs to `classes[i]`.
    """

    gpu_type: str
    gpus: int
    classes: tuple[str, ...]
    throughput: tuple[float, ...]
    power_w: float
    power_limit_w: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a problem file."""
        raw: dict[str, Any] = {
            "gpu_type": self.gpu_type,
            "gpus": self.gpus,
            "classes": list(self.classes),
            "throughput": list(self.throughput),
            "power_w": self.power_w,
        }
        if self.power_limit_w is not None:
            raw["power_limit_w"] = self.power_limit_w
        return raw


class OptionTable:
    """All options, sorted; `type_id` and `class_*` index `types` and `classes`.

    `class_b` is -1 for a job alone; a missing power limit is NaN.
    """

    def __init__(
        self,
        types: Sequence[str],
        classes: Sequence[str],
        type_id: Ints,
        gpus: Ints,
        class_a: Ints,
        class_b: Ints,
        throughput_a: Floats,
        throughput_b: Floats,
        power_w: Floats,
        limit_w: Floats,
    ) -> None:
        self.types, type_id = _sorted_names(types, type_id)
        self.classes, class_a, class_b = _sorted_classes(classes, class_a, class_b)
        swap = (class_b >= 0) & (class_b < class_a)
        class_a, class_b = np.where(swap, class_b, class_a), np.where(swap, class_a, class_b)
        throughput_a, throughput_b = (
            np.where(swap, throughput_b, throughput_a),
            np.where(swap, throughput_a, throughput_b),
        )
        limit_key = np.where(np.isnan(limit_w), np.inf, limit_w)
        order = np.lexsort((limit_key, class_b, class_a, gpus, type_id))
        self.type_id = type_id[order]
        self.gpus = gpus[order]
        self.class_a = class_a[order]
        self.class_b = class_b[order]
        self.throughput_a = throughput_a[order]
        self.throughput_b = throughput_b[order]
        self.power_w = power_w[order]
        self.limit_w = limit_w[order]

    @classmethod
    def of(cls, options: Sequence[Option]) -> OptionTable:
        """From single options."""
        types = sorted({option.gpu_type for option in options})
        classes = sorted({name for option in options for name in option.classes})
        type_of = {name: index for index, name in enumerate(types)}
        class_of = {name: index for index, name in enumerate(classes)}
        pairs = [len(option.classes) > 1 for option in options]

        def ints(values: list[int]) -> Ints:
            return np.array(values, dtype=np.int64)

        def floats(values: list[float]) -> Floats:
            return np.array(values, dtype=np.float64)

        return cls(
            types,
            classes,
            ints([type_of[o.gpu_type] for o in options]),
            ints([o.gpus for o in options]),
            ints([class_of[o.classes[0]] for o in options]),
            ints(
                [class_of[o.classes[1]] if p else -1 for o, p in zip(options, pairs, strict=True)]
            ),
            floats([o.throughput[0] for o in options]),
            floats([o.throughput[1] if p else 0.0 for o, p in zip(options, pairs, strict=True)]),
            floats([o.power_w for o in options]),
            floats([np.nan if o.power_limit_w is None else o.power_limit_w for o in options]),
        )

    def __len__(self) -> int:
        return len(self.power_w)

    def __iter__(self) -> Iterator[Option]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Option:
        pair = self.class_b[index] >= 0
        classes = [self.classes[self.class_a[index]]]
        throughput = [float(self.throughput_a[index])]
        if pair:
            classes.append(self.classes[self.class_b[index]])
            throughput.append(float(self.throughput_b[index]))
        limit = float(self.limit_w[index])
        return Option(
            self.types[self.type_id[index]],
            int(self.gpus[index]),
            tuple(classes),
            tuple(throughput),
            float(self.power_w[index]),
            None if np.isnan(limit) else limit,
        )

    def columns(self) -> list[npt.NDArray[Any]]:
        """Every column, in a fixed order (for the problem's hash)."""
        return [
            self.type_id,
            self.gpus,
            self.class_a,
            self.class_b,
            self.throughput_a,
            self.throughput_b,
            self.power_w,
            self.limit_w,
        ]

    def faults(self) -> list[str]:
        """What is wrong with the rows, each with the option it is in."""
        found: list[str] = []

        def report(bad: npt.NDArray[np.bool_], text: str) -> None:
            rows = np.flatnonzero(bad)
            found.extend(f"option {_name(self[int(row)])} {text}" for row in rows[:_SHOWN])
            if len(rows) > _SHOWN:
                found.append(f"and {len(rows) - _SHOWN} more options: {text}")

        pair = self.class_b >= 0
        report(~(np.isfinite(self.throughput_a) & (self.throughput_a >= 0)), _NEGATIVE)
        report(pair & ~(np.isfinite(self.throughput_b) & (self.throughput_b >= 0)), _NEGATIVE)
        report(~(np.isfinite(self.power_w) & (self.power_w >= 0)), "has no power_w >= 0")
        report(self.gpus < 1, "has gpus below 1")
        report(self.gpus > MOST_GPUS, f"has gpus above {MOST_GPUS}")
        beyond = (self.throughput_a > MOST) | (self.throughput_b > MOST) | (self.power_w > MOST)
        report(beyond & np.isfinite(self.power_w), f"has a throughput or power_w above {MOST:g}")
        report(np.isinf(self.limit_w) | (self.limit_w <= 0), "has a power_limit_w that is not > 0")
        same = pair & (self.class_a == self.class_b)
        unequal = np.abs(self.throughput_a - self.throughput_b) > 1e-9 * (1 + self.throughput_a)
        report(same & unequal, "pairs a class with itself at unequal throughputs")
        if len(self) > 1:
            keys = (self.type_id, self.gpus, self.class_a, self.class_b)
            equal = np.ones(len(self) - 1, dtype=bool)
            for key in keys:
                equal &= key[1:] == key[:-1]
            limit = np.where(np.isnan(self.limit_w), -1.0, self.limit_w)
            equal &= limit[1:] == limit[:-1]
            report(np.concatenate([[False], equal]), "is listed twice")
        return found


_NEGATIVE = "has a throughput that is not a number >= 0"


def _name(option: Option) -> str:
    limit = "" if option.power_limit_w is None else f" at {option.power_limit_w:g} W"
    return f"{' with '.join(option.classes)} on {option.gpus} {option.gpu_type}{limit}"


def _sorted_names(names: Sequence[str], index: Ints) -> tuple[tuple[str, ...], Ints]:
    order = sorted(range(len(names)), key=lambda i: names[i])
    rank = np.empty(len(names) + 1, dtype=np.int64)
    rank[-1] = -1
    rank[order] = np.arange(len(names))
    return tuple(names[i] for i in order), rank[index] if len(index) else index


def _sorted_classes(names: Sequence[str], a: Ints, b: Ints) -> tuple[tuple[str, ...], Ints, Ints]:
    sorted_names, ranked_a = _sorted_names(names, a)
    _, ranked_b = _sorted_names(names, b)
    return sorted_names, ranked_a, ranked_b


def options_from_rows(rows: object) -> OptionTable:
    """Options as listed in a problem file; every malformed row is named at once."""
    faults: list[str] = []
    if not isinstance(rows, list):
        raise InvalidProblem(["options is no list and no {'file': …}"])
    parsed: list[Option] = []
    for index, row in enumerate(rows):
        try:
            parsed.append(_option(row))
        except (KeyError, TypeError, ValueError) as error:
            kind = f"lacks {error}" if isinstance(error, KeyError) else str(error)
            faults.append(f"options[{index}] {kind}")
    if faults:
        raise InvalidProblem(faults)
    return OptionTable.of(parsed)


def _option(row: Any) -> Option:
    if not isinstance(row, dict):
        raise TypeError("is no object")
    classes, throughput = row["classes"], row["throughput"]
    if not isinstance(classes, list) or len(classes) not in (1, 2):
        raise ValueError(f"classes is {classes!r}, not one or two names")
    if not isinstance(throughput, list) or len(throughput) != len(classes):
        raise ValueError(f"has {len(classes)} classes but throughput {throughput!r}")
    limit = row.get("power_limit_w")
    if isinstance(row["gpus"], bool) or not isinstance(row["gpus"], int | float):
        raise ValueError(f"gpus is {short(row['gpus'])}, not a whole number")
    if not abs(row["gpus"]) <= MOST_GPUS or row["gpus"] % 1 != 0:
        raise ValueError(f"gpus is {short(row['gpus'])}, not a whole number up to {MOST_GPUS}")
    return Option(
        _text(row, "gpu_type"),
        int(row["gpus"]),
        tuple(_text({"class": name}, "class") for name in classes),
        tuple(_float("throughput", value) for value in throughput),
        _float("power_w", row["power_w"]),
        None if limit is None else _float("power_limit_w", limit),
    )


def _text(row: Any, name: str) -> str:
    if not isinstance(row[name], str):
        raise ValueError(f"{name} is {short(row[name])}, not a text")
    return str(row[name])


def _float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {short(value)}, not a number")
    if abs(value) > MOST:
        raise ValueError(f"{name} is {short(value)}, beyond {MOST:g}")
    return float(value)


def short(value: Any) -> str:
    """A value as a fault shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def options_from_parquet(path: str) -> OptionTable:
    """Options from a Parquet file with the same columns as in a problem file."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    needed = ["gpu_type", "gpus", "classes", "throughput", "power_w"]
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidProblem([f"options file: {error}"]) from error
    missing = [name for name in needed if name not in table.column_names]
    if missing:
        raise InvalidProblem([f"options file lacks the column {name}" for name in missing])

    def plain(name: str) -> Any:
        column = table[name].combine_chunks()
        if column.null_count:
            raise InvalidProblem([f"options file: {name} has {column.null_count} missing values"])
        return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column

    def encoded(values: Any) -> tuple[list[str], Ints]:
        coded = pc.dictionary_encode(values.cast(pa.string()))
        indices = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return [str(name) for name in coded.dictionary.to_pylist()], indices

    try:
        classes, throughput = plain("classes"), plain("throughput")
        starts = classes.offsets.to_numpy().astype(np.int64)
        lengths = np.diff(starts)
        if len(lengths) and (lengths.min() < 1 or lengths.max() > 2):
            raise InvalidProblem(["options file: classes is not one or two names everywhere"])
        if not np.array_equal(lengths, np.diff(throughput.offsets.to_numpy())):
            raise InvalidProblem(["options file: classes and throughput differ in length"])
        names, flat = encoded(classes.flatten())
        values = throughput.flatten().cast(pa.float64()).to_numpy(zero_copy_only=False)
        pair = lengths == 2
        first = starts[:-1] - starts[0]
        second = np.where(pair, first + 1, first)
        types, type_id = encoded(plain("gpu_type"))
        if "power_limit_w" in table.column_names:
            limit = table["power_limit_w"].cast(pa.float64()).to_numpy()
        else:
            limit = np.full(len(lengths), np.nan)
        return OptionTable(
            types,
            names,
            type_id,
            plain("gpus").cast(pa.int64()).to_numpy(zero_copy_only=False),
            flat[first],
            np.where(pair, flat[second], -1),
            values[first].astype(np.float64),
            np.where(pair, values[second], 0.0),
            plain("power_w").cast(pa.float64()).to_numpy(zero_copy_only=False),
            np.asarray(limit, dtype=np.float64),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, AttributeError) as error:
        raise InvalidProblem([f"options file: {error}"]) from error
