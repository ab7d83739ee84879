"""The commands: plan, verify, explain, bench problem."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from gogh_core.bench.problems import generate, write_problem
from gogh_core.cli import app
from gogh_core.errors import InvalidInput


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    write_problem(generate(6, 16, 0), folder / "problem.json")
    made = CliRunner().invoke(
        app,
        ["plan", str(folder / "problem.json"), "--out", str(folder / "plan.json"), "--gap", "0.05"],
    )
    assert made.exit_code == 0, made.output
    return folder


def test_a_plan_can_be_verified_and_explained(files):
    problem, plan = str(files / "problem.json"), str(files / "plan.json")
    good = CliRunner().invoke(app, ["verify", problem, plan, "--json"])
    assert good.exit_code == 0
    assert json.loads(good.output) == {"good": True, "violations": [], "rules": []}
    told = CliRunner().invoke(app, ["explain", "job-000001", "--problem", problem, "--plan", plan])
    assert told.exit_code == 0
    assert "job-000001" in told.output


def test_a_broken_plan_is_refused_with_every_violation(files):
    raw = json.loads((files / "plan.json").read_text())
    raw["cost_w"] += 10
    broken = files / "broken.json"
    broken.write_text(json.dumps(raw))
    bad = CliRunner().invoke(app, ["verify", str(files / "problem.json"), str(broken)])
    assert bad.exit_code == 1
    assert "cost_w" in bad.output


def test_bad_input_is_ours_to_name(files):
    for arguments in (
        ["plan", str(files / "missing.json")],
        ["plan", str(files / "problem.json"), "--solver", "magic"],
        ["explain", "x", "--problem", str(files / "problem.json")],
    ):
        result = CliRunner().invoke(app, arguments)
        assert isinstance(result.exception, InvalidInput)
