"""One clock per store: the cluster manager's, whatever the clock on the wall says.

The embedded cluster begins on 5 January 2026, so anything here that asks the wall is months off.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows import desk, maintenance
from gogh_core.cli import app
from gogh_core.settings import Settings
from gogh_core.store import Store
from gogh_core.telemetry import ingest
from tests.conftest import own_settings


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """An embedded cluster that ran for an hour, and all of its telemetry in the store."""
    settings = own_settings(
        tmp_path_factory.mktemp("clock") / "home",
        simulation={"servers": 3, "jobs_per_hour": 10.0, "garbage_rate": 0.0},
    )
    at_desk = desk.Desk(settings)
    at_desk.manager.advance(3600)
    state = at_desk.manager.state()
    ingest(at_desk.store, settings, now=at_desk.clock(), state=state)
    return settings


@pytest.fixture
def gogh(home: Settings, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GOGH_HOME", str(home.home))
    for name, value in (("SERVERS", "3"), ("JOBS_PER_HOUR", "10"), ("GARBAGE_RATE", "0")):
        monkeypatch.setenv(f"GOGH_SIMULATION__{name}", value)

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    return run


def rows(settings: Settings, sql: str) -> list[tuple[Any, ...]]:
    with Store(settings).read() as connection:
        return connection.sql(sql).fetchall()


def clock(settings: Settings) -> datetime:
    return desk.Desk(settings).clock()


def test_maintenance_leaves_alone_what_is_young_by_the_clusters_clock(
    home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = "SELECT count(*) FROM gpu_samples"
    [before] = rows(home, count)
    assert before[0] > 3000
    monkeypatch.setattr(desk, "load", lambda: home)
    done = maintenance.maintenance.fn()
    assert "maintenance · 0 rows to Parquet" in done.message
    assert rows(home, count) == [before]
    assert rows(home, "SELECT count(*) FROM gpu_samples_all") == [before]
    assert rows(home, "SELECT count(*) FROM sample_files") == [(0,)]


def test_validate_looks_at_the_last_hour_of_the_cluster(gogh: Any) -> None:
    said = json.loads(gogh("validate", "--json"))
    assert said["gpu_samples"]["rows"] > 3000


def test_a_file_is_checked_at_the_clusters_time(gogh: Any, home: Settings, tmp_path: Path) -> None:
    """A sample of a minute ago is no sample of ten months ago."""
    ahead = clock(home) + timedelta(hours=2)
    file = tmp_path / "gpu" / "s1.csv"
    file.parent.mkdir()
    file.write_text(f"timestamp,server_id,gpu_index,power_w\n{ahead.isoformat()},k80-01,0,50\n")
    result = CliRunner().invoke(app, ["contracts", "check", str(file), "--table", "gpu_samples"])
    assert result.exit_code == 1, result.output
    assert "1 break the contract" in result.output


def test_a_pause_and_an_approval_carry_the_clusters_time(gogh: Any, home: Settings) -> None:
    now = clock(home)
    assert json.loads(gogh("pause", "--json"))["at"] == now.isoformat()
    gogh("resume")
    assert rows(home, "SELECT DISTINCT ts FROM pauses") == [(now,)]
    asked = json.loads(gogh("replan", "--wait-for-approval", "--json"))
    said = json.loads(gogh("approve", asked["plan"]["id"], "--json"))
    assert (said["decision"], said["at"]) == ("approved", now.isoformat())


def test_learning_by_hand_does_not_fade_what_the_cluster_just_measured(
    gogh: Any, monkeypatch: pytest.MonkeyPatch, home: Settings
) -> None:
    from gogh_core.estimation import Catalog

    asked: list[datetime] = []
    real = Catalog.from_store

    def seen(store: Store, *, now: datetime, half_life_days: float) -> Catalog:
        asked.append(now)
        return real(store, now=now, half_life_days=half_life_days)

    monkeypatch.setattr(Catalog, "from_store", seen)
    gogh("retrain", "--budget-s", "1", "--json")
    assert asked == [clock(home)]
