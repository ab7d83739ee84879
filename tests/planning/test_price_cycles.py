"""Whole cycles on the embedded cluster under a price: dear hours first, cheap ones afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gogh_core import estimation, telemetry
from gogh_core.cli import app
from gogh_core.cluster import open_manager
from gogh_core.domain import JobState
from gogh_core.errors import InvalidInput
from gogh_core.planning import CycleReport, Request, run_cycle
from gogh_core.settings import CycleSettings, ObjectiveSettings, SimulationSettings, load
from gogh_core.store import Store

WINDOW_S = 1800
DEAR, CHEAP = 2, 1
"""Windows at each price: the clock begins at 09:00, the price falls at 10:00."""
PRICES = "at,value\n00:00,0.31\n10:00,0.08\n18:00,0.31\n"


@dataclass
class Ran:
    """What a few windows under one objective came to."""

    reports: list[CycleReport] = field(default_factory=list)
    energy_j: list[float] = field(default_factory=list)
    effort: list[int] = field(default_factory=list)
    """Best-effort jobs with a place, by window."""


@pytest.fixture(scope="module")
def monkey() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(telemetry, "ingest", lambda *_, **__: telemetry.IngestReport(()))
        patch.setattr(estimation, "load_estimator", lambda _: estimation.Estimator())
        yield patch


@pytest.fixture(scope="module")
def ran(monkey: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """The same jobs on the same cluster under `energy` and under `cost`."""
    return {name: windows(name, tmp_path_factory.mktemp(name)) for name in ("energy", "cost")}


def windows(name: Any, home: Path) -> Ran:
    (home / "prices.csv").write_text(PRICES, encoding="utf-8")
    settings = load(
        home=home,
        cycle=CycleSettings(window_s=WINDOW_S),
        objective=ObjectiveSettings(name=name, price="prices.csv"),
        simulation=SimulationSettings(servers=3, jobs_per_hour=10, seed=3),
    )
    store = Store(settings)
    store.migrate()
    manager: Any = open_manager(settings, store)
    found = Ran()
    for _ in range(DEAR + CHEAP):
        since = manager.clock()
        found.reports.append(run_cycle(settings, manager=manager, store=store))
        jobs = [s for s in manager.state().jobs if s.state is not JobState.FINISHED]
        best = [s for s in jobs if s.job.required_throughput == 0]
        found.effort.append(sum(bool(status.slots) for status in best))
        manager.advance(WINDOW_S)
        until = since + timedelta(seconds=WINDOW_S)
        found.energy_j.append(manager.metrics(since, until).energy_j)
    return found


def test_best_effort_leaves_the_dear_hours(ran: dict[str, Ran]) -> None:
    energy, cost = ran["energy"], ran["cost"]
    assert sum(energy.effort[:DEAR]) > 0
    assert sum(cost.effort[:DEAR]) < sum(energy.effort[:DEAR])
    assert sum(cost.energy_j[:DEAR]) < sum(energy.energy_j[:DEAR])
    assert sum(cost.effort[DEAR:]) > 0


def test_promised_jobs_run_in_the_dear_hours_too(ran: dict[str, Ran]) -> None:
    for report in ran["cost"].reports:
        assert report.plan is not None
        assert report.outcome == "emitted"
        by_choice = {w.job for w in report.plan.waiting if "cheaper hours" in w.reason}
        assert report.basis is not None
        promised = {s.job.id for s in report.basis.jobs if s.job.required_throughput > 0}
        assert not by_choice & promised


def test_each_plan_says_its_price(ran: dict[str, Ran]) -> None:
    prices = [
        report.plan.versions["price"]["value"] for report in ran["cost"].reports if report.plan
    ]
    assert prices == [0.31] * DEAR + [0.08] * CHEAP
    for report in ran["energy"].reports:
        assert report.plan is not None
        assert report.plan.versions["objective"] == "energy"


def test_explain_says_the_objective_and_the_price(
    ran: dict[str, Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = ran["cost"].reports[-1]
    assert report.plan is not None
    monkeypatch.setenv("GOGH_HOME", str(Path(report.plan.versions["price"]["source"]).parent))
    job = report.plan.placements[0].job
    said = CliRunner().invoke(app, ["explain", job, "--time-limit", "0"])
    assert said.exit_code == 0, said.output
    assert "The plan's objective is cost, at 0.08 per kWh." in said.output


def test_a_replan_for_a_price_that_nobody_gave_is_refused_in_one_line(
    monkey: Any, tmp_path: Path
) -> None:
    settings = load(home=tmp_path, simulation=SimulationSettings(servers=2, jobs_per_hour=5))
    store = Store(settings)
    store.migrate()
    manager = open_manager(settings, store)
    with pytest.raises(InvalidInput, match=r"objective\.price is not set"):
        run_cycle(
            settings, manager=manager, store=store, request=Request("by hand", "cost", dry_run=True)
        )
