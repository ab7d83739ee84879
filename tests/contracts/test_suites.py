"""Suites as files: the ones that come with GOGH, and what is wrong with broken ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gogh_core.contracts import load_suite, load_suites
from gogh_core.errors import InvalidContract
from gogh_core.settings import Settings, load
from gogh_core.telemetry import held
from tests.telemetry.world import at, csv, opened, put, sample, state_of, take_in

GOOD = """{
  "name": "gpu_samples",
  "meta": {"allowed_share": 0.1},
  "expectations": [
    {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "ts"},
     "meta": {"level": "refuse", "says": "a sample has a time"}},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "power_w", "max_value": 5},
     "meta": {"level": "warn", "says": "little power"}}
  ]
}
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "gpu_samples.json"
    path.write_text(text)
    return path


def test_every_table_of_telemetry_has_a_suite(settings: Settings) -> None:
    suites = load_suites(settings)
    assert set(suites) == {
        *("servers", "gpus", "jobs", "job_events", "gpu_samples", "job_progress"),
        *("energy_windows", "observations"),
    }
    assert all(suite.helpers for suite in suites.values())
    assert all(check.says for suite in suites.values() for check in suite.checks)


def test_a_suite_of_your_own_takes_the_place_of_ours(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    (tmp_path / "gpu_samples.sql").write_text("SELECT *, power_w * 2 AS doubled FROM batch")
    suite = load_suites(load(home=tmp_path, contracts={"directory": tmp_path}))["gpu_samples"]
    assert [check.level for check in suite.checks] == ["refuse", "warn"]
    assert suite.checks[0].allowed_share == 0.1
    assert "doubled" in suite.helpers


OWN = """{
  "name": "gpu_samples",
  "expectations": [
    {"type": "expect_column_values_to_be_between",
     "kwargs": {"column": "jump_w", "min_value": -50, "max_value": 50},
     "meta": {"level": "refuse", "says": "power changes by at most 50 W"}},
    {"type": "expect_column_values_to_be_between", "kwargs": {"column": "power_w", "max_value": 99},
     "meta": {"level": "warn", "says": "we rarely draw more than 99 W"}}
  ]
}
"""
JUMP = """
SELECT *, power_w - lag(power_w) OVER (ORDER BY ts) AS jump_w, false AS is_copy FROM batch
"""


def test_a_contract_on_a_helper_column_is_added_without_python(tmp_path: Path) -> None:
    folder = tmp_path / "contracts"
    folder.mkdir()
    (folder / "gpu_samples.json").write_text(OWN)
    (folder / "gpu_samples.sql").write_text(JUMP)
    _, store = opened(tmp_path / "home", state_of([("s1", "v100", 1)]))
    settings = load(home=tmp_path / "home", contracts={"directory": folder})
    powers = [*(100.0 for _ in range(20)), 170.0]
    put(settings, "gpu/s1-1.csv", csv(sample(s, power=p) for s, p in enumerate(powers)))
    [source] = take_in(settings, store, at(60)).sources
    assert (source.rows_clean, source.rows_quarantined) == (20, 1)
    assert source.warnings == ("we rarely draw more than 99 W (21)",)
    [row] = held(store)
    assert (row["column_name"], row["value"], row["reason"]) == (
        *("jump_w", "70.0"),
        "power changes by at most 50 W",
    )
    (folder / "gpu_samples.sql").write_text(JUMP.replace("lag(", "lack("))
    put(settings, "gpu/s1-2.csv", csv([sample(30)]))
    with pytest.raises(InvalidContract, match=r"helper query fails.*lack"):
        take_in(settings, store, at(60))


def test_a_helper_query_may_leave_out_what_it_does_not_change_and_give_any_order(
    tmp_path: Path,
) -> None:
    _, store = opened(tmp_path / "home", state_of([("s1", "v100", 1)]))
    (tmp_path / "gpu_samples.json").write_text(OWN)
    powers = [100.0, 170.0, 171.0, 90.0]
    for number, query in enumerate(
        (JUMP, JUMP.replace("*", "row_id", 1) + " ORDER BY row_id DESC")
    ):
        (tmp_path / "gpu_samples.sql").write_text(query)
        settings = load(home=tmp_path / "home", contracts={"directory": tmp_path})
        rows = (sample(10 * number + s, power=p) for s, p in enumerate(powers))
        put(settings, f"gpu/s1-{number}.csv", csv(rows))
        take_in(settings, store, at(60))
    found = [(row["line"], row["value"]) for row in held(store)]
    assert sorted(found) == [(3, "70.0"), (3, "70.0"), (5, "-81.0"), (5, "-81.0")]
    with store.read() as connection:
        stored = connection.sql("SELECT power_w FROM gpu_samples ORDER BY ts").fetchall()
    assert stored == [(100.0,), (171.0,)] * 2


def test_a_helper_query_gives_each_row_once(tmp_path: Path) -> None:
    _, store = opened(tmp_path / "home", state_of([("s1", "v100", 1)]))
    (tmp_path / "gpu_samples.json").write_text(OWN)
    settings = load(home=tmp_path / "home", contracts={"directory": tmp_path})
    put(settings, "gpu/s1-1.csv", csv(sample(s) for s in range(5)))
    for query, fault in (
        (JUMP + " LIMIT 4", "makes 4 rows of 5"),
        (JUMP.replace("*", "row_id // 2 AS row_id", 1), "gives a row twice"),
        (JUMP.replace("*", "ts", 1), "has no row_id"),
    ):
        (tmp_path / "gpu_samples.sql").write_text(query)
        with pytest.raises(InvalidContract, match=fault):
            take_in(settings, store, at(60))


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('"meta": {"level": "warn", "says": "little power"}}', '"meta": {"level": "warn"', 9),
        ('"level": "warn"', '"level": "perhaps"', 7),
        ('"says": "a sample has a time"', '"says": ""', 5),
        ("expect_column_values_to_be_between", "see_column", 7),
        ('"allowed_share": 0.1', '"allowed_share": 7', 1),
        ('"name": "gpu_samples"', '"name": "other"', 1),
    ],
)
def test_a_broken_suite_is_refused_with_its_line(
    tmp_path: Path, old: str, new: str, line: int
) -> None:
    path = written(tmp_path, GOOD.replace(old, new))
    with pytest.raises(InvalidContract, match=f"line {line}"):
        load_suite(path)


def test_every_fault_is_listed_at_once(tmp_path: Path) -> None:
    raw = json.loads(GOOD)
    raw["expectations"] = [{"type": "no"}, {"type": "expect_x", "meta": {"level": "warn"}}]
    with pytest.raises(InvalidContract) as caught:
        load_suite(written(tmp_path, json.dumps(raw, indent=1)))
    assert len(caught.value.faults) == 2
