"""A small cluster by hand, for everything that needs no store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from gogh_core.domain import (
    ClusterState,
    Descriptors,
    Job,
    JobState,
    JobStatus,
    Server,
    ServerStatus,
    Slot,
)
from gogh_core.planning import options_table

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


def server(name: str, gpu_type: str = "v100", gpus: int = 4, **status: Any) -> ServerStatus:
    return ServerStatus(Server(name, gpu_type, gpus, 200.0), **status)


def job(
    name: str,
    model: str = "ResNet-50",
    *,
    at: tuple[tuple[str, tuple[int, ...]], ...] = (),
    state: JobState | None = None,
    ago_s: float = 0.0,
    steps_done: float = 0.0,
    moved_ago_s: float | None = None,
    **fields: Any,
) -> JobStatus:
    since = NOW - timedelta(seconds=ago_s)
    return JobStatus(
        Job(name, Descriptors(model), NOW - timedelta(days=1), **fields),
        state or (JobState.RUNNING if at else JobState.WAITING),
        slots=tuple(Slot(where, gpus) for where, gpus in at),
        since=since,
        steps_done=steps_done,
        moved_at=None if moved_ago_s is None else NOW - timedelta(seconds=moved_ago_s),
    )


def cluster(servers: list[ServerStatus], jobs: list[JobStatus]) -> ClusterState:
    return ClusterState(NOW, tuple(servers), tuple(jobs))


def options(*more: dict[str, Any]) -> pa.Table:
    """ResNet-50 and LM, alone on one and two GPUs of v100 and k80, and together on a v100."""
    rows: list[dict[str, Any]] = [
        {
            "gpu_type": "v100",
            "gpus": 1,
            "class_a": "ResNet-50",
            "throughput_a": 10.0,
            "power_w": 200.0,
        },
        {
            "gpu_type": "v100",
            "gpus": 2,
            "class_a": "ResNet-50",
            "throughput_a": 18.0,
            "power_w": 400.0,
        },
        {
            "gpu_type": "k80",
            "gpus": 1,
            "class_a": "ResNet-50",
            "throughput_a": 2.0,
            "power_w": 100.0,
        },
        {"gpu_type": "v100", "gpus": 1, "class_a": "LM", "throughput_a": 20.0, "power_w": 150.0},
        {"gpu_type": "k80", "gpus": 1, "class_a": "LM", "throughput_a": 5.0, "power_w": 90.0},
        {
            "gpu_type": "v100",
            "gpus": 1,
            "class_a": "ResNet-50",
            "class_b": "LM",
            "throughput_a": 7.0,
            "throughput_b": 14.0,
            "power_w": 240.0,
        },
    ]
    return options_table([*rows, *more])
