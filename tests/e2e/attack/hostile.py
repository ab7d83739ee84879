"""Hostile files for the spool of an embedded cluster, one maker for each kind.

Each maker writes one or a few files, none of whose rows may be stored unless they are copies of
rows that the cluster wrote itself.
"""

from __future__ import annotations

import gzip
import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gogh_core.settings import Settings
from tests.telemetry.test_hostile_files import ODD, parquet, samples
from tests.telemetry.world import csv, put, sample

__all__ = ["KINDS", "Scene"]

NOBODY = 65534


@dataclass
class Scene:
    """What a maker may use: the spool, dice, and what the cluster wrote."""

    settings: Settings
    dice: random.Random
    number: int
    now: datetime
    good: list[str]
    """Samples of this window, as lines of CSV after the header."""
    older: list[bytes]
    """Files of samples and progress that were taken in some hours ago, by age."""
    jobs: list[str]

    def put(self, name: str, data: str | bytes) -> None:
        put(self.settings, name.replace("*", f"{self.number:05d}"), data)


@cache
def _newlines() -> bytes:
    return gzip.compress(b"\n" * 2**26, 9)


@cache
def _slow() -> str:
    row = ",".join(f'"{cell}"' for cell in sample(1, "s1", 1).split(","))
    return csv(row for _ in range(400_000))


def bomb_of_newlines(scene: Scene) -> None:
    scene.put("gpu/mm-*.csv.gz", _newlines())


def bomb_of_words(scene: Scene) -> None:
    coded = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(2300, np.int32)), pa.array(["x" * 100_000])
    )
    rows = pa.table({**samples(2300), "server_id": coded})
    parquet(scene.settings, rows, f"gpu/mw-{scene.number:05d}.parquet", compression="zstd")


def slow_to_read(scene: Scene) -> None:
    scene.put("gpu/mm-*.csv", _slow())


def damaged_parquet(scene: Scene) -> None:
    name = f"gpu/mm-{scene.number:05d}.parquet"
    data = bytearray(parquet(scene.settings, pa.table(samples(1000)), name, compression="snappy"))
    for _ in range(40):
        data[scene.dice.randrange(4, len(data) - 1200)] = scene.dice.randrange(256)
    scene.put("gpu/mm-*.parquet", bytes(data))


def odd_types(scene: Scene) -> None:
    name, values = scene.dice.choice(sorted(ODD.items(), key=lambda item: item[0]))
    column = scene.dice.choice(["ts", "gpu_index", "power_w", "server_id"])
    table = pa.table({**samples(), column: values})
    try:
        parquet(scene.settings, table, f"gpu/mm{name}-{scene.number:05d}.parquet")
    except pa.ArrowException:  # cannot be written: what is there is cut short
        return


def odd_names(scene: Scene) -> None:
    text = csv(sample(s, "s1", 1) for s in range(5))
    for name in (b"mm-\xff\xfe", b"mm\n\x1b[2J", "mm-²".encode()):
        path = os.fsencode(scene.settings.spool) + b"/gpu/" + name + b"%d.csv" % scene.number
        Path(os.fsdecode(path)).write_text(text)


def no_files(scene: Scene) -> None:
    folder = scene.settings.spool / "gpu"
    # Never to a file that matters: a mistake in a test would write through the link.
    victim = scene.settings.home / "victim.txt"
    victim.write_text("nobody reads or writes this")
    (folder / f"ml-{scene.number:05d}.csv").symlink_to(victim)
    os.mkfifo(folder / f"mf-{scene.number:05d}.csv")


def far_times(scene: Scene) -> None:
    rows = [row.split(",") for row in scene.good[:8]]
    odd = ["294247-01-10 04:00:54+00", "4714-11-24 00:00:00+00 (BC)", "infinity", "2199-01-01"]
    lines = [",".join([odd[n % 4], *row[1:7]]) for n, row in enumerate(rows)]
    scene.put("gpu/mt-*.csv", csv(lines))


def deep_json(scene: Scene) -> None:
    deep = 60_000
    scene.put("gpu/mm-*.jsonl", '{"ts":' + "[" * deep + "1" + "]" * deep + "}\n")
    scene.put("progress/mm-*.jsonl", '{"ts":' + '{"a":' * deep + "1" + "}" * deep + "}\n")


def long_header(scene: Scene) -> None:
    scene.put("gpu/mh-*.csv", "x" * 1_000_000 + ",ts\n1,2\n")


def copies_beside_garbage(scene: Scene) -> None:
    """Good rows of this window, read before the cluster's own file, in a file that is refused."""
    rows = [",".join(row.split(",")[:7]) for row in scene.good[:20]]
    garbage = [f"not-a-time,{n},x,y,-1e9,z,7" for n in range(60)]
    scene.put("gpu/aa-*.csv", csv([*rows, *garbage]))


def copies_of_old_files(scene: Scene) -> None:
    """Files of the last hours once more, under other names."""
    for data in scene.dice.sample(scene.older, min(3, len(scene.older))):
        folder, ending = ("gpu", "csv.gz") if data[:2] == b"\x1f\x8b" else ("progress", "jsonl")
        scene.put(f"{folder}/again{scene.dice.randrange(10**6)}-*.{ending}", data)


def reports_by_another_owner(scene: Scene) -> None:
    at = scene.now.strftime("%Y-%m-%dT%H:%M:%S.123Z")
    rows = [{"ts": at, "job_id": job, "steps": 1e7, "attempt": 0} for job in scene.jobs]
    name = f"progress/evil-{scene.number:05d}.jsonl"
    scene.put(name, "".join(json.dumps(row) + "\n" for row in rows))
    if os.geteuid() == 0:
        os.chown(scene.settings.spool / name, NOBODY, NOBODY)
    else:  # then everybody may write it, which is refused as well
        (scene.settings.spool / name).chmod(0o666)


def no_parquet_at_all(scene: Scene) -> None:
    scene.put("events/mm-*.parquet", b"PAR1" + scene.dice.randbytes(500) + b"PAR1")
    pq.write_table(pa.table(samples(3)), scene.settings.spool / f"stray-{scene.number % 3}.parquet")


KINDS: tuple[Callable[[Scene], None], ...] = (
    bomb_of_newlines,
    bomb_of_words,
    slow_to_read,
    damaged_parquet,
    odd_types,
    odd_names,
    no_files,
    far_times,
    deep_json,
    long_header,
    copies_beside_garbage,
    copies_of_old_files,
    reports_by_another_owner,
    no_parquet_at_all,
)
