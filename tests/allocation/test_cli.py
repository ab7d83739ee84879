"""The commands as a user meets them: plan, verify, explain; bad input is one clear line."""

from __future__ import annotations

import json
import sys

import pytest

from gogh_core.bench.problems import generate, write_problem
from gogh_core.cli import main


@pytest.fixture
def gogh(monkeypatch, capsys):
    """Runs the command; gives (exit code, what it printed, what it complained)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gogh", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as left:
            code = int(left.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A problem, its plan, and all that is neither."""
    from gogh_core.allocation import plan

    here = tmp_path_factory.mktemp("files")
    problem = generate(6, 16, 0)
    write_problem(problem, here / "problem.json")
    (here / "plan.json").write_text(plan(problem, gap=0.05).to_json())
    (here / "empty.json").write_text("")
    (here / "text.json").write_text("hello")
    (here / "list.json").write_text("[]")
    (here / "null.json").write_text("null")
    (here / "half.json").write_text((here / "problem.json").read_text()[:500])
    (here / "deep.json").write_text("[" * 100_000 + "]" * 100_000)
    (here / "binary.json").write_bytes(bytes(range(256)) * 40)
    (here / "folder.json").mkdir()
    body = json.loads((here / "problem.json").read_text())
    (here / "other.json").write_text(json.dumps({**body, "schema": "gogh.problem/2"}))
    (here / "lost.json").write_text(json.dumps({**body, "options": {"file": "none.parquet"}}))
    (here / "fake.json").write_text(json.dumps({**body, "options": {"file": "text.json"}}))
    return here


BAD = (
    "missing",
    "empty",
    "text",
    "list",
    "null",
    "half",
    "deep",
    "binary",
    "folder",
    "other",
    "lost",
    "fake",
)


def one_line(complaint: str, name: str) -> None:
    lines = complaint.strip().splitlines()
    assert len(lines) == 1, complaint[:500]
    assert lines[0].startswith("gogh: ")
    assert name in lines[0]
    assert len(lines[0]) < 600


@pytest.mark.parametrize("name", BAD)
def test_a_bad_problem_file_is_one_clear_line(name, folder, gogh):
    problem, made = folder / f"{name}.json", folder / "plan.json"
    for arguments in (
        ("plan", problem),
        ("verify", problem, made),
        ("explain", "job-000001", "--problem", problem, "--plan", made),
    ):
        code, said, complaint = gogh(*arguments)
        assert code == 2
        assert said == ""
        one_line(complaint, f"{name}.json")


@pytest.mark.parametrize("name", [*BAD[:-3], "problem"])
def test_a_bad_plan_file_is_one_clear_line(name, folder, gogh):
    problem, made = folder / "problem.json", folder / f"{name}.json"
    for arguments in (
        ("verify", problem, made),
        ("explain", "job-000001", "--problem", problem, "--plan", made),
    ):
        code, _, complaint = gogh(*arguments)
        assert code == 2
        one_line(complaint, f"{name}.json")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--solver", "magic"), "magic"),
        (("--gap", "-1"), "gap"),
        (("--gap", "nan"), "gap"),
        (("--time-limit", "0"), "time limit"),
        (("--time-limit", "inf"), "time limit"),
        (("--out", "no/such/folder/plan.json"), "cannot be written"),
        (("--out", "."), "is a directory"),
    ],
)
def test_a_bad_option_is_one_clear_line(arguments, word, folder, gogh):
    code, said, complaint = gogh("plan", folder / "problem.json", *arguments)
    assert code == 2
    assert said == ""
    one_line(complaint, word)


def test_an_explanation_needs_both_files_and_a_known_job(folder, gogh):
    problem, made = folder / "problem.json", folder / "plan.json"
    code, _, complaint = gogh("explain", "x", "--problem", problem)
    assert code == 2
    one_line(complaint, "--plan")
    code, _, complaint = gogh("explain", "x", "--problem", problem, "--plan", made)
    assert code == 2
    one_line(complaint, "job x is not in the problem")


def test_a_plan_is_written_verified_and_explained(folder, gogh, tmp_path):
    problem, made = folder / "problem.json", tmp_path / "plan.json"
    code, said, _ = gogh("plan", problem, "--out", made, "--gap", "0.05")
    assert code == 0
    assert "gap" in said
    spent = json.loads(made.read_text())["spent"]
    assert f"draws {spent['power_w']:.1f} W, penalties " in said
    code, said, _ = gogh("verify", problem, made, "--json")
    assert code == 0
    assert json.loads(said) == {"good": True, "violations": [], "rules": []}
    code, said, _ = gogh("explain", "job-000001", "--problem", problem, "--plan", made)
    assert code == 0
    assert said.startswith("job-000001")
    code, said, _ = gogh(
        "explain", "job-000001", "--problem", problem, "--plan", made, "--json", "--time-limit", "0"
    )
    assert code == 0
    assert set(json.loads(said)) >= {"job", "decision", "alternatives", "binding", "changes"}
    assert list(tmp_path.iterdir()) == [made], "nothing is left lying about"


def test_a_broken_plan_is_refused_with_every_violation(folder, gogh, tmp_path):
    raw = json.loads((folder / "plan.json").read_text())
    raw["cost_w"] += 10
    raw["servers"] = []
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps(raw))
    code, said, _ = gogh("verify", folder / "problem.json", broken)
    assert code == 1
    assert "cost_w" in said
    code, said, _ = gogh("verify", folder / "problem.json", broken, "--json")
    assert code == 1
    told = json.loads(said)
    assert not told["good"]
    assert {"cost_is_right", "switches_are_all_listed"} <= set(told["rules"])
    assert len(told["rules"]) == len(told["violations"])


def test_a_plan_that_cannot_be_kept_says_why_and_fails(folder, gogh, tmp_path):
    body = json.loads((folder / "problem.json").read_text())
    body["power_cap_w"] = 0
    body["servers"][0]["keep_on"] = True
    path = tmp_path / "capped.json"
    path.write_text(json.dumps(body))
    code, said, _ = gogh("plan", path)
    assert code == 1
    assert "infeasible" in said
    assert "the cap is 0 W" in said
