"""The clock of an embedded cluster follows the wall's, at most to the end of its window."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gogh_core.cluster import ClusterManager, open_manager
from gogh_core.planning import follow, run_up_to_window
from gogh_core.settings import Settings, SimulationSettings, load
from gogh_core.store import Store, fetch

WALL = datetime(2030, 1, 1, 10, tzinfo=UTC)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(home=tmp_path, simulation=SimulationSettings(servers=2, jobs_per_hour=5))


@pytest.fixture
def store(settings: Settings) -> Store:
    found = Store(settings)
    found.migrate()
    return found


@pytest.fixture
def cluster(settings: Settings, store: Store) -> ClusterManager:
    return open_manager(settings, store)


def after(seconds: float) -> datetime:
    return WALL + timedelta(seconds=seconds)


def planned(store: Store, window_start: datetime, key: str) -> None:
    with store.write() as connection:
        fetch(connection, "planning_insert_cycle", cycle_id=key, window_start=window_start,
              revision=0, reason="schedule", state="emitted", begun_at=WALL)  # fmt: skip
        fetch(connection, "planning_insert_claim", cycle_id=key, request_key=key, request="{}",
              heartbeat_at=WALL, token="t", host="h", boot="b", pid=1,
              process_started=0.0)  # fmt: skip


def test_it_stands_still_until_the_first_cycle(settings: Settings, cluster: ClusterManager) -> None:
    start = cluster.clock()
    follow(settings, cluster, wall=after(1000))
    assert cluster.clock() == start


def test_it_goes_with_the_wall_and_stops_at_the_end_of_the_window(
    settings: Settings, store: Store, cluster: ClusterManager
) -> None:
    start = cluster.clock()
    run_up_to_window(settings, store, cluster, key="first", wall=WALL)
    assert cluster.clock() == start
    planned(store, start, "first")
    for wall_s, gone_s in ((7, 7), (130, 130), (100, 130), (299, 299), (4000, 300)):
        follow(settings, cluster, wall=after(wall_s))
        assert cluster.clock() == start + timedelta(seconds=gone_s)


def test_a_cycle_makes_up_for_what_nobody_followed_once(
    settings: Settings, store: Store, cluster: ClusterManager
) -> None:
    start = cluster.clock()
    run_up_to_window(settings, store, cluster, key="first", wall=WALL)
    planned(store, start, "first")
    follow(settings, cluster, wall=after(40))
    run_up_to_window(settings, store, cluster, key="second", wall=after(300))
    assert cluster.clock() == start + timedelta(seconds=300)
    planned(store, cluster.clock(), "second")
    run_up_to_window(settings, store, cluster, key="second", wall=after(310))
    assert cluster.clock() == start + timedelta(seconds=300), "the same cycle again"
    follow(settings, cluster, wall=after(325))
    assert cluster.clock() == start + timedelta(seconds=325)
