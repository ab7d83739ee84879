"""Problems are checked as a whole, and every fault is named."""

from __future__ import annotations

import json

import pytest

from gogh_core.allocation import load_problem, plan, problem_from_dict, verify
from gogh_core.bench.problems import generate, write_problem
from gogh_core.errors import InvalidInput, InvalidProblem
from tests.allocation import plans


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


def change(path: str, value: object):
    """The problem with one field changed; `DELETE` takes it away. Paths are like jobs.0.class."""
    body = raw()
    *parents, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    entry = body
    for key in parents:
        entry = entry[key]
    if value is DELETE:
        del entry[last]
    else:
        entry[last] = value
    return body


DELETE = object()
TWICE = [{"server": "s1", "gpus": [0]}, {"server": "s1", "gpus": [0]}]
PAIR = {"gpu_type": "v100", "gpus": 1, "classes": ["B", "B"], "throughput": [1, 2], "power_w": 9}
AGAIN = {"gpu_type": "v100", "gpus": 1, "classes": ["A"], "throughput": [7], "power_w": 210}
FAULTS = [
    ("schema", "gogh.problem/9", "schema is 'gogh.problem/9'"),
    ("schema", DELETE, "schema is None"),
    ("window_s", 0, "window_s is 0.0, not a number > 0"),
    ("window_s", "long", "window_s is 'long', not a number"),
    ("window_s", DELETE, "window_s is None"),
    ("window_s", float("nan"), "window_s is nan"),
    ("window_s", True, "window_s is True, not a number"),
    ("waiting_penalty_w", -1, "waiting_penalty_w is -1, not a number >= 0"),
    ("waiting_penalty_w", 10**400, "waiting_penalty_w is 1000"),
    ("power_cap_w", -5, "power_cap_w is -5"),
    ("power_cap_w", float("inf"), "power_cap_w is inf"),
    ("max_moves", 1.5, "max_moves is 1.5, not a whole number"),
    ("max_moves", -1, "max_moves is -1"),
    ("quotas", {"x": -1}, "quotas['x']: quota is -1"),
    ("quotas", [1], "quotas is no object"),
    ("limits", {"cooldown_s": "soon"}, "limits: cooldown_s is 'soon'"),
    ("gpu_types", DELETE, "gpu_types is missing"),
    ("gpu_types", {}, "gpu_type 'v100' is not among gpu_types"),
    ("gpu_types.v100", {}, "gpu_types['v100']: idle_w is None"),
    ("servers", DELETE, "servers is missing"),
    ("servers", {}, "servers is no list"),
    ("servers.0", 7, "servers[0]: id is None, not a text"),
    ("servers.0.id", "", "a server has an empty id"),
    ("servers.0.gpu_type", "x9", "server s1: gpu_type 'x9' is not among gpu_types"),
    ("servers.0.gpus", 0, "server s1: has 0 GPUs"),
    ("servers.0.gpus", 10**18, "server s1: gpus is 1000000000000000000, more than"),
    ("servers.0.gpus", 10**9, "the servers have 1000000000 GPUs together"),
    ("servers.0.base_w", -1, "server s1: base_w is -1"),
    ("servers.0.off_w", "low", "server s1: off_w is 'low'"),
    ("servers.0.switch_cost_j", -3, "server s1: switch_cost_j is -3"),
    ("servers.0.on", "yes", "server s1: on is 'yes', not true or false"),
    ("servers.0.drain", 1, "server s1: drain is 1"),
    ("servers.0.keep_on", None, "server s1: keep_on is None"),
    ("jobs", "all", "jobs is no list"),
    ("jobs.0.id", DELETE, "jobs[0]: id is None"),
    ("jobs.0.id", "j2", "job j2 is listed 2 times"),
    ("jobs.0.class", "unheard of", "job j1: class 'unheard of' is in no option"),
    ("jobs.0.class", 5, "job j1: class is 5, not a text"),
    ("jobs.0.mode", "swarm", "job j1: mode is 'swarm', not 'gang' or 'spread'"),
    ("jobs.0.mode", "spread", "job j1: max_gpus is None"),
    ("jobs.0.gpu_counts", [], "job j1: gpu_counts is []"),
    ("jobs.0.gpu_counts", [0], "job j1: gpu_counts [0] are not numbers from 1"),
    ("jobs.0.gpu_counts", [3], "job j1: no number of servers can hold a gang of 3"),
    ("jobs.0.gpu_counts", ["two"], "job j1: gpu_counts is 'two'"),
    ("jobs.0.required_throughput", -2, "job j1: required_throughput is -2"),
    ("jobs.0.priority", float("nan"), "job j1: priority is nan"),
    ("jobs.0.shareable", "maybe", "job j1: shareable is 'maybe', not true, false or 'owner'"),
    ("jobs.0.move_cost_j", -1, "job j1: move_cost_j is -1"),
    ("jobs.0.surplus_j_per_step", -1, "job j1: surplus_j_per_step is -1"),
    ("jobs.0.since_s", -1, "job j1: since_s is -1"),
    ("jobs.0.moved_ago_s", "now", "job j1: moved_ago_s is 'now'"),
    ("jobs.0.moves", 0.5, "job j1: moves is 0.5"),
    ("jobs.0.owner", 7, "job j1: owner is 7, not a text"),
    ("jobs.0.pinned", True, "job j1: is pinned but runs nowhere"),
    ("jobs.0.pinned", "no", "job j1: pinned is 'no'"),
    ("jobs.0.movable", "no", "job j1: movable is 'no'"),
    (
        "jobs.0.at",
        [{"server": "s9", "gpus": [0]}],
        "job j1: runs on server s9, which is not listed",
    ),
    (
        "jobs.0.at",
        [{"server": "s1", "gpus": [2]}],
        "job j1: runs on GPU 2 of server s1, which has 2",
    ),
    ("jobs.0.at", [{"server": "s1", "gpus": []}], "no GPU index"),
    ("jobs.0.at", [{"server": "s1"}], "lacks 'gpus'"),
    ("jobs.0.at", [{"server": "s1", "gpus": [0.5]}], "0.5 is no whole number"),
    ("jobs.0.at", [{"server": "s1", "gpus": "0"}], "gpus is '0', not a list"),
    ("jobs.0.at", ["s1"], "slot is 's1', not an object"),
    ("jobs.0.at", TWICE, "job j1: at names a GPU twice"),
    ("options", DELETE, "options is no list"),
    ("options", {"file": "../outside.parquet"}, "folder"),
    ("options.0", "fast", "options[0] is no object"),
    ("options.0.gpu_type", "x9", "options name the gpu_type 'x9', which is not among gpu_types"),
    ("options.0.gpus", 0, "has gpus below 1"),
    ("options.0.gpus", "1", "options[0] gpus is '1', not a whole number"),
    ("options.0.classes", ["A", "B", "C"], "not one or two names"),
    ("options.0.classes", [1], "options[0] class is 1, not a text"),
    ("options.0.throughput", [-1], "has a throughput that is not a number >= 0"),
    ("options.0.throughput", [1, 2], "has 1 classes but throughput [1, 2]"),
    ("options.0.throughput", ["7"], "options[0] throughput is '7', not a number"),
    ("options.0.power_w", -1, "has no power_w >= 0"),
    ("options.0.power_w", DELETE, "options[0] lacks 'power_w'"),
    ("options.0.power_w", 10**400, "options[0] power_w is 1000"),
    ("options.0.power_limit_w", 0, "has a power_limit_w that is not > 0"),
    ("options.2", PAIR, "pairs a class with itself at unequal throughputs"),
    ("options.2", AGAIN, "option A on 1 v100 is listed twice"),
]


@pytest.mark.parametrize(("path", "value", "words"), FAULTS)
def test_a_fault_says_what_is_wrong_and_where(path, value, words):
    with pytest.raises(InvalidProblem) as caught:
        problem_from_dict(change(path, value))
    assert any(words in fault for fault in caught.value.faults), caught.value.faults


def test_a_job_on_a_server_that_is_off_and_a_gang_on_two_types_are_faults():
    body = raw()
    body["gpu_types"]["t4"] = {"idle_w": 1}
    body["servers"] = [
        {"id": "s1", "gpu_type": "v100", "gpus": 2, "base_w": 300, "on": False},
        {"id": "s2", "gpu_type": "t4", "gpus": 2, "base_w": 300},
    ]
    body["jobs"][0]["at"] = [{"server": "s1", "gpus": [0]}, {"server": "s2", "gpus": [0]}]
    with pytest.raises(InvalidProblem) as caught:
        problem_from_dict(body)
    assert any("runs on server s1, which is off" in fault for fault in caught.value.faults)
    assert any("several types: t4, v100" in fault for fault in caught.value.faults)


def test_faults_of_every_part_come_together():
    body = raw()
    for path, value in (
        ("window_s", "long"),
        ("servers.0.base_w", -1),
        ("jobs.0.priority", "high"),
        ("jobs.1.mode", "swarm"),
        ("options.0.power_w", "much"),
    ):
        changed = change(path, value)
        key = path.split(".")[0]
        if key in ("jobs", "options", "servers"):
            at = int(path.split(".")[1])
            body[key][at] = changed[key][at]
        else:
            body[key] = changed[key]
    with pytest.raises(InvalidProblem) as caught:
        problem_from_dict(body)
    assert len(caught.value.faults) == 5


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


def test_what_is_wrong_by_itself_and_what_does_not_fit_are_told_at_once():
    raw = plans.problem().to_dict()
    first, second, third, *_ = raw["jobs"]
    first |= {"class": "nope", "required_throughput": -3}
    second |= {"gpu_counts": [999], "mode": "gang"}
    third |= {"class": 7}
    with pytest.raises(InvalidProblem) as caught:
        problem_from_dict(raw)
    told = caught.value.faults
    assert f"job {first['id']}: required_throughput is -3, not a number >= 0" in told
    assert f"job {first['id']}: class 'nope' is in no option" in told
    assert any("hold a gang of 999" in fault for fault in told)
    mine = [fault for fault in told if fault.startswith(f"job {third['id']}:")]
    assert mine == [f"job {third['id']}: class is 7, not a text"]
