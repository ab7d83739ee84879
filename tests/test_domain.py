"""The words: frozen, validated, in UTC; and plans as files."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gogh_core.domain import (
    Cycle,
    Descriptors,
    Job,
    Move,
    Placement,
    Plan,
    Server,
    ServerSwitch,
    Slot,
    Stop,
    Waiting,
    job_class,
    utc,
)
from gogh_core.errors import InvalidInput, InvalidPlan

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
ONE = Slot("s1", (0,))

PLAN = Plan(
    id="p1",
    status="optimal",
    solver="glpk",
    solve_s=1.25,
    cost_w=510.0,
    bound_w=500.0,
    gap=0.02,
    placements=(Placement("a", (ONE,), "b", 4.0), Placement("b", (ONE,), "a", 2.0, 250.0)),
    moves=(Move(1, "a", (Slot("s2", (1, 3)),), (ONE,), "saves 20 W"),),
    stops=(Stop(0, "c", (ONE,), "b needs it"),),
    servers=(ServerSwitch("s2", "off"),),
    waiting=(Waiting("c", "no GPU is free"),),
    versions={"gogh": "0.1.0"},
    certificate={"jobs": {"a": 1.5}},
    spent={"base_w": 300.0},
    notes=("a note",),
)


def job(**more: Any) -> Job:
    return Job(id="a", descriptors=Descriptors("ResNet-50", 64), submitted_at=NOON, **more)


def test_words_are_frozen() -> None:
    for word in (job(), PLAN, Server("s", "v100", 8, 300.0)):
        with pytest.raises(dataclasses.FrozenInstanceError):
            word.id = "x"  # type: ignore[misc]


def test_a_class_is_spelt_as_throughput_tables_spell_it() -> None:
    assert job().job_class == "ResNet-50 (batch size 64)"
    assert job_class("A3C", None) == "A3C"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Slot("s1", ()),
        lambda: Slot("s1", (0, 0)),
        lambda: Slot("s1", (-1,)),
        lambda: Server("s1", "v100", 0, 300.0),
        lambda: Server("s1", "v100", 8, -1.0),
        lambda: Server("s1", "v100", 8, float("nan")),
        lambda: Descriptors(" "),
        lambda: Descriptors("x", 0),
        lambda: Descriptors("x", flops_per_step=float("inf")),
        lambda: job(required_throughput=-1.0),
        lambda: job(gpu_counts=()),
        lambda: job(gpu_counts=(0,)),
        lambda: job(max_gpus=0),
        lambda: job(priority=float("nan")),
        lambda: Cycle(NOON, -1),
        lambda: Cycle(NOON.replace(tzinfo=None)),
    ],
)
def test_nonsense_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        wrong()


def test_times_are_utc() -> None:
    there = datetime(2026, 1, 5, 13, tzinfo=timezone(timedelta(hours=1)))
    assert utc(there) == NOON
    assert utc(there).tzinfo is UTC
    with pytest.raises(InvalidInput, match="has no zone"):
        utc(datetime(2026, 1, 5))
    with pytest.raises(InvalidInput, match="has no zone"):
        Job(id="a", descriptors=Descriptors("x"), submitted_at=datetime(2026, 1, 5))


def test_a_cycle_is_its_window_and_revision() -> None:
    cycle = Cycle.at(NOON + timedelta(seconds=301), 300)
    assert cycle.window_start == NOON + timedelta(seconds=300)
    assert cycle.id == "20260105T120500Z-0"
    assert Cycle(NOON, 1) > Cycle(NOON, 0)
    assert Cycle(NOON + timedelta(seconds=1)) > Cycle(NOON, 9)


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),
    st.sampled_from([10, 60, 300, 900, 3600, 86400]),
)
@hypothesis_settings(derandomize=True, deadline=None, max_examples=100)
def test_every_moment_lies_in_its_window(moment: datetime, window_s: int) -> None:
    start = Cycle.at(moment, window_s).window_start
    assert start <= moment < start + timedelta(seconds=window_s)
    assert Cycle.at(start, window_s).window_start == start


def test_a_plan_comes_back_from_its_file() -> None:
    assert Plan.from_dict(json.loads(PLAN.to_json())) == PLAN


def test_the_same_plan_is_the_same_text() -> None:
    assert PLAN.to_json() == Plan.from_dict(PLAN.to_dict()).to_json()


def test_a_plan_file_has_the_words_of_the_format() -> None:
    raw = PLAN.to_dict()
    assert raw["schema"] == "gogh.plan/1"
    assert raw["placements"][0]["with"] == "b"
    assert raw["moves"][0]["from"] == [{"server": "s2", "gpus": [1, 3]}]
    assert raw["servers"] == [{"id": "s2", "action": "off"}]


def test_every_fault_of_a_plan_file_is_listed() -> None:
    raw = PLAN.to_dict()
    raw["schema"] = "other"
    raw["status"] = "splendid"
    del raw["gap"]
    raw["moves"] = "none"
    raw["placements"][1] = {"job": "b"}
    raw["servers"][0]["action"] = "explode"
    with pytest.raises(InvalidPlan) as caught:
        Plan.from_dict(raw, where="plan.json")
    assert len(caught.value.faults) == 6


@pytest.mark.parametrize("raw", [[], "plan", 7, None])
def test_what_is_no_object_is_no_plan(raw: Any) -> None:
    with pytest.raises(InvalidPlan, match="no JSON object"):
        Plan.from_dict(raw)
