"""GOGH's own figures, from a store with two windows in it."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from gogh_core import watch
from gogh_core.store import Store
from tests.flows.examples import NOW

MINUTE = timedelta(minutes=1)


def batch(connection, source):
    connection.execute(
        "INSERT INTO ingest_batches VALUES (?, ?, 'gpu_samples', NULL, NULL, NULL, 10, 8, 2, 0, 0, "
        "'warned', NULL, ?)",
        [source, source, NOW],
    )


@pytest.fixture
def store(settings):
    store = Store(settings)
    store.migrate()
    with store.write() as c:
        for n in range(2):
            start, cycle, plan = NOW + n * 5 * MINUTE, f"c{n}", f"p{n}"
            c.execute(
                "INSERT INTO cycles VALUES (?, ?, 0, 'schedule', 'emitted', NULL, ?, ?, ?, ?)",
                [cycle, start, '["no new data"]', '{"ingest": 1.5, "allocate": 2.5}', start, start],
            )
            c.execute(
                "INSERT INTO plans VALUES (?, ?, 'optimal', 'glpk', 0.1, 1000, 990, 0.01, ?, 2, 1, "
                "'{}', NULL, ?, ?)",
                [plan, cycle, 900.0 + n, start, start],
            )
            c.execute(
                "INSERT INTO estimates VALUES (?, 'A', 'v100', 1, NULL, 5.5, 5, 6, 200, 1, 'P1', "
                "'v1', ?)",
                [cycle, start],
            )
        for n, (job, rate) in enumerate([("j1", 5.0), ("j2", 4.0)]):
            c.execute(
                "INSERT INTO observations VALUES (?, ?, 'A', 'v100', 1, NULL, NULL, 's1', [0], ?, "
                "?, ?, 0.1, 10, 'steps/s', 200, 60000, false, NULL, ?)",
                [f"o{n}", job, NOW, NOW + 5 * MINUTE, rate, NOW],
            )
            c.execute(
                "INSERT INTO job_windows VALUES (?, ?, 5, ?, 300, ?, 0)",
                [NOW, job, rate, 300 if rate >= 4.75 else 0],
            )
        for start, until in ((NOW, NOW + 5 * MINUTE), (NOW + 5 * MINUTE, NOW + 7 * MINUTE)):
            c.execute(
                "INSERT INTO measured_windows "
                "VALUES (?, ?, ?, 120000, 90000, 0.98, 600, 300, 0, ?)",
                [start, start + 5 * MINUTE, until, until],
            )
        batch(c, "gpu/room-1.csv.gz")
        c.execute(
            "INSERT INTO quarantine VALUES ('q1', 'b1', 'gpu_samples', 'spool', 3, 'between', "
            "'power_w', '-3', 'power_w is -3', '{}', 'held', ?, NULL)",
            [NOW],
        )
        c.execute("INSERT INTO cycle_results (cycle_id, data_age_s) VALUES ('c1', 12.5)")
    store.publish()
    return store


def test_windows_compare_what_was_planned_with_what_was_measured(store, settings):
    first, second = watch.windows(store)
    assert (first["planned_w"], first["measured_w"]) == (900.0, 700.0)
    assert first["kept"] == 0.5, "one of two promises was kept"
    assert first["energy_kwh"] == pytest.approx(700 * 300 / 3.6e6)
    assert (first["over"], second["over"], second["measured_s"]) == (True, False, 120)
    assert (second["planned_w"], second["measured_w"]) == (901.0, 1750.0)


def test_the_last_window_is_one_that_is_over(store):
    figures = {"window_start": NOW, "measured_w": 700.0, "kept": 0.5, "covered": 0.98}
    assert watch.last_window(store) == figures


def test_the_metrics_do_not_grow_with_the_files(store, settings):
    """The label is the kind of source, not the file."""

    def series():
        store.publish()
        text = watch.exposition(store, settings, wall_s=0.0)
        return [line.split(" ")[0] for line in text.splitlines() if not line.startswith("#")]

    before = series()
    with store.write() as c:
        for n in range(2, 50):
            batch(c, f"gpu/room-{n}.csv.gz")
    assert series() == before


def test_accuracy_compares_with_what_was_estimated_before(store):
    (row,) = watch.accuracy(store)
    assert (row["network"], row["cells"]) == ("P1", 2)
    assert row["error"] == pytest.approx((0.1 + 0.375) / 2)


def test_contracts_and_quarantine_are_told(store):
    assert watch.batches(store)[0]["rows_quarantined"] == 2
    assert watch.held(store)[0]["held"] == 1


def test_the_metrics_are_the_newest_cycles(store, settings):
    text = watch.exposition(store, settings, wall_s=store.snapshot_path.stat().st_mtime + 7)
    for line in (
        "gogh_up 1",
        'gogh_cycles_total{state="emitted"} 2',
        'gogh_step_seconds{step="allocate"} 2.5',
        "gogh_cycle_seconds 4",
        "gogh_degraded 1",
        "gogh_plan_gap_ratio 0.01",
        "gogh_planned_watts 901",
        "gogh_measured_watts 700",
        "gogh_promises_kept_ratio 0.5",
        "gogh_covered_ratio 0.98",
        'gogh_rows_total{source="gpu",fate="clean"} 8',
        'gogh_quarantine_rows{table="gpu_samples"} 1',
        "gogh_data_age_seconds 12.5",
        "gogh_published_age_seconds 7",
    ):
        assert line in text.splitlines(), line


def test_before_the_first_cycle_there_is_nothing_to_tell(settings):
    store = Store(settings)
    assert watch.windows(store) == []
    assert watch.last_window(store) is None
    assert watch.newest(store) is None
    assert "gogh_up 0" in watch.exposition(store, settings, wall_s=0.0)


def test_the_endpoint_answers_on_the_loopback(store, settings):
    import threading

    server = watch.serve(settings, host="127.0.0.1", port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    base = f"http://127.0.0.1:{server.server_port}"
    try:
        assert "gogh_up 1" in httpx.get(f"{base}/metrics", trust_env=False).text
        assert "GoghDown" in httpx.get(f"{base}/rules", trust_env=False).text
        assert httpx.get(base, trust_env=False).status_code == 404
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_promise_counts_as_missed_only_when_it_was_missed_all_the_time(store):
    from gogh_core.store import fetch

    with store.write() as c:
        for job in ("j1", "j2"):
            c.execute(
                "INSERT INTO jobs (job_id, job_class, model, kind, mode, gpu_counts, max_gpus, "
                "required_throughput, unit, priority, shareable, movable, move_cost_j, "
                "submitted_at, state, seen_at) VALUES (?, 'A', 'A', 'training', 'gang', [1], 1, 5, "
                "'steps/s', 1, 'true', true, 0, ?, 'running', ?)",
                [job, NOW, NOW],
            )

    def missed(since):
        with store.read() as connection:
            return fetch(connection, "watch_missed", since=since)["job_id"].to_pylist()

    assert missed(NOW) == ["j2"]
    assert missed(NOW + MINUTE) == ["j2"]
    assert missed(NOW - MINUTE) == [], "it was not seen all that time"
    assert missed(NOW + 5 * MINUTE) == []
