"""CSV and JSON lines, plain or gzip, block by block into tables of text cells with line numbers.

A file is read from a position in bounded memory: whole lines only, so that a file that is still
growing goes on where it was left. NUL bytes at the end (the node died) are dropped, a line that
cannot be decoded or has the wrong number of cells becomes a row with `error` and its `raw` text.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from gogh_core.errors import BatchRefused
from gogh_core.telemetry.shapes import Shape, rename

__all__ = [
    "BLOCK_BYTES",
    "Block",
    "Lines",
    "csv_cells",
    "header_of",
    "is_bomb",
    "json_cells",
    "text_blocks",
    "usable_lines",
]

BLOCK_BYTES = 16 * 1024 * 1024
LONG_LINE = 1 << 17  # bytes; no row of ours is nearly as long
_LONG_SHOWN = 1000
_BOMB_BYTES = 64 * 2**20
_BOMB_RATIO = 200  # plain CSV of samples packs 10 to 30 times
SETTLED_S = 60.0  # a last line without its newline is taken when nothing was written for so long
_SMALL_BYTES = 1 << 14
_BLANK_FIRST = re.compile(rb"[ \t\r\f\v]*(?:\n|\Z)")
_BLANK = re.compile(rb"\n(?:[ \t\r\f\v]*\n|[ \t\r\f\v]+\Z)")
_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


@dataclass(slots=True)
class Block:
    """Whole lines of a file: their bytes, where they begin and end, the number of the first."""

    data: bytes
    start: int
    end: int
    first_line: int
    lines: int
    notes: list[str] = field(default_factory=list)
    to_the_end: bool = False
    """Whether nothing of the file is left after it, not even a line that is still written."""

    @property
    def checksum(self) -> str:
        """Identity of the content."""
        return hashlib.sha256(self.data).hexdigest()


class _Gunzip:
    """Unpacks gzip in bounded pieces; a stream that is cut off or damaged gives what is whole."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._unpacker = zlib.decompressobj(wbits=31)
        self._packed = b""
        self.trouble: str | None = None

    def read(self, count: int) -> bytes:
        """Up to `count` bytes, nothing at the end."""
        while self.trouble is None:
            if not self._packed:
                self._packed = self._stream.read(1 << 16)
                if not self._packed:
                    if not self._unpacker.eof:
                        self.trouble = "gzip stream is not whole (it is cut off)"
                    return self._unpacker.flush() if self.trouble else b""
            try:
                if self._unpacker.eof:  # one member follows another
                    self._unpacker = zlib.decompressobj(wbits=31)
                data = self._unpacker.decompress(self._packed, count)
            except zlib.error as error:
                self.trouble = f"gzip stream is not whole ({error})"
                return b""
            self._packed = self._unpacker.unconsumed_tail or self._unpacker.unused_data
            if data:
                return data
        return b""


def _read(stream: BinaryIO | _Gunzip, count: int) -> bytes:
    """Up to `count` bytes."""
    parts: list[bytes] = []
    got = 0
    while got < count:
        part = stream.read(min(count - got, 1 << 20))
        if not part:
            break
        parts.append(part)
        got += len(part)
    return b"".join(parts)


def text_blocks(
    stream: BinaryIO,
    name: str,
    *,
    position: int = 0,
    lines: int = 0,
    mtime_ns: int = 0,
    max_bytes: int,
    max_lines: int = 1 << 62,
    size: int = 1 << 62,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[Block]:
    """The lines after `position` (in unpacked bytes) in blocks of bounded size.

    `size` is that of the file, packed.
    """
    notes: list[str] = []
    packed = _Gunzip(stream) if name.endswith(".gz") else None
    if packed is not None:
        _skip(packed, position)
    else:
        stream.seek(position)
    settled = time.time() - mtime_ns / 1e9 > SETTLED_S
    rest = b""
    ready: Block | None = None
    while True:
        data = rest + _read(packed or stream, block_bytes - len(rest))
        last = len(data) < block_bytes
        if packed is not None and packed.trouble:
            notes.append(packed.trouble)
        if position == 0 and data.startswith(_BOMS):
            raise BatchRefused("is UTF-16 or UTF-32", where=name, todo="write it as UTF-8")
        cut = data.rfind(b"\n") + 1
        if last and settled:
            cut = len(data)
        elif last and data[cut:] and not data[cut:].strip(b"\0"):
            cut = len(data)  # NUL bytes to the end: the node died while it wrote
        if cut == 0 and not last:
            raise BatchRefused(f"a line is longer than {block_bytes} bytes", where=name)
        if position + cut > max_bytes:
            raise BatchRefused(f"unpacks to more than {max_bytes / 2**20:.0f} MB", where=name)
        if packed is not None and is_bomb(position + cut, size):
            raise BatchRefused(
                f"unpacks to more than {_BOMB_RATIO} times its {size / 2**20:.2f} MB", where=name
            )
        if cut:
            whole = data[:cut]
            count = whole.count(b"\n") + (not whole.endswith(b"\n"))
            if lines + count > max_lines:
                raise BatchRefused(f"has more than {max_lines} lines", where=name)
            if ready is not None:
                yield ready
            ready = Block(whole, position, position + cut, lines + 1, count, notes)
            position += cut
            lines += count
            notes = []
        rest = data[cut:]
        if last:
            if ready is None and position and not rest:  # touched, or put back as it was
                ready = Block(b"", position, position, lines + 1, 0)
            if ready is not None:
                ready.to_the_end = not rest
                yield ready
            return


def is_bomb(unpacked: int, size: int) -> bool:
    """Whether a file unpacks to far more than any real one of its size."""
    return unpacked > _BOMB_BYTES and unpacked > _BOMB_RATIO * size


def _skip(stream: _Gunzip, count: int) -> None:
    while count > 0:
        part = _read(stream, min(count, 1 << 20))
        if not part:
            return
        count -= len(part)


@dataclass(slots=True)
class Lines:
    """The lines of a block that can be parsed, their numbers, and those that cannot."""

    data: bytes
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]]
    bad: list[tuple[int, str, str]]


def usable_lines(block: Block) -> Lines:
    """Blank lines and trailing NULs dropped; what is not UTF-8 or holds a NUL set aside."""
    data = block.data
    returns = data.count(b"\r")
    plain = b"\0" not in data and (not returns or returns == data.count(b"\r\n"))
    plain = plain and not _has_long_line(data)
    if plain and not _BLANK_FIRST.match(data) and not _BLANK.search(data):
        try:
            data.decode("utf-8")
            numbers = np.arange(block.first_line, block.first_line + block.lines, dtype=np.int64)
            return Lines(data, numbers, [])
        except UnicodeDecodeError:
            pass
    good: list[bytes] = []
    numbered: list[int] = []
    bad: list[tuple[int, str, str]] = []
    nul = 0
    for number, line in enumerate(data.split(b"\n"), block.first_line):
        bare = line.rstrip(b"\r")
        kept = bare.strip(b"\0")
        nul += len(bare) - len(kept)
        if not kept.strip():
            continue
        if len(kept) > LONG_LINE:
            shown = kept[:_LONG_SHOWN].decode("latin-1").replace("\0", "\\0")
            bad.append((number, shown, f"line is longer than {LONG_LINE} bytes"))
            continue
        try:
            text = kept.decode("utf-8")
        except UnicodeDecodeError:
            bad.append((number, kept.decode("latin-1"), "line is not UTF-8"))
            continue
        if "\0" in text:
            bad.append((number, text.replace("\0", "\\0"), "line holds NUL bytes"))
            continue
        if b"\r" in kept:
            bad.append((number, text.replace("\r", "\\r"), "line holds a carriage return"))
            continue
        good.append(kept)
        numbered.append(number)
    if nul:
        block.notes.append(f"{nul} NUL bytes dropped")
    return Lines(b"\n".join(good) + b"\n" if good else b"", np.array(numbered, np.int64), bad)


def _has_long_line(data: bytes) -> bool:
    """By leaps to the last end of a line within reach."""
    at = 0
    while len(data) - at > LONG_LINE:
        cut = data.rfind(b"\n", at, at + LONG_LINE + 1)
        if cut < 0:
            return True
        at = cut + 1
    return False


def header_of(block: Block, name: str) -> tuple[str, Block | None]:
    """The first line that is not blank, and what follows it."""
    rest = block.data.removeprefix(codecs.BOM_UTF8)
    removed = len(block.data) - len(rest)
    skipped = 0
    while rest:
        line, newline, rest = rest.partition(b"\n")
        removed += len(line) + len(newline)
        skipped += 1
        if line.strip(b"\0\r\n ") or not rest:
            break
    text = line.strip(b"\0\r\n ")
    try:
        header = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BatchRefused("its first line is not UTF-8", where=name) from error
    if not header:
        raise BatchRefused("has no header line", where=name)
    if len(text) > LONG_LINE:
        raise BatchRefused(f"its header line is longer than {LONG_LINE} bytes", where=name)
    if not rest:
        return header, None
    start = block.start + removed
    count = block.lines - skipped
    first = block.first_line + skipped
    return header, Block(rest, start, block.end, first, count, block.notes, block.to_the_end)


def csv_cells(block: Block, header: str, shape: Shape, name: str) -> pa.Table:
    """The cells of a block as text under our names, with `line`, `error` and `raw`."""
    cells = next(csv.reader([header], skipinitialspace=True))
    ours, notes = rename(shape, cells, where=name)
    block.notes.extend(notes)
    usable = usable_lines(block)
    width = len(cells)
    bad = usable.bad
    if b'"' in usable.data or len(usable.data) < _SMALL_BYTES:
        table, numbers = _by_line(usable, width, bad)
    else:
        table, numbers = _plain(usable, width, bad)
    columns = {ours[i]: table.column(i) for i in range(width) if ours[i]}
    return _with_bad(columns, numbers, bad)


def _plain(
    usable: Lines, width: int, bad: list[tuple[int, str, str]]
) -> tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    names = [f"c{i}" for i in range(width)]
    if not usable.data:
        return pa.table({name: pa.array([], pa.string()) for name in names}), usable.numbers
    wrong: list[tuple[int, str]] = []

    def reject(row: pa_csv.InvalidRow) -> str:
        wrong.append((row.number - 1, row.text))
        return "skip"

    table = pa_csv.read_csv(
        io.BytesIO(usable.data),
        read_options=pa_csv.ReadOptions(
            column_names=names, use_threads=False, block_size=len(usable.data) + 1
        ),
        parse_options=pa_csv.ParseOptions(quote_char=False, invalid_row_handler=reject),
        convert_options=pa_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        ),
    )
    numbers = usable.numbers
    for row, text in wrong:
        bad.append((int(numbers[row]), text, f"line has not {width} cells"))
    if wrong:
        numbers = np.delete(numbers, [row for row, _ in wrong])
    return table, numbers


def _by_line(
    usable: Lines, width: int, bad: list[tuple[int, str, str]]
) -> tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Line by line: a quote that is never closed must not swallow the lines after it.

    Few lines are quicker this way too: there may be thousands of small files.
    """
    quoted = b'"' in usable.data
    rows: list[list[str]] = []
    numbers: list[int] = []
    for number, line in zip(usable.numbers, usable.data.decode().split("\n"), strict=False):
        try:
            cells = (
                next(csv.reader([line], skipinitialspace=True, strict=True))
                if quoted
                else line.removesuffix("\r").split(",")
            )
        except csv.Error as error:
            bad.append((int(number), line, f"line is no CSV ({error})"))
            continue
        if len(cells) != width:
            bad.append((int(number), line, f"line has not {width} cells"))
            continue
        rows.append(cells)
        numbers.append(int(number))
    columns = list(zip(*rows, strict=True)) if rows else [()] * width
    table = pa.table({f"c{i}": pa.array(columns[i], pa.string()) for i in range(width)})
    return table, np.array(numbers, np.int64)


def _with_bad(
    columns: dict[str | None, pa.ChunkedArray],
    numbers: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.int64]],
    bad: Sequence[tuple[int, str, str]],
) -> pa.Table:
    count = len(numbers)
    table = pa.table(
        {
            "line": pa.array(numbers, pa.int64()),
            "error": pa.nulls(count, pa.string()),
            "raw": pa.nulls(count, pa.string()),
            **{str(name): column for name, column in columns.items()},
        }
    )
    if not bad:
        return table
    extra = pa.table(
        {
            "line": pa.array([number for number, _, _ in bad], pa.int64()),
            "error": pa.array([error for _, _, error in bad], pa.string()),
            "raw": pa.array([raw for _, raw, _ in bad], pa.string()),
        }
    )
    return pa.concat_tables([table, extra], promote_options="default")


def json_cells(block: Block) -> pa.Table:
    """The lines of a block as `raw`, to be taken apart by the database."""
    usable = usable_lines(block)
    text = usable.data.decode().split("\n")[: len(usable.numbers)]
    table = pa.table(
        {
            "line": pa.array(usable.numbers, pa.int64()),
            "error": pa.nulls(len(text), pa.string()),
            "raw": pa.array(text, pa.string()),
        }
    )
    if not usable.bad:
        return table
    return pa.concat_tables([table, _with_bad({}, [], usable.bad)], promote_options="default")
