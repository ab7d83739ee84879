"""The short way for samples: a block of CSV whose every cell is plain, read as typed columns.

`sample_rows` gives what the cells would be by `sql/steps/telemetry_parse_gpu_samples.sql`, or None
as soon as anything is unusual (a unit, a quote, a cell too many, a name with odd characters); then
the block goes the long way, which can say what is wrong with which line.
"""

from __future__ import annotations

import csv

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from gogh_core.telemetry.shapes import Shape, rename
from gogh_core.telemetry.text import Block, usable_lines

__all__ = ["sample_rows"]

_AT_ONCE_BYTES = 1 << 20  # for one thread at a time; the whole block at once was slower
_NAMED = ("server_id", "gpu_type")
_TIME = r"^2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{3}|[.][0-9]{6})?Z$"
_EPOCH = r"^[1-9][0-9]{8,9}([.][0-9]{1,6})?$"
_NAME = r"^([A-Za-z0-9]|[A-Za-z0-9][A-Za-z0-9._ -]*[A-Za-z0-9])?$"
# Words that may stand for a missing value, as a name: the long way knows which do.
_WORDS = ("na", "nan", "null", "none", "not supported")
_MISSING = ["", "[N/A]", "N/A"]
_NUMBERS = ("power_w", "energy_j", "memory_used_mb", "temperature_c", "sm_clock_mhz")
_WHOLE = {
    "gpu_index": (pa.int32(), 2**31),
    "throttle_reasons": (pa.int64(), 2**53),
    "processes": (pa.int32(), 2**31),
}


class _Unusual(Exception):
    """The block has to go the long way."""


def sample_rows(
    block: Block, header: str, shape: Shape, name: str, default_name: str | None
) -> pa.Table | None:
    """Typed rows of the block, without `part`; None where one of its cells is not plain."""
    if b'"' in block.data:
        return None
    cells = next(csv.reader([header], skipinitialspace=True))
    ours, notes = rename(shape, cells, where=name)
    usable = usable_lines(block)
    if usable.bad or not usable.data:
        return None
    try:
        columns = _read(usable.data, ours)
        if len(columns["ts"]) != len(usable.numbers):
            return None
        rows = _rows(columns, usable.numbers, default_name)
    except (_Unusual, pa.ArrowInvalid):
        return None
    block.notes.extend(notes)
    return rows


def _read(data: bytes, ours: list[str | None]) -> dict[str, pa.Array]:
    names = [mine or f"unused {place}" for place, mine in enumerate(ours)]
    coded = pa.dictionary(pa.int32(), pa.string())
    types = {mine: coded if mine in ("ts", *_NAMED) else pa.float64() for mine in ours if mine}
    table = pa_csv.read_csv(
        pa.BufferReader(data),
        read_options=pa_csv.ReadOptions(column_names=names, block_size=_AT_ONCE_BYTES),
        parse_options=pa_csv.ParseOptions(quote_char=False),
        convert_options=pa_csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=_MISSING,
            strings_can_be_null=False,
        ),
    ).combine_chunks()
    return {
        name: table[name].chunk(0) if table[name].num_chunks else pa.array([], table[name].type)
        for name in table.column_names
    }


def _rows(
    columns: dict[str, pa.Array],
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]],
    default_name: str | None,
) -> pa.Table:
    count = len(numbers)
    missing = pa.nulls(count, pa.float64())

    def number(name: str) -> pa.Array:
        return _finite(columns[name]) if name in columns else missing

    share, percent = number("utilisation"), number("utilisation_percent")
    rows = {
        "line": pa.array(numbers, pa.int64()),
        "ts": _times(columns["ts"]),
        "server_id": _names(columns.get("server_id"), count, default_name),
        "gpu_index": _whole("gpu_index", number("gpu_index")),
        "gpu_type": _names(columns.get("gpu_type"), count, None),
        **{name: number(name) for name in _NUMBERS[:2]},
        "utilisation": pc.coalesce(share, pc.divide(percent, 100.0)),
        **{name: number(name) for name in _NUMBERS[2:]},
        **{name: _whole(name, number(name)) for name in ("throttle_reasons", "processes")},
        "parse_error": pa.nulls(count, pa.string()),
        "raw": pa.nulls(count, pa.string()),
    }
    return pa.table(rows)


def _finite(values: pa.Array) -> pa.Array:
    if pc.all(pc.is_finite(values)).as_py() is False:
        raise _Unusual
    return values


def _whole(name: str, values: pa.Array) -> pa.Array:
    kind, limit = _WHOLE[name]
    if pc.any(pc.greater_equal(pc.abs(values), float(limit))).as_py():
        raise _Unusual
    return pc.cast(values, kind)  # ArrowInvalid where a value is not whole


def _times(values: pa.DictionaryArray) -> pa.Array:
    kind = pa.timestamp("us", "UTC")
    texts = values.dictionary
    if _all_match(texts, _EPOCH):
        micros = pc.round(pc.multiply(pc.cast(texts, pa.float64()), 1e6))
        return pc.take(pc.cast(pc.cast(micros, pa.int64()), kind), values.indices)
    if not _all_match(texts, _TIME):
        raise _Unusual
    return pc.take(pc.cast(texts, kind), values.indices)


def _names(values: pa.DictionaryArray | None, count: int, default_name: str | None) -> pa.Array:
    if values is None:
        return pa.array(np.full(count, default_name, object), pa.string())
    names = values.dictionary
    if (
        not _all_match(names, _NAME)
        or pc.any(pc.is_in(pc.utf8_lower(names), pa.array(_WORDS))).as_py()
    ):
        raise _Unusual
    names = pc.if_else(pc.equal(names, ""), pa.scalar(default_name, pa.string()), names)
    return pc.take(names, values.indices)


def _all_match(values: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(values, pattern), min_count=0).as_py())
