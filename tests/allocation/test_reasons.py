"""The reason of a stop or a wait names the rule that decided."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gogh_core.allocation import Limits, Option, Problem, ProblemJob, ProblemServer, plan, verify
from gogh_core.domain import Slot

OPTIONS = [Option("t", 1, ("A",), (4.0,), 100.0), Option("t", 2, ("A",), (8.0,), 200.0)]
HERE = (Slot("s1", (0,)),)
JOB = ProblemJob("me", "A", required_throughput=3.0, at=HERE, owner="x", since_s=40.0)
HIGH = ProblemJob("high", "A", required_throughput=3.0, priority=9.0)
DRAINED = ProblemServer("s1", "t", 1, 50.0, True, drain=True)
KEPT = replace(DRAINED, drain=False)
OTHER = ProblemServer("s2", "t", 1, 50.0, True)


def reason(jobs: list[ProblemJob], servers: list[ProblemServer], **limits: object) -> str:
    """Why `me` waits; it is the reason of its stop too."""
    problem = Problem(300.0, 1000.0, {"t": 10.0}, servers, jobs, OPTIONS, **limits)
    made = plan(problem, gap=0.0)
    assert verify(problem, made) == []
    assert [stop.job for stop in made.stops] == [job.id for job in jobs[:1] if job.at]
    (said,) = [entry.reason for entry in made.waiting if entry.job == "me"]
    assert all(stop.reason == said for stop in made.stops)
    return said


@pytest.mark.parametrize(
    ("job", "limits", "rule"),
    [
        (JOB, Limits(600.0, 0.0), "it has run for 40 s and min_runtime_s is 600 s"),
        (replace(JOB, since_s=9e3, moved_ago_s=70.0), Limits(60.0, 900.0),
         "it moved 70 s ago and cooldown_s is 900 s"),
        (JOB, Limits(), "it is not movable"),
    ],
)  # fmt: skip
def test_a_drain_stops_a_job_that_may_not_move(job, limits, rule) -> None:
    said = reason([replace(job, movable=False)], [DRAINED, OTHER], limits=limits)
    assert said == f"server s1 is to be drained, and it may not move: {rule}"


def test_a_drain_stops_a_job_that_finds_no_room_elsewhere() -> None:
    there = replace(HIGH, at=(Slot("s2", (0,)),))
    said = reason([JOB, there], [DRAINED, OTHER])
    assert said == (
        "server s1 is to be drained, and every GPU it could use (t) is taken by jobs that are "
        "worth more: high"
    )


def test_a_drain_stops_a_job_when_all_moves_are_used_up() -> None:
    said = reason([JOB], [DRAINED, OTHER], max_moves=0)
    assert said == "server s1 is to be drained, and the limit of 0 moves is used up"


def test_a_power_cap_is_named_with_what_the_job_would_add() -> None:
    said = reason([JOB, HIGH], [replace(KEPT, gpus=2)], power_cap_w=180.0)
    assert said == (
        "the power cap is 180 W: the plan draws 160 W, and the job would add at least 90 W"
    )


def test_a_quota_is_named() -> None:
    said = reason([JOB], [KEPT], quotas={"x": 0})
    assert said == "the quota of 'x' (0 GPUs) is used up"


def test_jobs_that_take_its_gpus_are_named() -> None:
    assert reason([JOB, HIGH], [KEPT]) == (
        "every GPU it could use (t) is taken by jobs that are worth more: high"
    )
    young = replace(JOB, movable=False)
    assert reason([young, HIGH], [KEPT], limits=Limits(600.0, 0.0)) == (
        "its GPUs go to jobs that are worth more: high, and it may not move: it has run for 40 s "
        "and min_runtime_s is 600 s"
    )


def test_gpus_that_are_free_on_different_servers_are_no_room_for_a_gang() -> None:
    gang = ProblemJob("me", "A", gpu_counts=(2,), required_throughput=8.0)
    ones = [
        replace(HIGH, id=f"high-{name}", at=(Slot(name, (0,)),), move_cost_j=1.0)
        for name in ("s1", "s2")
    ]
    servers = [replace(KEPT, gpus=2), replace(OTHER, gpus=2)]
    assert reason([gang, *ones], servers, max_moves=0) == (
        "no server has room for it: it needs 2 GPUs of t on one server, and the limit of 0 moves "
        "is used up"
    )


def test_what_a_job_is_worth_is_said_without_watts() -> None:
    cheap = ProblemJob("me", "A", required_throughput=3.0, priority=0.01)
    said = reason([cheap], [replace(KEPT, on=False)])
    assert said == "running it would cost more than leaving it waiting (its penalty is 10)"
