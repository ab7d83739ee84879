"""What is said of past windows, beside the embedded cluster's own meter.

An hour of the embedded cluster with everything that makes telemetry hard to add up: servers that
boot, vanish and return, a GPU that dies, jobs that crash, are stopped and moved by hand, a replan
within a window, rows that are lost, late or garbage, and samples that age to Parquet in between.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.artifacts import energy_page
from gogh_core import watch
from gogh_core.cli import app
from gogh_core.cluster import open_manager
from gogh_core.domain import JobState, Mode, PowerState
from gogh_core.planning import Request, run_cycle
from gogh_core.settings import (
    AllocationSettings,
    CycleSettings,
    EstimationSettings,
    Settings,
    SimulationSettings,
    StoreSettings,
)
from gogh_core.store import Store, run_query
from tests.conftest import own_settings

pytestmark = pytest.mark.e2e

START = datetime.fromisoformat("2026-01-05T09:30:00+00:00")
WINDOW_S = 300
WINDOWS = 12
WATTS = 0.02
POINTS = 0.01


@dataclass
class Hour:
    """The cluster, and what was said of each window when it was just over."""

    settings: Settings
    store: Store
    manager: Any
    said: list[dict[str, tuple[float, float]]]

    def truth(self, window: int) -> tuple[float, float]:
        """Watts and kept promises of a window, by the cluster's own meter."""
        since = START + timedelta(seconds=window * WINDOW_S)
        found = self.manager.metrics(since, since + timedelta(seconds=WINDOW_S))
        return found.mean_watts, found.slo_attainment


def fault(kind: str, target: str) -> None:
    result = CliRunner().invoke(app, ["fault", kind, target], catch_exceptions=False)
    assert result.exit_code == 0, result.output


def by_hand(hour: Hour, window: int) -> None:
    """What happens within a window, a hundred seconds after it began."""
    manager = hour.manager
    state = manager.state()
    running = [s for s in state.jobs if s.state is JobState.RUNNING]
    busy = max(state.servers, key=lambda s: sum(s.server.id == j.slots[0].server for j in running))
    name = busy.server.id
    if window == 2:
        slot = next(s.slots[0] for s in running if s.slots[0].server == name)
        fault("gpu_dies", f"{name}/{slot.gpus[0]}")
    elif window == 3:
        fault("job_crashes", running[0].job.id)
        for number, status in enumerate(running[1:4]):
            manager.hold(status.job.id, key=f"stop-{number}")
    elif window == 4:
        fault("server_vanishes", name)
    elif window == 6:
        down = next(s.server.id for s in state.servers if s.power is PowerState.DOWN)
        fault("server_returns", down)
    elif window in (5, 7, 9):
        move_some(manager, running, key=f"move-{window}")
    elif window == 8:
        run_cycle(hour.settings, manager=manager, store=hour.store, request=Request(reason="more"))


def move_some(manager: Any, running: list[Any], *, key: str) -> None:
    """Stop a job that is alone on one GPU, and let another take its place."""
    alone = [
        s.job.id
        for s in running
        if s.job.mode is Mode.GANG and s.job.movable and not s.partners and 1 in s.job.gpu_counts
    ]
    slots = {s.job.id: s.slots for s in running}
    single = [job for job in alone if [len(slot.gpus) for slot in slots[job]] == [1]]
    for stopped, moved in zip(single[:1], [job for job in alone if job != single[0]], strict=False):
        manager.hold(stopped, key=f"{key}-stop")
        manager.move(moved, slots[stopped], partner=None, power_limit_w=None, key=key)


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hour]:
    settings = own_settings(
        tmp_path_factory.mktemp("hour"),
        simulation=SimulationSettings(servers=6, jobs_per_hour=40, start=START),
        allocation=AllocationSettings(gap=0.5),  # no clock decides what is planned
        cycle=CycleSettings(budget_s=3600, step_budget_s=1800),
        estimation=EstimationSettings(retrain_budget_s=0.5),
        store=StoreSettings(hot_hours=0.01),
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("GOGH_")]:
            patch.delenv(name)  # those of a stack that another test keeps running
        config = settings.home / "gogh.toml"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(
            f'home = "{settings.home}"\n[simulation]\nservers = 6\njobs_per_hour = 40\n'
            f'start = "{START.isoformat()}"\n'
        )
        patch.setenv("GOGH_CONFIG", str(config))
        store = Store(settings)
        manager = open_manager(settings, store)
        store.migrate()
        found = Hour(settings, store, manager, [])
        for window in range(WINDOWS + 1):
            run_cycle(settings, manager=manager, store=store)
            if window:
                found.said.append(said_of(found, window - 1))
            if window < WINDOWS:
                manager.advance(100)  # type: ignore[attr-defined]
                by_hand(found, window)
                manager.advance(WINDOW_S - 100)  # type: ignore[attr-defined]
            if window in (8, 10):
                store.age(manager.clock())
        yield found


def said_of(hour: Hour, window: int) -> dict[str, tuple[float, float]]:
    """Watts and kept promises of a window that is over, wherever they are said."""
    start = START + timedelta(seconds=window * WINDOW_S)
    return {
        "page": on_the_page(hour)[f"{start:%Y-%m-%d %H:%M}"],
        "query": in_the_query(hour)[start],
        "status": in_the_status(hour, start),
        "metrics": in_the_metrics(hour),
    }


def on_the_page(hour: Hour) -> dict[str, tuple[float, float]]:
    lines = [line for line in energy_page(watch.windows(hour.store)).splitlines() if "|" in line]
    head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    found = {}
    for row in rows:
        named = dict(zip(head, row, strict=True))
        if named["measured W"] != "–":
            watts = float(named["measured W"].replace(",", ""))
            found[named["window"]] = (watts, float(named["promises kept"].rstrip("%")) / 100)
    return found


def in_the_query(hour: Hour) -> dict[datetime, tuple[float, float]]:
    rows = run_query(hour.store, "windows").to_pylist()
    return {r["window_start"]: (r["measured_w"], r["kept"]) for r in rows if r["over"]}


def in_the_status(hour: Hour, start: datetime) -> tuple[float, float]:
    result = CliRunner().invoke(app, ["status", "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)["last_window"]
    assert datetime.fromisoformat(found["window_start"]) == start
    return found["measured_w"], found["kept"]


def in_the_metrics(hour: Hour) -> tuple[float, float]:
    text = watch.exposition(hour.store, hour.settings, wall_s=0.0)

    def value(name: str) -> float:
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found is not None, name
        return float(found[1])

    return value("gogh_measured_watts"), value("gogh_promises_kept_ratio")


def wrong(said: tuple[float, float], true: tuple[float, float]) -> bool:
    return abs(said[0] - true[0]) > WATTS * true[0] or abs(said[1] - true[1]) > POINTS


def test_every_window_is_said_as_the_cluster_meters_it(hour: Hour) -> None:
    faults = []
    for window, said in enumerate(hour.said):
        true = hour.truth(window)
        faults += [
            f"{window} {name} {s}, true {true}" for name, s in said.items() if wrong(s, true)
        ]
    assert not faults, "\n".join(faults)


def test_late_rows_and_ageing_do_not_change_what_was_true(hour: Hour) -> None:
    page, query = on_the_page(hour), in_the_query(hour)
    for window in range(WINDOWS):
        start = START + timedelta(seconds=window * WINDOW_S)
        for said in (page[f"{start:%Y-%m-%d %H:%M}"], query[start]):
            assert not wrong(said, hour.truth(window)), (window, said, hour.truth(window))


def test_the_hour_had_everything(hour: Hour) -> None:
    """The test above would say little of a quiet hour."""
    with hour.store.snapshot() as connection:
        events = dict(
            connection.execute("SELECT event, count(*) FROM job_events GROUP BY event").fetchall()
        )
        powers = {
            row[0] for row in connection.execute("SELECT power FROM server_states").fetchall()
        }
        parquet = connection.execute("SELECT count(*) FROM sample_files").fetchall()[0][0]
    assert {"moved", "stopped", "failed", "finished", "partner"} <= set(events)
    assert {"on", "off", "down"} <= powers
    assert parquet > 0
    assert min(hour.truth(window)[1] for window in range(WINDOWS)) < 0.8


def test_a_window_that_is_not_over_says_so(hour: Hour) -> None:
    hour.manager.advance(120)
    run_cycle(hour.settings, manager=hour.manager, store=hour.store, request=Request(reason="x"))
    row = run_query(hour.store, "windows").to_pylist()[0]
    assert (row["over"], row["measured_s"]) == (False, 120)
    assert "so far" in energy_page(watch.windows(hour.store))
    since = START + timedelta(seconds=WINDOWS * WINDOW_S)
    watts = hour.manager.metrics(since).mean_watts
    assert row["measured_w"] == pytest.approx(watts, rel=WATTS)
    last = in_the_status(hour, since - timedelta(seconds=WINDOW_S))
    assert last == pytest.approx(in_the_metrics(hour))
