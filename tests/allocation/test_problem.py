"""Problems are checked as a whole, and every fault is named."""

from __future__ import annotations

import json

import pytest

from gogh_core.allocation import load_problem, plan, problem_from_dict, verify
from gogh_core.bench.problems import generate, write_problem
from gogh_core.errors import InvalidInput, InvalidProblem


def raw() -> dict:
    return {
        "schema": "gogh.problem/1",
        "window_s": 300,
        "waiting_penalty_w": 10000,
        "gpu_types": {"v100": {"idle_w": 40}},
        "servers": [{"id": "s1", "gpu_type": "v100", "gpus": 2, "base_w": 300, "on": True}],
        "jobs": [
            {"id": "j1", "class": "A", "gpu_counts": [1], "required_throughput": 5.2},
            {"id": "j2", "class": "B", "required_throughput": 5},
        ],
        "options": [
            {"gpu_type": "v100", "gpus": 1, "classes": ["A"], "throughput": [7], "power_w": 210},
            {"gpu_type": "v100", "gpus": 1, "classes": ["B"], "throughput": [9], "power_w": 210},
            {
                "gpu_type": "v100",
                "gpus": 1,
                "classes": ["A", "B"],
                "throughput": [5.5, 9.0],
                "power_w": 260,
            },
        ],
    }


def test_a_problem_survives_being_written_and_read():
    problem = problem_from_dict(raw())
    again = problem_from_dict(json.loads(json.dumps(problem.to_dict())))
    assert again.sha256 == problem.sha256


def test_every_fault_is_listed_at_once():
    broken = raw()
    broken["jobs"][0]["class"] = "unheard of"
    broken["jobs"][1]["gpu_counts"] = [7]
    broken["options"][0]["throughput"] = [-1]
    for index in range(3):
        job = {"id": f"r{index}", "class": "B", "at": [{"server": "s1", "gpus": [0]}]}
        broken["jobs"].append(job)
    with pytest.raises(InvalidProblem) as caught:
        problem_from_dict(broken)
    text = "; ".join(caught.value.faults)
    assert "unheard of" in text
    assert "no number of servers can hold" in text
    assert "throughput" in text
    assert "has 3 jobs now" in text


@pytest.mark.parametrize(
    ("where", "value", "word"),
    [
        ("window_s", 0, "window_s"),
        ("window_s", "long", "window_s"),
        ("servers", None, "servers"),
        ("schema", "gogh.problem/9", "schema"),
        ("options", {"file": "../outside.parquet"}, "folder"),
        ("quotas", {"x": -1}, "quotas"),
    ],
)
def test_a_fault_names_its_field(where, value, word):
    broken = raw()
    broken[where] = value
    with pytest.raises(InvalidProblem, match=word):
        problem_from_dict(broken)


def test_options_may_lie_beside_the_problem_but_never_outside(tmp_path):
    problem = generate(30, 64, 0, own_classes=True)
    path = tmp_path / "p.json"
    write_problem(problem, path)
    body = json.loads(path.read_text())
    from gogh_core.bench import problems

    problems._write_options(problem.table, tmp_path / "o.parquet")
    body["options"] = {"file": "o.parquet"}
    path.write_text(json.dumps(body))
    assert load_problem(path).sha256 == problem.sha256
    body["options"] = {"file": "../o.parquet"}
    path.write_text(json.dumps(body))
    with pytest.raises(InvalidProblem, match="outside"):
        load_problem(path)


def test_a_missing_file_is_one_clear_line(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_problem(tmp_path / "none.json")


def test_pins_that_cannot_be_kept_make_it_infeasible_with_the_reason():
    body = raw()
    body["servers"][0]["drain"] = True
    body["jobs"][0] |= {"pinned": True, "at": [{"server": "s1", "gpus": [0]}]}
    problem = problem_from_dict(body)
    made = plan(problem)
    assert made.status == "infeasible"
    assert "drained" in made.notes[0]
    assert verify(problem, made) == []


def test_a_job_that_cannot_reach_its_requirement_waits_and_says_so():
    body = raw()
    body["jobs"][0]["required_throughput"] = 99
    made = plan(problem_from_dict(body))
    assert [entry.job for entry in made.waiting] == ["j1"]
    assert "99" in made.waiting[0].reason


def test_the_schema_in_the_docs_describes_our_problems(request):
    import jsonschema

    folder = request.path.parents[2]
    schema = json.loads((folder / "docs" / "problem.schema.json").read_text())
    jsonschema.validate(generate(5, 16, 0).to_dict(), schema)
    jsonschema.validate(generate(5, 16, 0, spread=True).to_dict(), schema)
    jsonschema.validate(raw(), schema)
