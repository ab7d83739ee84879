"""What every cycle adds to the tables has a bound: `store.retention_days`."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from gogh_core.settings import load
from gogh_core.store import Store, run_query
from gogh_core.watch import readings
from tests.store.test_ageing import NOON, samples
from tests.store.test_clock import Machine

DAY = timedelta(days=1)
HOUR_S = 3600.0


def keep_days(store: Store, days: float, *, manager: str = "simulated") -> Store:
    home: Path = store.path.parent
    return Store(load(home=home, cluster={"manager": manager}, store={"retention_days": days}))


# $1 names the moment, $2 is the moment.
ROWS = """
INSERT INTO cycles VALUES ($1, $2, 0, '', 'emitted', '', '[]', '{}', $2, $2);
INSERT INTO cycle_results (cycle_id, plan_id) VALUES ($1, $1);
INSERT INTO plans
VALUES ($1, $1, 'optimal', 'glpk', 1, 1, 1, 0, 1, 1, 0, '{}', '', $2, $2);
INSERT INTO placements (plan_id, job_id, server_id, gpus, throughput) VALUES ($1, $1, 's1', [0], 1);
INSERT INTO estimates
VALUES ($1, 'c', 'v100', 1, NULL, 1, 1, 1, 1, 1, 'P2', '', $2);
INSERT INTO execution_events VALUES ($1, $1, 'simulated', 'done', '', $2, 1);
INSERT INTO actions VALUES ($1, 'a', $1, 0, 'place', $1, 's1', '{}');
INSERT INTO action_events VALUES ($1, 'a', 'confirmed', '', $2, 1);
INSERT INTO ingest_batches
VALUES ($1, 'gpu/s1-1.csv', 'gpu_samples', '', '', '', 10, 7, 1, 1, 1, 'accepted', NULL, $2);
INSERT INTO quarantine
VALUES ($1, $1, 'gpu_samples', '', 1, 'e', NULL, NULL, '', '', 'held', $2, NULL);
INSERT INTO observations
    (observation_id, job_id, job_class, gpu_type, gpus, window_start, window_end, throughput,
     samples, unit, computed_at)
VALUES ($1, $1, 'c', 'v100', 1, $2, $2, 1, 1, 'steps', $2);
INSERT INTO measured_windows VALUES ($2, $2, $2, 1, 1, 1, 1, 1, 0, $2);
INSERT INTO server_states VALUES ('s1', $2, 'on', 1, 0, 0, 4, []);
INSERT INTO job_events (job_id, ts, event) VALUES ($1, $2, 'finished')
"""


def fill(store: Store, moments: list[datetime]) -> None:
    """A cycle with its plan, journal, estimates, job, window and batch at each moment."""
    with store.write() as connection:
        for n, at in enumerate(moments):
            for sql in ROWS.split(";\n"):
                numbered = {"1": str(n), "2": at}
                wanted = {k: v for k, v in numbered.items() if f"${k}" in sql}
                connection.execute(sql, wanted)


def left(store: Store, table: str) -> int:
    with store.read() as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])


TABLES = ("cycles", "cycle_results", "plans", "placements", "estimates", "execution_events",
          "actions", "action_events", "ingest_batches", "quarantine", "measured_windows",
          "job_events", "server_states")  # fmt: skip


def test_what_is_older_than_the_retention_leaves_every_table(store: Store) -> None:
    fill(store, [NOON - n * DAY for n in range(10)])
    report = keep_days(store, 3.5).age(NOON)
    assert report.dropped_before == NOON - 3.5 * DAY
    counts = {table: left(store, table) for table in TABLES}
    # The server is still in the state that it came into a day before the retention.
    assert counts == {**dict.fromkeys(TABLES, 4), "server_states": 5}


def test_the_running_plan_stays_however_old_it_is(store: Store) -> None:
    fill(store, [NOON - n * DAY for n in range(10, 15)])
    keep_days(store, 3).age(NOON)
    store.publish()
    history = run_query(store, "plan_history").to_pylist()
    assert [row["cycle_id"] for row in history] == ["0"]
    assert left(store, "journal") == left(store, "executions") == left(store, "placements") == 1


def test_a_cycle_that_has_not_ended_stays(store: Store) -> None:
    fill(store, [NOON - n * DAY for n in range(10, 15)])
    with store.write() as connection:
        connection.execute("UPDATE cycles SET state = 'waiting' WHERE cycle_id = '3'")
    keep_days(store, 3).age(NOON)
    assert left(store, "plans") == 2


def test_the_last_that_was_measured_of_an_option_stays(store: Store) -> None:
    fill(store, [NOON - n * DAY for n in range(10, 20)])
    keep_days(store, 3).age(NOON)
    assert left(store, "observations") == 3


def test_totals_never_go_back(store: Store) -> None:
    fill(store, [NOON - n * DAY for n in range(10)])
    for days in (30.0, 5.5, 3.5):
        keep_days(store, days).age(NOON)
        store.publish()
        assert readings.rows_of(store, "watch_cycles") == [{"state": "emitted", "cycles": 10}]
        [row] = readings.rows_of(store, "watch_rows")
        assert row == {
            "source": "gpu",
            "clean": 70,
            "quarantined": 10,
            "duplicate": 10,
            "late": 10,
            "refused": 0,
        }


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_rows_go_when_two_ageings_a_day_of_real_time_apart_agree(
    store: Store, machine: Machine
) -> None:
    fill(store, [NOON - n * DAY for n in range(10)])
    real = keep_days(store, 3.5, manager="files")
    now = NOON
    for hour in range(25):
        real.append("gpu_samples", samples(now, 0.1))
        dropped = real.age(now).dropped_before
        assert left(store, "plans") == (4 if hour == 24 else 10)
        assert (dropped is None) == (hour < 24)
        now += timedelta(hours=1)
        machine.boot_s += HOUR_S


def test_a_clock_that_jumped_ahead_drops_no_row(store: Store, machine: Machine) -> None:
    fill(store, [NOON - n * DAY for n in range(10)])
    real = keep_days(store, 90, manager="files")
    real.age(NOON)
    for hour in range(1, 20):
        machine.boot_s += HOUR_S
        ahead = NOON + 104 * DAY + timedelta(hours=hour)
        real.append("gpu_samples", samples(ahead, 0.1))
        assert real.age(ahead).doubt
    machine.boot_s += 30 * HOUR_S
    real.age(NOON + timedelta(hours=50))
    assert left(store, "plans") == 10
