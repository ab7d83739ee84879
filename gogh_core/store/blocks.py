"""The blocks of a DuckDB file and their checksums, as DuckDB 2.0 lays them out.

A file is a main header and two headers that take turns (4 KiB each), then blocks of one size. Each
header and block begins with a checksum of the rest of it: the XOR of its 64-bit words, each times
an odd constant. So any flipped bit shows. Blocks that the newest header counts as free, or does not
count at all, hold what an earlier or a killed writer left: they may be torn, and nobody reads them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

__all__ = ["HEADERS_BYTES", "Layout", "in_use", "is_sound"]

HEADER_BYTES = 4096
HEADERS_BYTES = 3 * HEADER_BYTES
# Of the two headers that take turns: checksum, iteration, place of the catalog, place of the list
# of free blocks, number of blocks, size of a block.
_HEADER = struct.Struct("<QQqqQQ")
_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SEED = 5381
# Lists are kept in pieces; a block holds 64 of them, each begins with the place of the next.
_PIECES = 64
_NONE = -1


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the blocks of a file are, as it is now; equal only if nobody wrote since."""

    size: int
    """Headers and whole blocks; what a killed writer left of another block is not counted."""
    block: int
    """Bytes of one block; 0 where the headers are damaged."""
    headers: bytes
    """DuckDB counts in them how often it wrote."""

    @classmethod
    def of(cls, file: int) -> Layout:
        """The layout of an open file."""
        size = os.fstat(file).st_size
        headers = os.pread(file, HEADERS_BYTES, 0)
        if not _headers_are_sound(headers):
            return cls(size, 0, headers)
        block = _newest(headers)[-1]
        return cls(size - (size - HEADERS_BYTES) % block, block, headers)

    @property
    def starts(self) -> range:
        """Where the blocks begin."""
        return range(HEADERS_BYTES, self.size, self.block) if self.block else range(0)

    def changed(self, file: int, had: dict[int, bytes], *, since: Layout) -> list[int]:
        """Where the blocks begin of which `had` has another checksum or none."""
        if self == since:
            return [at for at in self.starts if at not in had]
        return [at for at in self.starts if had.get(at) != os.pread(file, 8, at)]

    @property
    def counted(self) -> range:
        """Where the blocks begin that the newest header counts, also beyond the end of the file."""
        count, block = _newest(self.headers)[-2:]
        return range(HEADERS_BYTES, HEADERS_BYTES + count * block, block)


def _headers_are_sound(headers: bytes) -> bool:
    parts = [headers[at : at + HEADER_BYTES] for at in range(0, HEADERS_BYTES, HEADER_BYTES)]
    return all(is_sound(part) for part in parts)


def _newest(headers: bytes) -> tuple[int, int, int, int, int]:
    """Iteration, place of the catalog, place of the free list, number and size of blocks."""
    both = [_HEADER.unpack_from(headers, HEADER_BYTES * which)[1:] for which in (1, 2)]
    return max(both)


def is_sound(data: bytes) -> bool:
    """Whether a header or block holds what was written, by its checksum."""
    if len(data) < HEADER_BYTES or len(data) % 8:
        return False
    words = np.frombuffer(data, np.dtype("<u8"))
    return int(np.bitwise_xor.reduce(words[1:] * _FACTOR)) ^ _SEED == int(words[0])


def in_use(file: int, layout: Layout, damaged: set[int]) -> set[int]:
    """Where the blocks begin that hold something of the database; the headers are sound.

    All of them where the list of free blocks cannot be read because of the `damaged` ones.
    """
    counted = set(layout.counted)
    _, _, place, _, block = _newest(layout.headers)
    read: set[int] = set()
    words = _words(file, block, place, layout.size, read)
    free = [number for _, number in zip(range(next(words, 0)), words, strict=False)]
    return counted if read & damaged else counted - {HEADERS_BYTES + n * block for n in free}


def _words(file: int, block: int, place: int, size: int, read: set[int]) -> Iterator[int]:
    """The words of a list, over all its pieces; `read` is told which blocks they are in."""
    piece = (block - 8) // _PIECES // 8 * 8
    for _ in range(size // piece):  # a list that runs in a circle ends somewhere
        if place == _NONE:
            return
        start = HEADERS_BYTES + (place & (1 << 56) - 1) * block
        read.add(start)
        data = os.pread(file, piece, start + 8 + (place >> 56 & 0xFF) * piece)
        if len(data) < piece:
            return
        place, *words = struct.unpack(f"<{piece // 8}q", data)
        yield from words
