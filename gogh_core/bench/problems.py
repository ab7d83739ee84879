"""Realistic problems: a throughput table (given or drawn), a job mix, a cluster, a state.

The job mix follows what traces of production clusters show: most jobs take one GPU, few take
eight. Without a table one is drawn from a roofline of jobs and GPUs. Power of two jobs on one
GPU is a model (utilisations add up to the limit), because nobody has published measurements.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation import OptionTable, Problem, ProblemJob, ProblemServer
from gogh_core.bench.traces import TracedJob, traced_jobs
from gogh_core.domain import Plan, Slot
from gogh_core.errors import InvalidInput

__all__ = ["World", "churned", "drawn_world", "generate", "table_world", "write_problem", "young"]

Floats = npt.NDArray[np.float64]

# name: (relative compute, relative memory bandwidth, idle W, maximum W, base W of 8 in a server)
_TYPES: dict[str, tuple[float, float, float, float, float]] = {
    "k80": (0.28, 0.27, 25.0, 150.0, 350.0),
    "p100": (0.62, 0.60, 30.0, 250.0, 380.0),
    "t4": (0.52, 0.35, 10.0, 70.0, 300.0),
    "v100": (1.0, 1.0, 40.0, 300.0, 420.0),
    "a40": (1.35, 0.77, 32.0, 300.0, 450.0),
    "a100": (2.1, 1.75, 55.0, 400.0, 600.0),
}
_SIZES = (1, 2, 4, 8)
_SHARE = (0.74, 0.12, 0.09, 0.05)
_WAITING_W = 10000.0


@dataclass(slots=True)
class World:
    """What jobs reach and draw: [types, sizes, classes], pairs likewise."""

    types: list[str]
    idle_w: list[float]
    base_w: list[float]
    classes: list[str]
    alone: Floats
    alone_w: Floats
    pair: Floats
    """[types, sizes, classes, classes]: of the first beside the second; NaN: never ran."""
    pair_w: Floats


def drawn_world(seed: int, classes: int = 26) -> World:
    """A world from a roofline: each class leans on compute or on memory, pairs contend."""
    random = np.random.default_rng([seed, 1])
    facts = np.array(list(_TYPES.values()))
    compute, memory = facts[:, 0], facts[:, 1]
    lean = random.uniform(0.1, 0.9, classes)
    scale = np.exp(random.normal(1.5, 1.0, classes))
    use = random.uniform(0.25, 0.95, classes)
    speed = 1 / (lean[None, :] / compute[:, None] + (1 - lean[None, :]) / memory[:, None])
    speed = speed * scale * np.exp(random.normal(0, 0.06, (len(facts), classes)))
    sizes = np.array(_SIZES)
    scaling = random.uniform(0.8, 0.97, classes)
    gain = sizes[:, None] ** np.log2(2 * scaling)[None, :]
    alone = speed[:, None, :] * gain[None, :, :]
    use_here = np.clip(use[None, :] * (0.55 + 0.45 / compute[:, None] ** 0.5), 0.1, 1.0)
    idle, most = facts[:, 2], facts[:, 3]
    watts = idle[:, None] + (most - idle)[:, None] * use_here**0.8
    alone_w = watts[:, None, :] * sizes[None, :, None]
    hurt = np.clip(use_here[:, :, None] + use_here[:, None, :] - 0.9, 0.05, 0.75)
    hurt = hurt * random.uniform(0.7, 1.2, (1, classes, classes))
    pair = alone[:, :, :, None] * (1 - np.clip(hurt, 0.04, 0.8))[:, None, :, :]
    never = random.random((1, 1, classes, classes)) < 0.08
    pair = np.where(never | never.transpose(0, 1, 3, 2), np.nan, pair)
    both = np.minimum(1.0, 0.92 * (use_here[:, :, None] + use_here[:, None, :])) ** 0.8
    pair_w = (idle[:, None, None] + (most - idle)[:, None, None] * both)[:, None]
    pair_w = pair_w * sizes[None, :, None, None]
    names = [f"drawn-{index:04d}" for index in range(classes)]
    return World(
        list(_TYPES), idle.tolist(), facts[:, 4].tolist(), names, alone, alone_w, pair, pair_w
    )


def table_world(path: Path, source: str = "gavel_simulation") -> World:
    """A world from a throughput table; its power is a model, drawn by class."""
    import pandas as pd

    try:
        table = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot be read: {error}", where=str(path)) from error
    if "source" in table:
        table = table[table["source"] == source]
    types = sorted(set(table["gpu_type"]) & set(_TYPES))
    table = table[table["gpu_type"].isin(types) & table["scale_factor"].isin(_SIZES)]
    classes = sorted(table.loc[table["partner_job_type"].notna(), "job_type"].unique())
    if not types or not classes:
        raise InvalidInput("has no pairs on a known GPU type", where=str(path))
    table = table[table["job_type"].isin(classes) & table["feasible"]]
    shape = (len(types), len(_SIZES), len(classes))
    alone, pair = np.full(shape, np.nan), np.full((*shape, len(classes)), np.nan)
    at_type = {name: i for i, name in enumerate(types)}
    at_class = {name: i for i, name in enumerate(classes)}
    for row in table.itertuples():
        place = (at_type[row.gpu_type], _SIZES.index(row.scale_factor), at_class[row.job_type])
        if isinstance(row.partner_job_type, str):
            if row.partner_job_type in at_class:
                pair[(*place, at_class[row.partner_job_type])] = row.throughput
        else:
            alone[place] = row.throughput
    random = np.random.default_rng([7, len(classes)])
    use = random.uniform(0.35, 0.95, len(classes))
    facts = np.array([_TYPES[name] for name in types])
    idle, most, sizes = facts[:, 2], facts[:, 3], np.array(_SIZES)
    watts = idle[:, None] + (most - idle)[:, None] * use[None, :]
    both = np.minimum(1.0, 0.92 * (use[:, None] + use[None, :]))
    pair_w = idle[:, None, None] + (most - idle)[:, None, None] * both[None]
    return World(
        types,
        idle.tolist(),
        facts[:, 4].tolist(),
        classes,
        alone,
        watts[:, None, :] * sizes[None, :, None],
        pair,
        pair_w[:, None] * sizes[None, :, None, None],
    )


def generate(
    jobs: int,
    gpus: int,
    seed: int = 0,
    *,
    throughput: Path | None = None,
    trace: Path | None = None,
    waiting_penalty_w: float = _WAITING_W,
    spread: bool | float = False,
    own_classes: bool = False,
    pair_sizes: tuple[int, ...] = (1,),
    server_gpus: int = 8,
) -> Problem:
    """A problem of that many jobs on that many GPUs, all jobs new; sizes and owners of a trace.

    `spread` is the share of spread jobs.
    """
    if jobs < 1 or gpus < 1:
        raise InvalidInput(f"{jobs} jobs on {gpus} GPUs", todo="give numbers from 1")
    world = drawn_world(seed) if throughput is None else table_world(throughput)
    random = np.random.default_rng([seed, 2])
    servers = _servers(world, gpus, server_gpus)
    traced = None if trace is None else traced_jobs(trace, jobs, seed)
    made = _jobs(world, random, jobs, spread, server_gpus, traced)
    if own_classes:
        made, table = _own(world, made, random, pair_sizes)
    else:
        table = _table(world, np.arange(len(world.classes)), world.classes, pair_sizes)
    idle = dict(zip(world.types, world.idle_w, strict=True))
    known = set(table.classes)
    made = [job for job in made if job.job_class in known]
    return Problem(300.0, waiting_penalty_w, idle, servers, made, table)


def _servers(world: World, gpus: int, size: int) -> list[ProblemServer]:
    number = max(1, round(gpus / size))
    return [
        ProblemServer(
            f"{world.types[i % len(world.types)]}-{i:05d}",
            world.types[i % len(world.types)],
            size,
            world.base_w[i % len(world.types)] * size / 8,
            on=False,
        )
        for i in range(number)
    ]


def _jobs(
    world: World,
    random: np.random.Generator,
    number: int,
    spread: bool | float,
    largest: int,
    traced: Sequence[TracedJob] | None = None,
) -> list[ProblemJob]:
    made = []
    single = np.nan_to_num(world.alone[:, 0, :])
    known = {name: at for at, name in enumerate(world.classes)}
    for index in range(number):
        c = int(random.integers(len(world.classes)))
        size = int(random.choice(len(_SIZES), p=_SHARE))
        seen = None if traced is None else traced[index]
        if seen is not None:
            c = known.get(seen.job_class or "", c)
            size = min(int(np.searchsorted(_SIZES, seen.gpus)), len(_SIZES) - 1)
        while _SIZES[size] > largest or not np.isfinite(world.alone[:, size, c]).any():
            size -= 1
        reach = world.alone[:, size, c]
        reach = reach[np.isfinite(reach)]
        part = float(random.uniform(0.25, 0.95)) * (1.0 if seen is None else seen.share)
        need = float(part * random.choice(reach))
        priority = float(random.choice([1.0, 1.0, 1.0, 2.0, 4.0]))
        if spread == 1 or (spread and random.random() < spread):
            need = float(random.uniform(0.5, 2.2) * np.median(single[:, c][single[:, c] > 0]))
            job = ProblemJob(
                f"job-{index:06d}",
                world.classes[c],
                "spread",
                max_gpus=4,
                required_throughput=round(need, 6),
                priority=priority,
                move_cost_j=30000.0,
            )
        else:
            counts = [_SIZES[size]]
            if size + 1 < len(_SIZES) and _SIZES[size + 1] <= largest and random.random() < 0.2:
                counts.append(_SIZES[size + 1])
            job = ProblemJob(
                f"job-{index:06d}",
                world.classes[c],
                gpu_counts=tuple(counts),
                required_throughput=round(need, 6),
                priority=priority,
                shareable=bool(random.random() < 0.9),
                move_cost_j=float(random.choice([15000.0, 30000.0, 60000.0])),
            )
        if seen is not None:
            job = replace(job, owner=seen.owner, since_s=seen.age_s)
        made.append(job)
    return made


def _own(
    world: World, jobs: list[ProblemJob], random: np.random.Generator, pair_sizes: tuple[int, ...]
) -> tuple[list[ProblemJob], OptionTable]:
    """Every job a class of its own: figures of its class with noise of their own."""
    index = {name: i for i, name in enumerate(world.classes)}
    origin = np.array([index[job.job_class] for job in jobs])
    named = [replace(job, job_class=f"own-{job.id}") for job in jobs]
    noise = np.exp(random.normal(0, 0.05, len(jobs)))
    renamed = [job.job_class for job in named]
    return named, _table(world, origin, renamed, pair_sizes, noise, own=True)


def _table(
    world: World,
    origin: npt.NDArray[np.int64],
    names: list[str],
    pair_sizes: tuple[int, ...],
    noise: Floats | None = None,
    own: bool = False,
) -> OptionTable:
    number = len(names)
    factor = np.ones(number) if noise is None else noise
    parts: list[list[Any]] = [[] for _ in range(8)]

    def add(t: int, m: int, a: Any, b: Any, got: tuple[Any, Any], watts: Any) -> None:
        size = len(a)
        columns = (np.full(size, t), np.full(size, m), a, b, got[0], got[1], watts)
        for part, column in zip(parts, columns, strict=False):
            part.append(np.asarray(column))
        parts[7].append(np.full(size, np.nan))

    first, second = np.array(list(combinations_with_replacement(range(number), 2))).T
    if own:
        first, second = first[first != second], second[first != second]
    for t in range(len(world.types)):
        for s, m in enumerate(_SIZES):
            got = world.alone[t, s, origin] * factor
            good = np.flatnonzero(np.isfinite(got) & (got > 0))
            none = np.full(len(good), -1)
            add(
                t,
                m,
                good,
                none,
                (got[good], np.zeros(len(good))),
                world.alone_w[t, s, origin[good]],
            )
            if m not in pair_sizes or (own and m > 1):
                continue
            a, b = origin[first], origin[second]
            mine, theirs = (
                world.pair[t, s, a, b] * factor[first],
                world.pair[t, s, b, a] * factor[second],
            )
            fine = np.isfinite(mine) & np.isfinite(theirs) & (mine > 0) & (theirs > 0)
            theirs = np.where(first == second, mine, theirs)
            add(
                t,
                m,
                first[fine],
                second[fine],
                (mine[fine], theirs[fine]),
                world.pair_w[t, s, a[fine], b[fine]],
            )
    flat = [np.concatenate(part) for part in parts]
    ints = [column.astype(np.int64) for column in flat[:4]]
    floats = [column.astype(np.float64) for column in flat[4:]]
    return OptionTable(world.types, names, *ints[:4], *floats[:4])  # type: ignore[arg-type]


def churned(problem: Problem, plan: Plan, share: float, seed: int) -> Problem:
    """The problem after its plan was carried out and a share of the jobs was exchanged."""
    random = np.random.default_rng([seed, 3])
    places: dict[str, list[Slot]] = {}
    for placement in plan.placements:
        places.setdefault(placement.job, []).extend(placement.slots)
    gone = set(random.choice(len(problem.jobs), round(share * len(problem.jobs)), False).tolist())
    jobs = []
    for index, job in enumerate(problem.jobs):
        if index in gone:
            jobs.append(replace(job, id=f"new-{job.id}", at=()))
        else:
            jobs.append(replace(job, at=tuple(places.get(job.id, ()))))
    mix = random.permutation(len(problem.jobs))
    fresh = [i for i in mix.tolist() if i in gone]
    # A new job takes the class, size and requirement of some other job, not of the one that left.
    jobs = [
        replace(
            job,
            job_class=problem.jobs[fresh[(k * 7 + 3) % len(fresh)]].job_class,
            gpu_counts=problem.jobs[fresh[(k * 7 + 3) % len(fresh)]].gpu_counts,
            required_throughput=problem.jobs[fresh[(k * 7 + 3) % len(fresh)]].required_throughput,
        )
        if k in gone
        else job
        for k, job in enumerate(jobs)
    ]
    used = {slot.server for slots in places.values() for slot in slots}
    servers = [replace(server, on=server.id in used) for server in problem.servers]
    return replace(problem, jobs=jobs, servers=servers)


def young(problem: Problem, share: float, seed: int) -> Problem:
    """The problem with a share of its running jobs too young to be moved."""
    random = np.random.default_rng([seed, 4])
    jobs = [
        replace(job, movable=False) if job.at and random.random() < share else job
        for job in problem.jobs
    ]
    return replace(problem, jobs=jobs)


def write_problem(problem: Problem, path: Path) -> None:
    """A problem file; more than 50,000 options go beside it as Parquet."""
    large = len(problem.table) > 50_000
    raw: dict[str, Any] = problem.to_dict(options=not large)
    if large:
        file = path.with_suffix(".options.parquet")
        _write_options(problem.table, file)
        raw["options"] = {"file": file.name}
    path.write_text(json.dumps(raw) + "\n", encoding="utf-8")


def _write_options(table: OptionTable, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pair = table.class_b >= 0
    offsets = np.concatenate([[0], np.cumsum(1 + pair)]).astype(np.int32)
    flat_class = np.empty(offsets[-1], dtype=np.int32)
    flat_got = np.empty(offsets[-1])
    flat_class[offsets[:-1]], flat_got[offsets[:-1]] = table.class_a, table.throughput_a
    second = offsets[:-1][pair] + 1
    flat_class[second], flat_got[second] = table.class_b[pair], table.throughput_b[pair]
    names = pa.DictionaryArray.from_arrays(pa.array(flat_class), pa.array(table.classes))
    types = pa.DictionaryArray.from_arrays(
        pa.array(table.type_id.astype(np.int32)), pa.array(table.types)
    )
    columns: Mapping[str, Any] = {
        "gpu_type": types.cast(pa.string()),
        "gpus": pa.array(table.gpus),
        "classes": pa.ListArray.from_arrays(pa.array(offsets), names.cast(pa.string())),
        "throughput": pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat_got)),
        "power_w": pa.array(table.power_w),
        "power_limit_w": pa.array(table.limit_w, mask=np.isnan(table.limit_w)),
    }
    pq.write_table(pa.table(dict(columns)), path)
