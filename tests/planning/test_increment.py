"""Increments on the embedded cluster: between windows what waits is placed, what runs stays."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gogh_core import estimation
from gogh_core.domain import JobState
from gogh_core.planning import Request, list_cycles, run_cycle
from gogh_core.settings import Settings, SimulationSettings, load
from gogh_core.simulation import SimulatedCluster, open_cluster
from gogh_core.store import Store

ARRIVAL = Request(reason="jobs came or left", increment=True)


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Store, SimulatedCluster]:
    """A cluster whose first window is planned, and that ran until a job came or left."""
    home: Path = tmp_path_factory.mktemp("increment")
    settings = load(home=home, simulation=SimulationSettings(servers=6, jobs_per_hour=120))
    store = Store(settings)
    store.migrate()
    cluster = open_cluster(settings, store)
    run_cycle(settings, manager=cluster, store=store)
    return settings, store, cluster


def slots(cluster: SimulatedCluster) -> dict[str, Any]:
    return {status.job.id: status.slots for status in cluster.state().jobs if status.slots}


def until_a_job_waits(cluster: SimulatedCluster) -> set[str]:
    end = cluster.now + timedelta(hours=1)
    while cluster.advance_to_event(end) < end:
        waiting = {s.job.id for s in cluster.state().jobs if s.state is JobState.WAITING}
        if waiting:
            return waiting
    raise AssertionError("no job came")


def test_a_job_that_comes_is_placed_and_nobody_is_moved(
    loop: tuple[Settings, Store, SimulatedCluster],
) -> None:
    settings, store, cluster = loop
    waiting, before = until_a_job_waits(cluster), slots(cluster)
    report = run_cycle(settings, manager=cluster, store=store, request=ARRIVAL)
    assert report.outcome == "emitted"
    assert report.plan is not None
    assert not report.plan.moves
    assert not report.plan.stops
    after = slots(cluster)
    assert {job: after[job] for job in before} == before
    assert waiting <= {*after, *(wait.job for wait in report.plan.waiting)}
    assert waiting & set(after), "there is room"
    newest = list_cycles(store)[0]
    assert (newest["reason"], newest["state"]) == ("jobs came or left", "emitted")
    assert newest["revision"] > 0


def test_known_classes_need_no_network(
    loop: tuple[Settings, Store, SimulatedCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the last cycle estimated is enough: an increment imports no torch."""
    settings, store, cluster = loop
    run_cycle(settings, manager=cluster, store=store, request=Request(reason="all classes"))
    monkeypatch.setattr(estimation, "load_estimator", lambda _: pytest.fail("not needed"))
    report = run_cycle(settings, manager=cluster, store=store, request=ARRIVAL)
    assert report.outcome == "emitted"
    assert "ingest" not in report.seconds
    assert "retrain" not in report.seconds


def test_damaged_options_are_estimated_again(
    loop: tuple[Settings, Store, SimulatedCluster],
) -> None:
    settings, store, cluster = loop
    (settings.home / "run" / "options.arrow").write_bytes(b"ARROW1 not really")
    report = run_cycle(settings, manager=cluster, store=store, request=ARRIVAL)
    assert report.outcome == "emitted"
