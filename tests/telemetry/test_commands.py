"""`gogh ingest`, `gogh quarantine` and `gogh contracts` as a person types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gogh_core.cli import app
from gogh_core.errors import BatchRefused, InvalidContract, InvalidInput
from gogh_core.store import Store
from tests.telemetry.world import at, csv, opened, put, rows_of, sample, state_of

NOW = at(100).isoformat().replace("+00:00", "")
SUITE = """{"name": "gpu_samples",
 "expectations": [
  {"type": "expect_column_values_to_not_be_null",
   "kwargs": {"column": "ts"},
   "meta": {"level": "refuse", "says": "a sample has a time"}},
  {"type": "%s",
   "kwargs": {"column": "power_w", "%s": 10},
   "meta": {"level": "warn", "says": "little power"}}]}
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One good file with a bad row, and one whose every second row is wrong."""
    home = tmp_path_factory.mktemp("commands") / "home"
    settings, store = opened(home, state_of([("s1", "v100", 2), ("s2", "v100", 2)]))
    one = [sample(s) for s in range(30)] + [sample(40, power=-7), sample(41, power=-8)]
    put(settings, "gpu/s1-1.csv", csv(one))
    watts = (9000 if s % 2 else 100 for s in range(20))
    put(settings, "gpu/s2-1.csv", csv(sample(s, "s2", power=w) for s, w in enumerate(watts)))
    return store


@pytest.fixture
def gogh(store: Store, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("GOGH_HOME", str(store.settings.home))
    # Its samples are not the embedded cluster's, so neither is its clock.
    monkeypatch.setenv("GOGH_CLUSTER__MANAGER", "files")

    def run(*arguments: object, fails: type[Exception] | None = None) -> Any:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if fails is not None:
            assert isinstance(result.exception, fails), result.output
            return str(result.exception)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def held(gogh: Any, source: str) -> list[dict[str, Any]]:
    rows = json.loads(gogh("quarantine", "list", "--json").output)
    return [row for row in rows if row["source"] == source]


def test_a_refused_batch_fails_the_run_by_its_name(gogh: Any) -> None:
    said = gogh("ingest", "--no-records", "--now", NOW, fails=BatchRefused)
    assert "gpu/s2-1.csv" in said
    assert "10 of 20 rows fail" in said


def test_the_list_says_what_is_held_and_why(gogh: Any) -> None:
    rows = held(gogh, "gpu/s1-1.csv")
    assert {(row["line"], row["value"]) for row in rows} == {(32, "-7.0"), (33, "-8.0")}
    text = gogh("quarantine", "list", "--table", "gpu_samples").output
    assert "gpu/s1-1.csv:32 power_w = -7.0: power is between 0 and 5000 W" in text
    gogh("quarantine", "list", "--status", "perhaps", fails=InvalidInput)


def test_one_row_is_shown_whole(gogh: Any) -> None:
    [first, _] = sorted(held(gogh, "gpu/s1-1.csv"), key=lambda row: int(row["line"]))
    shown = json.loads(gogh("quarantine", "show", first["quarantine_id"][:12], "--json").output)
    assert json.loads(shown["row_json"])["power_w"] == -7.0
    assert "expect_column_values_to_be_between" in gogh(
        "quarantine", "show", first["quarantine_id"]
    ).output  # fmt: skip
    gogh("quarantine", "show", "ffffffffffff", fails=InvalidInput)


def test_an_id_that_fits_no_row_or_several_stops_everything(gogh: Any, store: Store) -> None:
    known = [str(row["quarantine_id"]) for row in held(gogh, "gpu/s1-1.csv")]
    said = gogh("quarantine", "drop", known[0], "nonsense", known[1][:4], fails=InvalidInput)
    assert "'nonsense' fits no rows" in said
    assert f"{known[1][:4]!r} is shorter than 6 letters" in said
    assert "nothing of gpu/x.csv is held" in gogh(
        "quarantine", "readmit", "--source", "gpu/x.csv", fails=InvalidInput
    )
    assert "no row is named" in gogh("quarantine", "drop", fails=InvalidInput)
    assert len(held(gogh, "gpu/s1-1.csv")) == 2, "nothing was settled"
    assert "1 of 22 rows" in gogh("quarantine", "list", "--limit", 1).output


def test_a_row_is_readmitted_when_its_contract_holds(gogh: Any, store: Store) -> None:
    [first, second] = sorted(held(gogh, "gpu/s1-1.csv"), key=lambda row: int(row["line"]))
    again = gogh("quarantine", "readmit", first["quarantine_id"])
    assert (again.exit_code, "1 still held" in again.output) == (1, True)
    gogh("quarantine", "readmit", first["quarantine_id"], "--set", "power_w", fails=InvalidInput)
    gogh("quarantine", "readmit", first["quarantine_id"], "--set", "watt=7", fails=InvalidInput)
    done = gogh("quarantine", "readmit", first["quarantine_id"], "--set", "power_w=70")
    assert "1 readmitted, 0 still held" in done.output
    assert rows_of(store, f"SELECT power_w FROM gpu_samples WHERE ts = '{at(40).isoformat()}'") == [
        (70.0,)
    ]
    assert "1 dropped" in gogh("quarantine", "drop", second["quarantine_id"]).output
    again = gogh("quarantine", "drop", second["quarantine_id"], fails=InvalidInput)
    assert "is dropped already" in again
    assert not held(gogh, "gpu/s1-1.csv")


def test_a_refused_batch_is_repaired_and_readmitted(gogh: Any, store: Store) -> None:
    """Nothing of it was used, nothing of it is lost."""
    counted = "SELECT count(*) FROM gpu_samples WHERE server_id = 's2'"
    assert rows_of(store, counted) == [(0,)]
    rows = held(gogh, "gpu/s2-1.csv")
    assert len(rows) == 20
    good = [row["quarantine_id"] for row in rows if row["expectation"] == "batch refused"]
    assert len(good) == 10
    assert "10 readmitted" in gogh("quarantine", "readmit", *good).output
    repaired = ("--source", "gpu/s2-1.csv", "--set", "power_w=90")
    assert "10 readmitted" in gogh("quarantine", "readmit", *repaired).output
    assert rows_of(store, counted) == [(20,)]
    assert not held(gogh, "gpu/s2-1.csv")


@pytest.mark.parametrize(
    ("kind", "argument", "line"),
    [
        ("expect_column_values_to_be_betwixt", "min_value", 6),
        ("expect_column_values_to_be_between", "least", 6),
    ],
)
def test_a_broken_suite_is_refused_with_its_line(
    gogh: Any, tmp_path: Path, kind: str, argument: str, line: int
) -> None:
    path = tmp_path / "gpu_samples.json"
    path.write_text(SUITE % (kind, argument))
    assert f"line {line}" in gogh("contracts", "check", path, fails=InvalidContract)


def test_a_suite_of_your_own_is_tried_on_a_file(gogh: Any, tmp_path: Path) -> None:
    suite = tmp_path / "gpu_samples.json"
    suite.write_text(SUITE % ("expect_column_values_to_be_between", "max_value"))
    assert "2 expectations" in gogh("contracts", "check", suite).output
    data = tmp_path / "s1-1.csv"
    data.write_text(csv(sample(s) for s in range(5)))
    tried = gogh("contracts", "check", data, "--suite", suite, "--now", NOW)
    assert "warning: little power (5)" in tried.output
    suite.write_text(suite.read_text().replace('"power_w"', '"watt"'))
    said = gogh("contracts", "check", data, "--suite", suite, "--now", NOW, fails=InvalidContract)
    assert "line 6: there is no column 'watt'" in said


def test_the_page_and_the_list_of_contracts(gogh: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    gogh("contracts", "page", "--out", page)
    assert "power is within what the GPU type can draw" in page.read_text()
    listed = json.loads(gogh("contracts", "list", "--json").output)
    assert {"gpu_samples", "job_progress"} <= {row["table"] for row in listed}
