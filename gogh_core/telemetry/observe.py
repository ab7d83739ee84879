"""Observations: for each (job, GPU type, GPUs, partner, window) what was really reached.

`observe` computes those whose rows arrived since the last time (late ones too) and replaces what
was there. On a shared GPU the device's power is split equally between the two jobs and marked as
estimated: neither NVML nor DCGM tells how much each of them draws.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from gogh_core.contracts import Suite, as_batch, check_batch, load_suites
from gogh_core.contracts import record as record_run
from gogh_core.settings import Settings
from gogh_core.store import fetch
from gogh_core.telemetry.rates import Rate, Reports, robust_rate
from gogh_core.telemetry.stays import Stay, Stretch, build_stays, read_events, stretches
from gogh_core.telemetry.take import fill_temporary

__all__ = ["observe"]

_CHECKPOINT_S = 5.0  # cut around a checkpoint that the cluster manager told of
_MIN_POWER_SAMPLES = 3


@dataclass(frozen=True, slots=True)
class _Key:
    job: str
    gpu_type: str
    gpus: int
    partner: str | None
    window: float


@dataclass(slots=True)
class _World:
    """What the observations are made from."""

    jobs: dict[str, dict[str, Any]]
    servers: dict[str, dict[str, Any]]
    stays: list[Stay]
    spread: dict[str, bool]
    checkpoints: dict[str, list[tuple[float, float]]]


def observe(
    connection: duckdb.DuckDBPyConnection,
    settings: Settings,
    *,
    now: datetime,
    suite: Suite | None = None,
) -> int:
    """Compute the observations that new rows touch, in the caller's transaction; how many."""
    touched = fetch(connection, "telemetry_touched").to_pylist()
    if not touched:
        return 0
    suite = suite or load_suites(settings)["observations"]
    windows: dict[float, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for row in touched:
        jobs, servers = windows[row["window_start"]]
        (servers if row["table_name"] == "gpu_samples" else jobs).add(row["entity"])
    world = _load(connection, min(windows), max(windows) + settings.cycle.window_s)
    found, redone = _stretches(world, windows, settings)
    rates = _rates(connection, world, found, settings)
    energies = _energies(connection, found, settings)
    rows = _rows(world, found, rates, energies, settings=settings, now=now)
    return _store(connection, suite, rows, redone, settings=settings, now=now)


def _load(connection: duckdb.DuckDBPyConnection, since: float, until: float) -> _World:
    jobs = {row["job_id"]: row for row in fetch(connection, "telemetry_stay_jobs").to_pylist()}
    listed = fetch(connection, "telemetry_stay_servers").to_pylist()
    servers = {row["server_id"]: row for row in listed}
    spread = {job: bool(row["spread"]) for job, row in jobs.items()}
    events = read_events(connection, since=since, until=until)
    checkpoints: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event.event == "checkpointed":
            checkpoints[event.job].append((event.ts - _CHECKPOINT_S, event.ts + _CHECKPOINT_S))
    return _World(jobs, servers, build_stays(events, spread), spread, checkpoints)


def _stretches(
    world: _World, windows: Mapping[float, tuple[set[str], set[str]]], settings: Settings
) -> tuple[dict[_Key, list[Stretch]], set[tuple[str, float]]]:
    """Stretches by what they are an observation of, and the (job, window) to be replaced."""
    found: dict[_Key, list[Stretch]] = defaultdict(list)
    redone: set[tuple[str, float]] = set()
    for window, (jobs, servers) in windows.items():
        day = math.floor(window / 86400) * 86400 + 86400
        end = min(window + settings.cycle.window_s, day)
        redone.update((job, window) for job in jobs)
        for stretch in stretches(world.stays, world.spread, window, end):
            if stretch.job not in jobs and not any(
                server in servers for server, _ in stretch.places
            ):
                continue
            redone.add((stretch.job, window))
            types = {world.servers.get(server, {}).get("gpu_type") for server, _ in stretch.places}
            gpu_type = types.pop() if len(types) == 1 else None
            known = stretch.job in world.jobs and (
                stretch.partner is None or stretch.partner in world.jobs
            )
            if gpu_type is not None and known:
                key = _Key(stretch.job, gpu_type, stretch.gpus, stretch.partner, window)
                found[key].append(stretch)
    return found, redone


def _warm(stretch: Stretch, settings: Settings) -> float:
    return max(stretch.start, stretch.since + settings.telemetry.warmup_s)


def _rates(
    connection: duckdb.DuckDBPyConnection,
    world: _World,
    found: Mapping[_Key, Sequence[Stretch]],
    settings: Settings,
) -> dict[_Key, Rate]:
    if not found:
        return {}
    wanted = sorted({key.job for key in found})
    connection.register("wanted_jobs", pa.table({"job_id": pa.array(wanted, pa.string())}))
    # A replica's first report tells which stay it belongs to, so look back to the earliest one.
    since = min(stretch.since for listed in found.values() for stretch in listed)
    until = max(stretch.end for listed in found.values() for stretch in listed)
    since = max(since, until - 86400.0)
    table = fetch(connection, "telemetry_stay_progress", since=since, until=until)
    reports = _by_rank(table)
    ranks = {job: _ranks_of(world, job, reports.get(job, {})) for job in wanted}
    rates: dict[_Key, Rate] = {}
    for key, listed in found.items():
        by_rank: dict[int, list[Reports]] = defaultdict(list)
        for stretch in listed:
            rank = ranks[key.job].get(id(stretch.stay))
            own = reports.get(key.job, {}).get(-1 if rank is None else rank)
            start = _warm(stretch, settings)
            if own is not None and start < stretch.end:
                by_rank[rank or 0].append(own.between(start, stretch.end))
        pauses = world.checkpoints.get(key.job, ())
        one = [rate for parts in by_rank.values() if (rate := robust_rate(parts, pauses))]
        if one:  # replicas with the same GPU type and partner are measurements of the same thing
            rates[key] = max(one, key=lambda rate: rate.samples) if len(one) == 1 else _mean(one)
    return rates


def _mean(rates: Sequence[Rate]) -> Rate:
    weights = np.array([rate.seconds for rate in rates])
    mean = float(np.average([rate.throughput for rate in rates], weights=weights))
    spread = float(np.average([rate.spread for rate in rates], weights=weights))
    between = float(np.std([rate.throughput for rate in rates]))
    return Rate(
        mean, math.hypot(spread, between), sum(r.samples for r in rates), float(weights.sum())
    )


def _by_rank(table: pa.Table) -> dict[str, dict[int, Reports]]:
    found: dict[str, dict[int, Reports]] = defaultdict(dict)
    if not len(table):
        return found
    jobs = np.asarray(table["job_id"].to_pylist(), dtype=object)
    ranks = np.asarray(table["rank"])
    cuts = np.flatnonzero((jobs[1:] != jobs[:-1]) | (ranks[1:] != ranks[:-1])) + 1
    edges = [0, *cuts.tolist(), len(jobs)]
    ts, steps = np.asarray(table["ts"]), np.asarray(table["steps"])
    attempt = np.asarray(table["attempt"]).astype(np.float64)
    marks = table["checkpoint"].to_numpy(zero_copy_only=False)
    for lo, hi in itertools.pairwise(edges):
        part = slice(lo, hi)
        found[str(jobs[lo])][int(ranks[lo])] = Reports(
            ts[part], steps[part], attempt[part], marks[part]
        )
    return found


def _ranks_of(world: _World, job: str, reports: Mapping[int, Reports]) -> dict[int, int]:
    """Which rank reports for which stay: a gang's lowest; replicas in the order they began."""
    stays = sorted((stay for stay in world.stays if stay.job == job), key=lambda stay: stay.start)
    if not reports:
        return {}
    if not world.spread.get(job, False):
        lowest = min(reports)
        return {id(stay): lowest for stay in stays}
    matched: dict[int, int] = {}
    free = list(stays)
    for rank in sorted(reports, key=lambda rank: (reports[rank].ts[0], rank)):
        first, last = float(reports[rank].ts[0]), float(reports[rank].ts[-1])
        for stay in free:
            if stay.start <= first + 1.0 and last <= stay.end + 1.0:
                matched[id(stay)] = rank
                free.remove(stay)
                break
    return matched


def _energies(
    connection: duckdb.DuckDBPyConnection,
    found: Mapping[_Key, Sequence[Stretch]],
    settings: Settings,
) -> dict[int, dict[str, Any]]:
    """Energy of each key's GPUs after the warm-up, whole devices, by the key's number."""
    columns: dict[str, list[Any]] = {
        name: [] for name in ("key", "server_id", "gpu_index", "ts_from", "ts_to")
    }
    for number, listed in enumerate(found.values()):
        for stretch in listed:
            start = _warm(stretch, settings)
            if start >= stretch.end:
                continue
            for server, gpus in stretch.places:
                for gpu in gpus:
                    for name, value in zip(
                        columns, (number, server, gpu, start, stretch.end), strict=True
                    ):
                        columns[name].append(value)
    if not columns["key"]:
        return {}
    connection.register("pieces", pa.table(columns))
    lo, hi = min(columns["ts_from"]), max(columns["ts_to"])
    rows = fetch(connection, "telemetry_stay_power", since=lo, until=hi).to_pylist()
    return {row["key"]: row for row in rows}


def _rows(
    world: _World,
    found: Mapping[_Key, Sequence[Stretch]],
    rates: Mapping[_Key, Rate],
    energies: Mapping[int, Mapping[str, Any]],
    *,
    settings: Settings,
    now: datetime,
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, (key, listed) in enumerate(found.items()):
        rate = rates.get(key)
        if rate is None:
            continue
        seconds = sum(max(0.0, s.end - _warm(s, settings)) * (s.gpus / key.gpus) for s in listed)
        energy = energies.get(number)
        power_w = energy_j = None
        if energy and energy["samples"] >= _MIN_POWER_SAMPLES and seconds > 0:
            share = 0.5 if key.partner else 1.0
            energy_j = share * energy["energy_j"]
            power_w = energy_j / seconds
        window = datetime.fromtimestamp(key.window, UTC)
        identity = f"{key.job}|{key.gpu_type}|{key.gpus}|{key.partner}|{key.window}"
        places = listed[-1].places
        job = world.jobs[key.job]
        partner = world.jobs[key.partner]["job_class"] if key.partner else None
        going_on = listed[-1].stay.open
        rows.append(
            {
                "observation_id": hashlib.sha256(identity.encode()).hexdigest()[:24],
                "job_id": key.job,
                "job_class": job["job_class"],
                "gpu_type": key.gpu_type,
                "gpus": key.gpus,
                "partner_job_id": key.partner,
                "partner_class": partner,
                "server_id": places[0][0],
                "gpu_indices": list(places[0][1]),
                "window_start": window,
                "window_end": window + timedelta(seconds=settings.cycle.window_s),
                "throughput": rate.throughput,
                "throughput_spread": rate.spread,
                "samples": rate.samples,
                "unit": job["unit"],
                "power_w": power_w,
                "energy_j": energy_j,
                "power_estimated": key.partner is not None,
                "power_limit_w": world.servers[places[0][0]]["power_limit_w"] if going_on else None,
                "computed_at": now,
            }
        )
    return rows


_TYPES = {
    "observation_id": pa.string(),
    "job_id": pa.string(),
    "job_class": pa.string(),
    "gpu_type": pa.string(),
    "gpus": pa.int32(),
    "partner_job_id": pa.string(),
    "partner_class": pa.string(),
    "server_id": pa.string(),
    "gpu_indices": pa.list_(pa.int32()),
    "window_start": pa.timestamp("us", "UTC"),
    "window_end": pa.timestamp("us", "UTC"),
    "throughput": pa.float64(),
    "throughput_spread": pa.float64(),
    "samples": pa.int64(),
    "unit": pa.string(),
    "power_w": pa.float64(),
    "energy_j": pa.float64(),
    "power_estimated": pa.bool_(),
    "power_limit_w": pa.float64(),
    "computed_at": pa.timestamp("us", "UTC"),
}


def _store(
    connection: duckdb.DuckDBPyConnection,
    suite: Suite,
    rows: Sequence[Mapping[str, Any]],
    redone: set[tuple[str, float]],
    *,
    settings: Settings,
    now: datetime,
) -> int:
    count = len(rows)
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in _TYPES.items()}
    # Each stands for itself: no share of bad ones makes the others refused.
    columns["part"] = pa.array(range(count), pa.int32())
    verdict = check_batch(connection, suite, as_batch(pa.table(columns)), now=now)
    observed = ["observe"] * count
    parts = {"part": columns["part"], "batch_id": observed, "source": observed}
    connection.register("parts", pa.table(parts))
    fill_temporary(connection, "observations", verdict, late_s=settings.telemetry.late_s)
    fetch(connection, "telemetry_aside", table="observations", now=now)
    pairs = sorted(redone)
    connection.register(
        "redone",
        pa.table(
            {
                "job_id": pa.array([job for job, _ in pairs], pa.string()),
                "window_start": pa.array([window for _, window in pairs], pa.float64()),
            }
        ),
    )
    fetch(connection, "telemetry_observed")
    run_id = f"observe-{now:%Y%m%dT%H%M%S}"
    record_run(connection, suite, verdict, run_id=run_id, sources=["observe"], now=now)
    bad = len(set(verdict.failures["row_id"].to_pylist()))
    return count - bad
