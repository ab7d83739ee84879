"""`gogh drain`, `pin`, `cap`, `quota`, their lifting and `gogh orders`, on one embedded cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gogh_core import estimation, telemetry
from gogh_core.allocation import greedy
from gogh_core.cli import app
from gogh_core.errors import InvalidInput


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("orders") / "home"


@pytest.fixture
def gogh(home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command; nothing new comes from telemetry, and plans are made by the greedy rule."""
    monkeypatch.setattr("gogh_core.planning.steps.plan", lambda problem, **_: greedy(problem))
    monkeypatch.setenv("GOGH_HOME", str(home))
    monkeypatch.setenv("GOGH_SIMULATION__SERVERS", "3")
    monkeypatch.setenv("GOGH_SIMULATION__JOBS_PER_HOUR", "12")
    monkeypatch.setattr(telemetry, "ingest", lambda *_, **__: telemetry.IngestReport(()))
    monkeypatch.setattr(estimation, "load_estimator", lambda _: estimation.Estimator())

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, list(arguments))
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    return run


def test_an_order_is_given_listed_and_lifted(gogh: Any) -> None:
    assert gogh("orders") == "no orders stand\n"
    said = gogh("drain", "v100-01", "--until", "+2h", "--reason", "fan", "--who", "ann")
    assert said.startswith(
        "server v100-01 is drained by ann since 2026-01-05 09:00 until 2026-01-05 11:00 "
        "(order 1): fan\n"
    )
    assert "it stands until `gogh undrain v100-01` or 2026-01-05 11:00:00" in said
    assert gogh("drain", "v100-01", "--until", "+1h").startswith("ordered already: server v100-01")
    gogh("cap", "5000", "--from", "+1h", "--who", "bob")
    listed = gogh("orders").splitlines()
    assert [line.split("  ")[0].strip() for line in listed] == ["in force", "planned"]
    assert gogh("undrain", "v100-01", "--who", "bob").startswith(
        "lifted: server v100-01 is drained"
    )
    assert [o["kind"] for o in json.loads(gogh("orders", "--json"))] == ["cap"]
    every = json.loads(gogh("orders", "--all", "--json"))
    assert [(o["kind"], o["state"], o["lifted_by"]) for o in every] == [
        ("drain", "lifted", "bob"),
        ("cap", "planned", None),
    ]
    assert "lifted by bob at 2026-01-05" in gogh("orders", "--all")
    shown = json.loads(gogh("query", "orders", "--json"))
    assert [row["kind"] for row in shown] == ["cap", "drain"]
    gogh("uncap")


def test_a_replan_s_orders_stand_and_it_says_so(gogh: Any, monkeypatch: Any) -> None:
    said = gogh("replan", "--reason", "heat", "--drain", "v100-01")
    assert "  stands until `gogh undrain v100-01`: server v100-01 is drained by " in said
    assert "heat" in gogh("orders")
    assert "v100-01 is drained" in gogh("replan", "--dry-run")
    monkeypatch.setenv("GOGH_ALLOCATION__POWER_CAP_W", "9000")
    gogh("cap", "20000")
    assert "the cap of the settings stays: 9000 W" in gogh("uncap")
    gogh("undrain", "v100-01")


def test_a_quota_is_ordered_for_an_owner(gogh: Any, monkeypatch: Any) -> None:
    assert gogh("quota", "ann", "2").startswith("owner ann gets at most 2 GPUs by ")
    monkeypatch.setenv("GOGH_ALLOCATION__QUOTAS", '{"ann": 4}')
    assert "the quota of the settings stays: 4 GPUs" in gogh("unquota", "ann")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("drain v100-1", "server 'v100-1' is not known; did you mean 'v100-01'"),
        ("drain v100-01 --until yesterday", "--until: 'yesterday' is no time"),
        ("drain v100-01 --from 2020-01-01", "--from: 2020-01-01 00:00 is past: it is 2026"),
        ("drain v100-01 --from +2h --until +1h", "which is not after"),
        ("undrain v100-01", "server 'v100-01' is not drained by an order"),
        ("pin nobody", "job 'nobody' is not on the cluster"),
        ("unpin nobody", "job 'nobody' is not pinned by an order"),
        ("cap 0", "the cap is 0.0 W"),
        ("uncap", "no power cap was ordered"),
        ("unquota ann", "owner 'ann' is not under a quota by an order"),
    ],
)
def test_wrong_orders_get_one_line(gogh: Any, command: str, text: str) -> None:
    before = gogh("orders", "--all", "--json")
    with pytest.raises(InvalidInput, match=text) as caught:
        gogh(*command.split())
    assert "\n" not in str(caught.value)
    assert gogh("orders", "--all", "--json") == before
