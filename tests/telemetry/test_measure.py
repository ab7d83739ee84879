"""Energy and promises of windows, against figures worked out by hand.

One server of two GPUs (base 200 W, 10 W when off, a switch costs 18 kJ: 90 s of its base draw);
windows of five minutes from 09:00, samples and reports every ten seconds.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gogh_core.contracts import load_suites
from gogh_core.domain import (
    ClusterState,
    Descriptors,
    Job,
    JobState,
    JobStatus,
    PowerState,
    Server,
    ServerStatus,
)
from gogh_core.settings import Settings
from gogh_core.store import Store, append_rows
from gogh_core.telemetry import measure, observe, record_state
from tests.conftest import own_settings
from tests.telemetry.world import START, at, rows_of

Row = dict[str, Any]
HOUR = timedelta(hours=1)
SERVER = {
    "server_id": "s1",
    "base_w": 200.0,
    "off_w": 10.0,
    "switch_cost_j": 18_000.0,
    "gpus": 2,
    "foreign_gpus": pa.array([], pa.int32()).to_pylist(),
}


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without rows, made once."""
    store = Store(own_settings(tmp_path_factory.mktemp("migrated")))
    store.migrate()
    return store.path


@pytest.fixture
def store(settings: Settings, migrated: Path) -> Store:
    settings.home.mkdir(parents=True)
    shutil.copyfile(migrated, settings.database)
    return Store(settings)


def put(store: Store, **tables: Iterable[Row]) -> None:
    with store.write() as connection:
        for table, entries in tables.items():
            append_rows(connection, table, pa.Table.from_pylist(list(entries)))


def powered(*changes: tuple[float, str], **more: Any) -> list[Row]:
    return [SERVER | {"since": at(s), "power": power} | more for s, power in changes]


def samples(since_s: float, until_s: float, watts: float = 100.0, gpus: Iterable[int] = (0, 1)):
    """Every ten seconds; a sample speaks for the ten seconds before it."""
    return [
        {"ts": at(s), "server_id": "s1", "gpu_index": gpu, "power_w": watts}
        for s in range(int(since_s) + 10, int(until_s) + 1, 10)
        for gpu in gpus
    ]


def job(name: str, state: str = "running", **more: Any) -> Row:
    return {
        "job_id": name,
        "job_class": "A",
        "model": "A",
        "kind": "training",
        "mode": "gang",
        "gpu_counts": [1],
        "max_gpus": 1,
        "required_throughput": 10.0,
        "unit": "steps/s",
        "priority": 1.0,
        "shareable": "true",
        "movable": True,
        "move_cost_j": 0.0,
        "submitted_at": START,
        "state": state,
        "seen_at": START + HOUR,
        **more,
    }


def promise(name: str, steps_s: float = 10.0, since_s: float = 0.0) -> Row:
    return {"job_id": name, "since": at(since_s), "required_throughput": steps_s}


def event(name: str, second: float, kind: str) -> Row:
    return {"job_id": name, "ts": at(second), "event": kind, "server_id": "s1", "gpus": [0]}


def reports(name: str, since_s: float, until_s: float, steps_s: float, rank: int = 0, attempt=0):
    """The first comes ten seconds after the start."""
    return [
        {
            "ts": at(s),
            "job_id": name,
            "steps": steps_s * (s - since_s),
            "rank": rank,
            "attempt": attempt,
        }
        for s in range(int(since_s) + 10, int(until_s) + 1, 10)
    ]


def measured(store: Store, until_s: float, window: int = 0) -> Row:
    """What is said of a window when that moment has come."""
    touched = [
        {"table_name": "gpu_samples", "entity": "s1", "window_start": at(300 * n)} for n in (0, 1)
    ]
    put(store, touched=touched)
    with store.write() as connection:
        measure(connection, store.settings, now=at(until_s))
        connection.execute("DELETE FROM touched")
        rows = connection.sql("FROM windows").to_arrow_table().to_pylist()
    return {row["window_start"]: row for row in rows}[at(300 * window)]


def test_energy_is_power_over_time_and_what_the_servers_draw_themselves(store: Store) -> None:
    put(store, server_states=powered((0, "on")), gpu_samples=samples(0, 300))
    row = measured(store, 300)
    assert (row["measured_w"], row["covered"], row["over"]) == (400, 1, True)
    assert row["energy_kwh"] == pytest.approx(400 * 300 / 3.6e6)


def test_a_server_counts_for_the_time_it_was_on(store: Store) -> None:
    """Off for a minute at 10 W, booting for 90 s at 200 W, on for the rest."""
    put(
        store,
        server_states=powered((0, "off"), (150, "on")),
        gpu_samples=samples(150, 300),
    )
    row = measured(store, 300)
    assert row["measured_w"] == pytest.approx((60 * 10 + 90 * 200 + 150 * 400) / 300)
    assert row["covered"] == 1


def test_a_boot_that_was_seen_is_not_counted_twice(store: Store) -> None:
    put(
        store,
        server_states=powered((0, "off"), (120, "switching_on"), (180, "on"), (240, "down")),
        gpu_samples=samples(180, 240),
    )
    row = measured(store, 300)
    assert row["measured_w"] == pytest.approx((120 * 10 + 60 * 200 + 60 * 400) / 300)


def test_a_sample_at_the_very_start_belongs_to_the_window_before(store: Store) -> None:
    put(
        store,
        server_states=powered((0, "on")),
        gpu_samples=[*samples(0, 300, 1000.0), *samples(300, 600, 100.0)],
    )
    assert measured(store, 600)["measured_w"] == 2200
    assert measured(store, 600, window=1)["measured_w"] == 400


def test_a_short_gap_is_bridged_and_a_long_one_is_told(store: Store) -> None:
    gaps = [s for s in samples(0, 300) if s["ts"] not in (at(60), at(200), at(210), at(300))]
    put(store, server_states=powered((0, "on")), gpu_samples=[*gaps, *samples(300, 330)])
    row = measured(store, 330)
    assert (row["measured_w"], row["covered"]) == (pytest.approx(400), pytest.approx(1))
    silent = [s for s in gaps if s["gpu_index"] == 0 or s["ts"] <= at(150)]
    with store.write() as connection:
        connection.execute("DELETE FROM gpu_samples")
    put(store, gpu_samples=silent)
    row = measured(store, 300)
    assert row["covered"] == pytest.approx((290 + 150) / 600)
    assert row["measured_w"] == pytest.approx(200 + 100 * 440 / 300)


def test_a_dead_gpu_is_not_missed(store: Store) -> None:
    put(
        store,
        server_states=powered((0, "on"), foreign_gpus=[1]),
        gpu_samples=samples(0, 300, gpus=[0]),
    )
    assert measured(store, 300)["covered"] == 1


def test_samples_that_have_aged_count(store: Store) -> None:
    put(store, server_states=powered((0, "on")), gpu_samples=samples(0, 300))
    assert store.age(START + 24 * HOUR).rows_moved == 60
    assert measured(store, 300)["measured_w"] == 400


def test_a_window_is_measured_as_far_as_it_has_come(store: Store) -> None:
    put(store, server_states=powered((0, "on")), gpu_samples=samples(0, 120))
    row = measured(store, 120)
    assert (row["over"], row["measured_s"], row["measured_w"]) == (False, 120, 400)
    put(store, gpu_samples=samples(120, 300, 200.0))
    row = measured(store, 300)
    assert (row["over"], row["measured_s"]) == (True, 300)
    assert row["measured_w"] == 200 + 2 * (120 * 100 + 180 * 200) / 300


def test_a_window_before_anything_was_known_of_the_servers_is_not_measured(store: Store) -> None:
    put(store, server_states=powered((60, "on")), gpu_samples=samples(0, 600))
    measured(store, 600, window=1)
    assert rows_of(store, "SELECT window_start FROM measured_windows") == [(at(300),)]


def test_a_late_row_does_not_take_aged_ones_out_of_an_observation(store: Store) -> None:
    server = {"server_id": "s1", "gpu_type": "v100", "gpus": 2, "base_w": 200.0, "power": "on"}
    put(
        store,
        servers=[server | {"seen_at": START}],
        jobs=[job("a")],
        job_events=[event("a", 0, "started")],
        gpu_samples=samples(0, 300),
        job_progress=reports("a", 0, 300, 10.0),
    )

    def observed() -> list[tuple[Any, ...]]:
        touched = {"table_name": "job_progress", "entity": "a", "window_start": START}
        put(store, touched=[touched])
        with store.write() as connection:
            observe(connection, store.settings, now=at(400))
        return rows_of(store, "SELECT throughput, power_w, samples FROM observations")

    before = observed()
    assert before == [(pytest.approx(10.0), pytest.approx(100.0), 27)]
    assert store.age(START + 24 * HOUR).rows_moved == 60 + 30
    assert observed() == before


# -- promises ------------------------------------------------------------------------------------


def kept(store: Store, *, window: int = 0, until_s: float = 300) -> float:
    put(store, server_states=powered((0, "on")))
    return float(measured(store, until_s, window)["kept"])


def test_waiting_counts_and_starting_and_moving_do(store: Store) -> None:
    """One job waits all the time; one starts at 60, moves from 180 to 240."""
    put(
        store,
        jobs=[job("a"), job("b", "waiting")],
        job_promises=[promise("a"), promise("b")],
        job_events=[
            event("a", 60, "started"),
            event("a", 180, "stopped"),
            event("a", 240, "moved"),
        ],
        job_progress=[*reports("a", 60, 180, 10.0), *reports("a", 240, 300, 10.0, attempt=1)],
    )
    assert kept(store) == 0.3


def test_a_promise_is_kept_from_95_percent_on(store: Store) -> None:
    names = {"a": 9.6, "b": 9.4}
    put(
        store,
        jobs=[job(name) for name in names],
        job_promises=[promise(name) for name in names],
        job_events=[event(name, 0, "started") for name in names],
        job_progress=[row for name, rate in names.items() for row in reports(name, 0, 300, rate)],
    )
    assert kept(store) == 0.5
    rows = rows_of(store, "SELECT job_id, throughput, kept_s FROM slo_windows ORDER BY job_id")
    assert rows == [("a", pytest.approx(9.6), 300), ("b", pytest.approx(9.4), 0)]


def test_a_promise_holds_from_when_it_was_given(store: Store) -> None:
    put(
        store,
        jobs=[job("a", mode="spread", required_throughput=12.0)],
        job_promises=[promise("a", 10.0), promise("a", 12.0, since_s=200)],
        job_events=[event("a", 0, "started")],
        job_progress=reports("a", 0, 300, 10.0),
    )
    assert kept(store) == pytest.approx(2 / 3)


def test_replicas_are_added_and_ranks_of_a_gang_are_not(store: Store) -> None:
    """The second replica of the spread job comes at 150; each does half of what is promised."""
    both = [*reports("a", 0, 300, 5.0), *reports("b", 0, 300, 5.0)]
    put(
        store,
        jobs=[job("a", mode="spread"), job("b")],
        job_promises=[promise("a"), promise("b")],
        job_events=[event("a", 0, "started"), event("b", 0, "started"), event("a", 150, "started")],
        job_progress=[
            *both,
            *reports("a", 150, 300, 5.0, rank=1),
            *reports("b", 0, 300, 5.0, rank=1),
        ],
    )
    assert kept(store) == pytest.approx(150 / 600)


def test_jobs_count_from_submission_to_their_end(store: Store) -> None:
    """One comes at 100 and waits; one is done at 200; one has no promise; one ended before."""
    put(
        store,
        jobs=[
            job("a", "waiting", submitted_at=at(100)),
            job("b", "finished"),
            job("c"),
            job("d", "failed", submitted_at=START - HOUR),
        ],
        job_promises=[promise("a", since_s=100), promise("b"), promise("c", 0.0), promise("d")],
        job_events=[
            event("b", 0, "started"),
            event("b", 200, "finished"),
            event("d", -60, "failed"),
        ],
        job_progress=reports("b", 0, 200, 10.0),
    )
    assert kept(store) == pytest.approx(200 / 400)


def test_a_running_job_that_does_not_report_is_left_out(store: Store) -> None:
    put(
        store,
        jobs=[job("a"), job("b", "waiting")],
        job_promises=[promise("a"), promise("b")],
        job_events=[event("a", 0, "started")],
    )
    assert kept(store) == 0
    assert rows_of(store, "SELECT promised_s, unknown_s FROM measured_windows") == [(600, 300)]


def test_a_job_that_nobody_sees_any_more_is_promised_nothing(store: Store) -> None:
    put(
        store,
        jobs=[job("a", seen_at=at(150)), job("b", "waiting")],
        job_promises=[promise("a"), promise("b")],
        job_events=[event("a", 0, "started")],
        job_progress=reports("a", 0, 150, 10.0),
    )
    assert kept(store) == pytest.approx(150 / 450)


# -- what records leave behind -------------------------------------------------------------------


def seen(power: PowerState, required: float, *, second: float, since_s: float) -> ClusterState:
    server = Server("s1", "v100", 2, 200.0, 10.0, 18_000.0)
    work = Job("a", Descriptors("ResNet-18"), START, required_throughput=required)
    return ClusterState(
        at(second),
        (ServerStatus(server, power, since=at(since_s)),),
        (JobStatus(work, JobState.WAITING, since=START),),
    )


def test_changes_of_servers_and_promises_are_kept_with_their_time(settings, store: Store) -> None:
    first = seen(PowerState.ON, 5.0, second=300, since_s=0)
    suites = load_suites(settings)
    for state in (
        first,
        replace(first, at=at(600)),
        seen(PowerState.OFF, 6.0, second=900, since_s=630),
        seen(PowerState.DOWN, 6.0, second=1200, since_s=630),
        replace(first, at=at(1500), servers=(ServerStatus(Server("s2", "v100", 2, 200.0)),)),
    ):
        record_state(store, settings, state, now=state.at, suites=suites)
    rows = rows_of(store, "SELECT since, power FROM server_states WHERE server_id = 's1'")
    assert sorted(rows) == [
        (at(0), "on"),
        (at(630), "off"),
        (at(1200), "down"),  # the manager told no later time than that of the change before
        (at(1500), "gone"),
    ]
    rows = rows_of(store, "SELECT since, required_throughput FROM job_promises")
    assert sorted(rows) == [(at(0), 5.0), (at(900), 6.0), (at(1500), 5.0)]
