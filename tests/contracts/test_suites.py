"""Suites as files: the ones that come with GOGH, and what is wrong with broken ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gogh_core.contracts import load_suite, load_suites
from gogh_core.errors import InvalidContract
from gogh_core.settings import Settings, load

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
