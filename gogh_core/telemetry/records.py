"""Job and node records from the cluster manager: which servers and jobs there are, and where.

`keep_records` checks a `ClusterState` against the contracts of servers, gpus and jobs and keeps
what is clean; `record_state` adds the events that follow from it. A record that breaks its contract
is held in quarantine, the last good one stays, and `trusted` tells the planner to leave that server
or job alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa

from gogh_core import hardware
from gogh_core.contracts import Suite, as_batch, check_batch, load_suites
from gogh_core.contracts import record as record_run
from gogh_core.domain import ClusterState, JobState, JobStatus, ServerStatus, Slot
from gogh_core.settings import Settings
from gogh_core.store import Store, fetch
from gogh_core.telemetry.changes import record_changes
from gogh_core.telemetry.report import Counts, SourceReport
from gogh_core.telemetry.take import fill_temporary

__all__ = ["Trust", "keep_records", "record_state", "trusted"]

_TIME = pa.timestamp("us", "UTC")
_SERVERS = {
    "server_id": pa.string(),
    "gpu_type": pa.string(),
    "gpus": pa.int32(),
    "base_w": pa.float64(),
    "off_w": pa.float64(),
    "switch_cost_j": pa.float64(),
    "power": pa.string(),
    "drain": pa.bool_(),
    "keep_on": pa.bool_(),
    "foreign_gpus": pa.list_(pa.int32()),
    "since": _TIME,
}
_GPUS = {
    "server_id": pa.string(),
    "gpu_index": pa.int32(),
    "gpu_type": pa.string(),
    "power_limit_w": pa.float64(),
}
_JOBS = {
    "job_id": pa.string(),
    "name": pa.string(),
    "owner": pa.string(),
    "job_class": pa.string(),
    "model": pa.string(),
    "batch_size": pa.int32(),
    "kind": pa.string(),
    "family": pa.string(),
    "precision": pa.string(),
    "parameters": pa.float64(),
    "flops_per_step": pa.float64(),
    "bytes_per_step": pa.float64(),
    "memory_bytes": pa.float64(),
    "mode": pa.string(),
    "gpu_counts": pa.list_(pa.int32()),
    "max_gpus": pa.int32(),
    "required_throughput": pa.float64(),
    "unit": pa.string(),
    "total_steps": pa.float64(),
    "deadline_at": _TIME,
    "priority": pa.float64(),
    "shareable": pa.string(),
    "movable": pa.bool_(),
    "move_cost_j": pa.float64(),
    "surplus_j_per_step": pa.float64(),
    "submitted_at": _TIME,
    "state": pa.string(),
    "slots": pa.string(),
    "since": _TIME,
    "moved_at": _TIME,
    "moves": pa.int32(),
    "steps_done": pa.float64(),
}


def record_state(
    store: Store,
    settings: Settings,
    state: ClusterState,
    *,
    now: datetime,
    suites: Mapping[str, Suite] | None = None,
) -> SourceReport:
    """Keep what the cluster manager reports, and the events that follow from it."""
    report = keep_records(store, settings, state, now=now, suites=suites)
    with store.write() as connection:
        record_changes(connection, settings, state)
    return report


def keep_records(
    store: Store,
    settings: Settings,
    state: ClusterState,
    *,
    now: datetime,
    suites: Mapping[str, Suite] | None = None,
) -> SourceReport:
    """Keep what the cluster manager reports; bad records go to quarantine."""
    suites = suites or load_suites(settings)
    report = SourceReport("records")
    tables: dict[str, tuple[dict[str, pa.DataType], list[dict[str, Any]]]] = {
        "servers": (_SERVERS, [_server(status) for status in state.servers]),
        "gpus": (_GPUS, _gpus(state)),
        "jobs": (_JOBS, [_job(status) for status in state.jobs]),
    }
    with store.write() as connection:
        for table, (types, rows) in tables.items():
            counts, warnings, refused = _keep(
                connection, suites[table], types, rows, state=state, now=now
            )
            report = report.plus(counts, warnings)
            report = replace(report, refused=(*report.refused, *refused))
    return report


def _keep(
    connection: duckdb.DuckDBPyConnection,
    suite: Suite,
    types: Mapping[str, pa.DataType],
    rows: Sequence[Mapping[str, Any]],
    *,
    state: ClusterState,
    now: datetime,
) -> tuple[Counts, tuple[str, ...], tuple[str, ...]]:
    """One table of records: checked, bad ones aside, clean ones in the place of the old."""
    batch = as_batch(_table(types, rows))
    verdict = check_batch(connection, suite, batch, now=now)
    text = json.dumps([suite.table, state.at.isoformat(), [str(row) for row in rows]])
    batch_id = hashlib.sha256(text.encode()).hexdigest()[:24]
    connection.register(
        "parts",
        pa.table(
            {
                "part": pa.array([0], pa.int32()),
                "batch_id": [batch_id],
                "source": ["records"],
            }
        ),
    )
    fill_temporary(connection, "records", verdict, late_s=0.0)
    name = suite.table
    counted = fetch(connection, "telemetry_records_aside", table=name, now=now, batch_id=batch_id)
    fetch(connection, f"telemetry_store_{name}", now=now, at=state.at)
    counts = Counts(**counted.to_pylist()[0])
    at = state.at.isoformat()
    fetch(
        connection,
        "telemetry_records_ledger",
        batch_id=batch_id,
        table=name,
        at=at,
        now=now,
        status="refused"
        if verdict.refused
        else "warned"
        if counts.rows_quarantined
        else "accepted",
        detail="; ".join(verdict.refused.values()) or None,
        **{key: getattr(counts, key) for key in counts.__slots__},
    )
    record_run(connection, suite, verdict, run_id=batch_id, sources=["records"], now=now)
    refused = tuple(f"{name}: {why}" for why in verdict.refused.values())
    return counts, verdict.warnings, refused


def _table(types: Mapping[str, pa.DataType], rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.table({name: pa.array([r[name] for r in rows], kind) for name, kind in types.items()})


def _gpu_type(name: str) -> str:
    found = hardware.find(name)
    return name if found is None else found.name


def _server(status: ServerStatus) -> dict[str, Any]:
    server = status.server
    return {
        "server_id": server.id,
        "gpu_type": _gpu_type(server.gpu_type),
        "gpus": server.gpus,
        "base_w": server.base_w,
        "off_w": server.off_w,
        "switch_cost_j": server.switch_cost_j,
        "power": str(status.power),
        "drain": status.drain,
        "keep_on": status.keep_on,
        "foreign_gpus": list(status.foreign_gpus),
        "since": status.since,
    }


def _gpus(state: ClusterState) -> list[dict[str, Any]]:
    limits = {
        (slot.server, gpu): job.power_limit_w
        for job in state.jobs
        if job.state is JobState.RUNNING
        for slot in job.slots
        for gpu in slot.gpus
    }
    return [
        {
            "server_id": status.server.id,
            "gpu_index": gpu,
            "gpu_type": _gpu_type(status.server.gpu_type),
            "power_limit_w": limits.get((status.server.id, gpu)),
        }
        for status in state.servers
        for gpu in range(min(status.server.gpus, 64))
    ]


def _slots_json(slots: Sequence[Slot]) -> str:
    return json.dumps([slot.to_dict() for slot in slots], separators=(",", ":"))


def _job(status: JobStatus) -> dict[str, Any]:
    job, what = status.job, status.job.descriptors
    return {
        "job_id": job.id,
        "name": job.name,
        "owner": job.owner,
        "job_class": job.job_class,
        "model": what.model,
        "batch_size": what.batch_size,
        "kind": str(what.kind),
        "family": what.family,
        "precision": what.precision,
        "parameters": what.parameters,
        "flops_per_step": what.flops_per_step,
        "bytes_per_step": what.bytes_per_step,
        "memory_bytes": what.memory_bytes,
        "mode": str(job.mode),
        "gpu_counts": list(job.gpu_counts),
        "max_gpus": job.max_gpus,
        "required_throughput": job.required_throughput,
        "unit": job.unit,
        "total_steps": job.total_steps,
        "deadline_at": job.deadline_at,
        "priority": job.priority,
        "shareable": job.shareable
        if isinstance(job.shareable, str)
        else str(job.shareable).lower(),
        "movable": job.movable,
        "move_cost_j": job.move_cost_j,
        "surplus_j_per_step": job.surplus_j_per_step,
        "submitted_at": job.submitted_at,
        "state": str(status.state),
        "slots": _slots_json(status.slots),
        "since": status.since,
        "moved_at": status.moved_at,
        "moves": status.moves,
        "steps_done": status.steps_done,
    }


@dataclass(frozen=True, slots=True)
class Trust:
    """Which records are held in quarantine, and why; nothing is planned with them."""

    held_servers: Mapping[str, str]
    held_jobs: Mapping[str, str]

    def apply(self, state: ClusterState) -> ClusterState:
        """The state without what is held; GPUs that a held job occupies count as not ours."""
        jobs = [
            status
            for status in state.jobs
            if status.job.id not in self.held_jobs
            and not any(slot.server in self.held_servers for slot in status.slots)
        ]
        kept = {status.job.id for status in jobs}
        taken: dict[str, set[int]] = {}
        for status in state.jobs:
            if status.job.id not in kept:
                for slot in status.slots:
                    taken.setdefault(slot.server, set()).update(slot.gpus)
        servers = [
            replace(
                status,
                foreign_gpus=tuple(
                    sorted(
                        {*status.foreign_gpus, *taken.get(status.server.id, set())}
                        & set(range(status.server.gpus))
                    )
                ),
            )
            for status in state.servers
            if status.server.id not in self.held_servers
        ]
        return replace(state, servers=tuple(servers), jobs=tuple(jobs))


def trusted(store: Store) -> Trust:
    """What may be planned with: everything but the records held in quarantine."""
    with store.read() as connection:
        rows = fetch(connection, "telemetry_held_records").to_pylist()
    return Trust(
        {row["id"]: row["reason"] for row in rows if row["table_name"] in ("servers", "gpus")},
        {row["id"]: row["reason"] for row in rows if row["table_name"] == "jobs"},
    )
