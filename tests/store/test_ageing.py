"""Samples leave the database for Parquet and stay visible, each exactly once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from gogh_core.settings import load
from gogh_core.store import Store, ask

NOON = datetime(2026, 1, 5, 12, 30, tzinfo=UTC)


def samples(start: datetime, hours: float, *, gpus: int = 2, period_s: int = 60) -> pa.Table:
    """Samples whose power tells them apart."""
    ticks = int(hours * 3600 / period_s)
    rows = [(start + timedelta(seconds=period_s * t), g) for t in range(ticks) for g in range(gpus)]
    return pa.table(
        {
            "ts": pa.array([ts for ts, _ in rows], pa.timestamp("us", "UTC")),
            "server_id": ["s1"] * len(rows),
            "gpu_index": pa.array([gpu for _, gpu in rows], pa.int32()),
            "power_w": [float(i) for i in range(len(rows))],
        }
    )


def powers(store: Store, relation: str = "gpu_samples_all") -> list[float]:
    with store.read() as connection:
        found = connection.sql(f"SELECT power_w FROM {relation} ORDER BY power_w").fetchall()
    return [row[0] for row in found]


def test_old_hours_move_to_parquet_and_stay_visible(store: Store) -> None:
    store.append("gpu_samples", samples(NOON - timedelta(hours=10), 10))
    report = store.age(NOON)
    assert report.hours_written == 4  # 02:30 to 06:00: three and a half hours, four partitions
    assert report.rows_moved == 2 * 210
    assert len(powers(store, "gpu_samples")) == 2 * 390
    assert powers(store) == [float(i) for i in range(1200)]
    assert sorted(p.parent.name for p in store.samples.rglob("*.parquet")) == [
        "hour=02",
        "hour=03",
        "hour=04",
        "hour=05",
    ]
    store.publish()
    assert ask(store, "SELECT count(*) AS n FROM gpu_samples_all").to_pylist() == [{"n": 1200}]


def test_ageing_twice_changes_nothing(store: Store) -> None:
    store.append("gpu_samples", samples(NOON - timedelta(hours=10), 10))
    store.age(NOON)
    report = store.age(NOON)
    assert (report.rows_moved, report.hours_written, report.files_removed) == (0, 0, 0)
    assert len(powers(store)) == 1200


def test_a_full_day_becomes_one_file(store: Store) -> None:
    store.append("gpu_samples", samples(NOON - timedelta(hours=30), 30, period_s=600))
    report = store.age(NOON)
    assert report.days_compacted == 1
    with store.read() as connection:
        live = connection.sql(
            "SELECT span, count(*) FROM sample_files WHERE retired_at IS NULL GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert live == [("day", 1), ("hour", 6)]
    assert powers(store) == [float(i) for i in range(360)]


def test_late_rows_join_their_day_later(store: Store) -> None:
    store.append("gpu_samples", samples(NOON - timedelta(hours=30), 10, period_s=600))
    store.age(NOON)
    store.append("gpu_samples", samples(NOON - timedelta(hours=20), 1, period_s=600))
    report = store.age(NOON)
    assert (report.rows_moved, report.days_compacted) == (12, 1)
    assert len(powers(store)) == 120 + 12


def test_progress_ages_like_samples(store: Store) -> None:
    when = [NOON - timedelta(hours=8), NOON]
    store.append("job_progress", pa.table({"ts": when, "job_id": ["a", "a"], "steps": [1.0, 2.0]}))
    assert store.age(NOON).rows_moved == 1
    with store.read() as connection:
        assert len(connection.sql("FROM job_progress_all").fetchall()) == 2
        assert len(connection.sql("FROM job_progress").fetchall()) == 1


def test_a_retired_file_stays_while_a_snapshot_names_it(store: Store) -> None:
    store.append("gpu_samples", samples(NOON - timedelta(hours=30), 10, period_s=600))
    store.publish()
    store.age(NOON - timedelta(hours=14))
    store.publish()
    assert store.age(NOON).days_compacted == 1
    with store.write() as connection:  # as if the compaction were long ago
        connection.execute("UPDATE sample_files SET retired_at = 1 WHERE retired_at IS NOT NULL")
    hours = [p for p in store.samples.rglob("*.parquet") if p.parent.name.startswith("hour=")]
    assert hours
    assert ask(store, "SELECT count(*) AS n FROM gpu_samples_all").to_pylist() == [{"n": 120}]
    store.publish()
    assert store.age(NOON).files_removed == len(hours)
    assert ask(store, "SELECT count(*) AS n FROM gpu_samples_all").to_pylist() == [{"n": 120}]


def test_retention_drops_whole_partitions(store: Store, tmp_path: Path) -> None:
    store.append("gpu_samples", samples(NOON - timedelta(hours=30), 30, period_s=600))
    store.age(NOON)
    short = Store(load(home=tmp_path / "home", store={"retention_days": 0.5}))
    assert short.age(NOON).files_expired == 1
    assert len(powers(short)) == 360 - 2 * 105  # 5 January begins after 17.5 hours of samples


def test_files_the_manifest_does_not_name_are_removed(store: Store) -> None:
    store.append("gpu_samples", samples(NOON - timedelta(hours=8), 8))
    store.age(NOON)
    stray = store.samples / "gpu_samples" / "day=2026-01-04" / "hour=01" / f"{0:032x}.part"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"half a file")
    assert store.age(NOON).files_removed == 1
    assert not stray.parent.exists()
    assert len(powers(store)) == 960


def test_a_column_added_later_is_null_in_old_files(store: Store) -> None:
    store.append("gpu_samples", samples(NOON - timedelta(hours=8), 1))
    store.age(NOON)
    with store.write() as connection:
        connection.execute("ALTER TABLE gpu_samples ADD COLUMN fan DOUBLE")
    store.append("gpu_samples", samples(NOON - timedelta(hours=7), 0.25))
    assert store.age(NOON).rows_moved == 30
    with store.read() as connection:
        assert connection.sql("SELECT count(*), count(fan) FROM gpu_samples_all").fetchall() == [
            (150, 0)
        ]
