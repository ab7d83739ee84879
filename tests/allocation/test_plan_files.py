"""Plans from a stranger: whatever a plan file holds is refused in words, never with a crash."""

from __future__ import annotations

import copy

import pytest

from gogh_core.allocation import plan, violations_of
from gogh_core.domain import Plan
from gogh_core.errors import InvalidPlan
from tests.allocation import plans

PROBLEM = plans.problem()
GOOD = plans.stated(PROBLEM).to_dict()
HOSTILE = (
    None,
    True,
    -1,
    1.5,
    float("nan"),
    float("inf"),
    10**400,
    10**18,
    "",
    "x",
    "1",
    "\0",
    [],
    [None],
    [[]],
    {},
    {"a": 1},
)
HARMLESS = {"reason", "notes", "versions", "certificate", "id", "solver", "solve_s"}
"""Fields in which anything that can be read is allowed."""


def paths(value: object, here: tuple = ()):
    yield here
    entries = value.items() if isinstance(value, dict) else ()
    entries = enumerate(value) if isinstance(value, list) else entries
    for key, entry in entries:
        yield from paths(entry, (*here, key))


def changed(path: tuple, value: object) -> object:
    if not path:
        return value
    raw = copy.deepcopy(GOOD)
    entry = raw
    for key in path[:-1]:
        entry = entry[key]
    entry[path[-1]] = value
    return raw


def said_of(raw: object) -> list[str]:
    """Faults of the file, else violations of the plan."""
    try:
        made = Plan.from_dict(raw)  # type: ignore[arg-type]
    except InvalidPlan as error:
        return list(error.faults)
    return [violation.text for violation in violations_of(PROBLEM, made)]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: str(value)[:20])
def test_a_hostile_value_anywhere_is_refused(value):
    accepted = []
    looked = 0
    for path in paths(GOOD):
        original = GOOD
        for key in path:
            original = original[key]
        if original == value and type(original) is type(value):
            continue
        looked += 1
        if not said_of(changed(path, value)) and not HARMLESS & set(path):
            accepted.append(path)
    # What a plan need not say: its parts of the cost, and the default of a field left out.
    accepted = [path for path in accepted if path[0] != "spent"]
    assert accepted == []
    assert looked > 150


def test_every_field_that_is_needed_is_missed():
    needed = 0
    for path in paths(GOOD):
        if not path or isinstance(path[-1], int) or {"spent", *HARMLESS} & set(path[:-1]):
            continue
        raw = changed(path, None)
        entry = raw
        for key in path[:-1]:
            entry = entry[key]
        del entry[path[-1]]
        said = said_of(raw)
        if path[-1] not in HARMLESS - {"id", "solver", "solve_s"} | {"spent", "with"} | {
            "power_limit_w"
        }:
            assert said, path
            needed += 1
    assert needed > 60


def test_all_faults_of_a_plan_file_come_together():
    raw = copy.deepcopy(GOOD)
    raw["cost_w"] = "much"
    raw["placements"][0]["slots"] = "s1"
    raw["moves"][0]["step"] = "first"
    raw["notes"] = 5
    with pytest.raises(InvalidPlan) as caught:
        Plan.from_dict(raw)
    assert len(caught.value.faults) == 4


def test_moves_in_a_circle_need_somebody_held():
    from dataclasses import replace

    from gogh_core.allocation import Option, Problem, ProblemJob, ProblemServer

    options = [
        Option(t, 1, (c,), (4.0,), 10.0 if (t, c) in (("t", "A"), ("u", "B")) else 500.0)
        for t in "tu"
        for c in "AB"
    ]
    servers = [ProblemServer("s1", "t", 1, 50.0), ProblemServer("s2", "u", 1, 50.0)]
    jobs = [ProblemJob("a", "A", at=plans.at("s2", 0)), ProblemJob("b", "B", at=plans.at("s1", 0))]
    problem = Problem(300.0, 5000.0, {"t": 10.0, "u": 10.0}, servers, jobs, options)
    made = plan(problem, gap=0.0)
    assert [move.job for move in made.moves if move.held] != []
    for steps in ((1, 1), (1, 2), (2, 1), (10**9, 10**9)):
        moves = tuple(
            replace(move, held=False, step=step)
            for move, step in zip(made.moves, steps, strict=True)
        )
        broken = {v.rule for v in violations_of(problem, replace(made, moves=moves))}
        assert broken == {"moves_can_be_carried_out"}
