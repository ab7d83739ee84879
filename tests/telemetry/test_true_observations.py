"""What is observed on the embedded cluster agrees with its truth, whoever moves or shares."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gogh_core.domain import JobState, JobStatus, Mode, Slot
from gogh_core.settings import Settings
from gogh_core.simulation import SAMPLE_PERIOD_S, SimulatedCluster, open_cluster
from gogh_core.store import Store
from gogh_core.telemetry import ingest, record_state
from tests.conftest import own_settings
from tests.telemetry.world import at, opened, put, rows_of, stamp, state_of, take_in

_GPUS = [Slot(server, (gpu,)) for server in ("a100-01", "v100-01") for gpu in range(4)]
_OBSERVED = """
    SELECT o.job_class, o.partner_class, o.gpu_type, o.gpus, o.server_id, o.gpu_indices,
           o.throughput, j.mode = 'spread' AS serving
    FROM observations AS o JOIN jobs AS j USING (job_id)
"""


def seed_0(home: Path) -> tuple[Settings, Store, SimulatedCluster]:
    simulation = {"seed": 0, "jobs_per_hour": 120.0, "servers": 6}
    telemetry = {"sample_period_s": float(SAMPLE_PERIOD_S)}
    settings = own_settings(home, simulation=simulation, telemetry=telemetry)
    store = Store(settings)
    store.migrate()
    return settings, store, open_cluster(settings, store)


def shuffle(cluster: SimulatedCluster, rng: np.random.Generator, keys: Iterator[int]) -> None:
    """Serving jobs keep one replica and change the others; training jobs start, stay or move."""
    state = cluster.state()
    wanted = [
        status
        for mode, most in ((Mode.SPREAD, 3), (Mode.GANG, 5))
        for status in [s for s in state.jobs if _suits(s, mode)][:most]
    ]
    for status in wanted:
        users = Counter(slot for s in cluster.state().jobs for slot in s.slots)
        users.subtract(status.slots)
        drawn = [_GPUS[i] for i in rng.permutation(len(_GPUS)) if users[_GPUS[i]] < 2]
        runs = status.state is JobState.RUNNING
        if status.job.mode is Mode.SPREAD:
            kept = [status.slots[rng.integers(len(status.slots))]] if runs else []
            drawn = [*kept, *(slot for slot in drawn if slot not in kept)][:3]
        elif runs and rng.random() < 0.6:
            continue
        else:
            drawn = drawn[:1]
        act = cluster.move if runs else cluster.place
        slots = tuple(drawn[: max(1, status.job.max_gpus)])
        act(status.job.id, slots, partner=None, power_limit_w=None, key=str(next(keys)))


def _suits(status: JobStatus, mode: Mode) -> bool:
    return (
        status.state in (JobState.WAITING, JobState.RUNNING)
        and status.job.mode is mode
        and status.job.shareable is True
        and status.job.movable
        and (mode is Mode.SPREAD or 1 in status.job.gpu_counts)
    )


def errors(cluster: SimulatedCluster, store: Store) -> dict[tuple[bool, bool], list[float]]:
    """How far observations are from the truth, by (serving, paired)."""
    world: Any = cluster._world
    found: dict[tuple[bool, bool], list[float]] = {}
    for row in rows_of(store, _OBSERVED):
        own, partner, gpu_type, gpus, server, indices, throughput, serving = row
        run = world.truth.run(gpu_type, gpus, (own, partner) if partner else (own,))
        assert run is not None, row
        true = run.throughput[0] * min(world.speed(server, gpu) for gpu in indices)
        found.setdefault((serving, partner is not None), []).append(abs(throughput / true - 1))
    return found


def test_observations_agree_with_the_truth(tmp_path: Path) -> None:
    settings, store, cluster = seed_0(tmp_path)
    rng, keys = np.random.default_rng(0), itertools.count()
    for number in range(6):
        ingest(store, settings, now=cluster.now, state=cluster.state())
        shuffle(cluster, rng, keys)
        if number % 3 == 2:  # replicas that were just placed have not begun yet
            ingest(store, settings, now=cluster.now, state=cluster.state())
        cluster.advance(settings.cycle.window_s)
    ingest(store, settings, now=cluster.now, state=cluster.state())
    found = errors(cluster, store)
    for key in itertools.product((False, True), repeat=2):
        wrong = np.array(found[key])
        assert len(wrong) >= 4, (key, len(wrong))
        assert (wrong < 0.1).all(), (key, f"{(wrong > 0.3).mean():.0%} are off by more than 30 %")


def test_a_change_has_the_time_it_was_seen_never_an_older_one(tmp_path: Path) -> None:
    servers = [("s1", "v100", 4), ("s2", "a100", 4)]
    first, second, third = Slot("s1", (0,)), Slot("s2", (0,)), Slot("s2", (1,))
    began = state_of(servers, [("gang", (first,)), ("serve", (second, third))])
    began = replace(began, jobs=(began.jobs[0], _serving(began.jobs[1])))
    settings, store = opened(tmp_path, began)
    moved = state_of(servers, [("gang", (second,)), ("serve", (second, first))], now=at(300))
    moved = replace(moved, jobs=(moved.jobs[0], _serving(moved.jobs[1])))
    for seen in (moved, replace(moved, at=at(600))):  # the second time, nothing has changed
        record_state(store, settings, seen, now=seen.at)
    logged = rows_of(
        store,
        "SELECT job_id, event, server_id, gpus[1], partner_job_id, epoch(ts) FROM job_events "
        f"WHERE ts > '{at(0).isoformat()}' ORDER BY ALL",
    )
    seen_at = at(300).timestamp()
    assert logged == [
        ("gang", "started", "s2", 0, "serve", seen_at),
        ("gang", "stopped", "s1", 0, "serve", seen_at),
        ("serve", "started", "s1", 0, None, seen_at),
        ("serve", "stopped", "s2", 1, None, seen_at),
    ]


def test_a_job_that_ended_between_two_looks_did_not_end_when_it_was_submitted(
    tmp_path: Path,
) -> None:
    state = state_of([("s1", "v100", 4)], [("quick", ())])
    settings, store = opened(tmp_path, state)
    quick = state.jobs[0]
    over = replace(quick, state=JobState.FINISHED, since=quick.job.submitted_at)
    record_state(store, settings, replace(state, at=at(300), jobs=(over,)), now=at(300))
    ended = rows_of(store, "SELECT epoch(ts) FROM job_events WHERE event = 'finished'")
    assert ended == [(at(300).timestamp(),)]


def test_replicas_that_begin_on_one_server_at_one_moment_are_two_events(tmp_path: Path) -> None:
    state = state_of([("s1", "v100", 4)], [("serve", ())])
    settings, store = opened(tmp_path, replace(state, jobs=(_serving(state.jobs[0]),)))
    lines = [
        json.dumps(
            {
                "ts": stamp(20),
                "job_id": "serve",
                "event": "started",
                "server_id": "s1",
                "gpus": [gpu],
            }
        )
        for gpu in (0, 1, 1)
    ]
    put(settings, "events/told.jsonl", "\n".join(lines) + "\n")
    take_in(settings, store, at(60))
    started = "SELECT gpus[1] FROM job_events WHERE event = 'started' ORDER BY ALL"
    assert rows_of(store, started) == [(0,), (1,)]


def _serving(status: JobStatus) -> JobStatus:
    return replace(status, job=replace(status.job, mode=Mode.SPREAD, max_gpus=4))
