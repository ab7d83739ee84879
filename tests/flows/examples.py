"""One small cluster and plan, shared by the tests of names, artifacts and events."""

from __future__ import annotations

from datetime import UTC, datetime

from gogh_core.domain import (
    ClusterState,
    Descriptors,
    Job,
    JobState,
    JobStatus,
    Move,
    Placement,
    Plan,
    PowerState,
    Server,
    ServerStatus,
    ServerSwitch,
    Slot,
    Stop,
    Waiting,
)

NOW = datetime(2026, 1, 5, 12, 5, tzinfo=UTC)


def job(name: str, *slots: Slot, priority: float = 1.0, required: float = 5.0) -> JobStatus:
    return JobStatus(
        Job(
            name,
            Descriptors("ResNet-50", 64),
            NOW,
            required_throughput=required,
            priority=priority,
        ),
        JobState.RUNNING if slots else JobState.WAITING,
        slots,
    )


def server(
    name: str, power: PowerState = PowerState.ON, lost: tuple[int, ...] = ()
) -> ServerStatus:
    return ServerStatus(Server(name, "v100", 4, 300.0), power, foreign_gpus=lost)


STATE = ClusterState(
    NOW,
    (server("s1"), server("s2")),
    (
        job("moves", Slot("s1", (0,))),
        job("stays", Slot("s1", (1,)), required=0.0),
        job("starts"),
        job("stops", Slot("s2", (3,))),
        job("waits"),
    ),
)

PLAN = Plan(
    id="p1",
    status="optimal",
    solver="glpk",
    solve_s=0.1,
    cost_w=1000.0,
    bound_w=996.0,
    gap=0.004,
    placements=(
        Placement("moves", (Slot("s2", (0,)),), "starts", 6.0),
        Placement("starts", (Slot("s2", (0,)),), "moves", 5.5),
        Placement("stays", (Slot("s1", (1,)),), None, 7.0),
    ),
    moves=(Move(1, "moves", (Slot("s1", (0,)),), (Slot("s2", (0,)),), "saves 80 W"),),
    stops=(Stop(0, "stops", (Slot("s2", (3,)),), "makes room"),),
    servers=(ServerSwitch("s3", "off"),),
    waiting=(
        Waiting("stops", "makes room"),
        Waiting("waits", "needs 12 steps/s; the best option is 9 | on v100"),
    ),
)
