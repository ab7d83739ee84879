"""What squeue and sinfo say, as servers and jobs of ours.

A job is ours when it opted in (its partition or its comment) and is of a form that can be planned;
why others are not is said in `Reading.refused`. A record that cannot be read is refused alone,
whatever is wrong with it: a node's leaves that node out. GPUs of jobs that are not ours are
foreign. Nodes that are drained, reserved or in maintenance must be left empty; nodes that do not
answer are down.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gogh_core.cluster.boundary import (
    MOST_GPUS,
    check_job,
    check_server,
    each,
    label,
    leave_alone,
    reason,
)
from gogh_core.cluster.slurm.comment import Promise, opts_in, read_comment
from gogh_core.cluster.slurm.text import UNREADABLE
from gogh_core.domain import (
    ClusterState,
    Descriptors,
    Job,
    JobState,
    JobStatus,
    PowerState,
    Server,
    ServerStatus,
    Slot,
)
from gogh_core.errors import ClusterUnavailable, InvalidInput
from gogh_core.hardware import find
from gogh_core.settings import Settings

__all__ = ["Node", "Reading", "Record", "parsed", "read"]

_RUNS = ("RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT")
_STARTS = ("CONFIGURING", "COMPLETING")
_WAITS = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_GRES = re.compile(r"(gpu|shard)(?::([A-Za-z][\w.\-]*))?:(\d+)")
_INDEXED = re.compile(r"(?:gpu|shard)(?::[\w.\-]+)?:\d+\(IDX:([\d,\-]+)\)")
_ASKED = re.compile(r"gres:(gpu|shard):(\d+)")


@dataclass(frozen=True, slots=True)
class Holding:
    """What a job of the queue holds, whosever it is."""

    state: str
    nodes: tuple[str, ...]
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One job of the queue, with what driving it needs."""

    id: str
    state: str
    nodes: tuple[str, ...]
    gres: str
    """What it asks for now, such as `gpu:2` or `shard:1`; empty: nothing that can be planned."""
    held: bool
    admin_comment: str
    slots: tuple[Slot, ...]
    restarts: int | None = 0
    """How often it was requeued; None: Slurm did not say."""
    required: str = ""
    """The nodes it was last told to run on, as Slurm writes lists of nodes."""

    @property
    def waits(self) -> bool:
        """Whether it has no processes and no GPUs."""
        return self.state in _WAITS

    @property
    def shares(self) -> bool:
        """Whether it takes parts of a GPU."""
        return self.gres.startswith("shard:")


@dataclass(frozen=True, slots=True)
class Node:
    """One node, with what driving it needs."""

    id: str
    gpus: int
    shards: int
    power: PowerState

    @property
    def shards_per_gpu(self) -> int:
        """0 where its GPUs cannot be shared."""
        return self.shards // self.gpus


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the queue and the nodes."""

    state: ClusterState
    records: Mapping[str, Record]
    nodes: Mapping[str, Node]
    refused: Mapping[str, str]
    """Jobs that meant to opt in and cannot be planned, and nodes (`node NAME`), with the reason."""


def read(
    jobs: list[dict[str, Any]], nodes: list[dict[str, Any]], settings: Settings, at: datetime
) -> Reading:
    """The reading of what both programs said."""
    found: list[tuple[Record, JobStatus]] = []
    refused: dict[str, str] = {}
    foreign: dict[str, set[int]] = defaultdict(set)
    busy: set[str] = set()
    lost = False
    for index, raw in enumerate(jobs):
        try:
            record = _record(raw)
            status = _status(raw, record, settings)
        except Exception as error:  # noqa: BLE001 - whatever one record does, the others go on
            refused[_called(raw, "job_id", f"record {index} of squeue")] = reason(error)
            status = None
        if status is not None:
            found.append((record, status))
            continue
        holding = _salvaged(raw)
        lost = lost or holding is None
        if holding is not None and holding.state in (*_RUNS, *_STARTS):
            _occupy(holding, busy, foreign)
    counts = Counter(record.id for record, _ in found)
    for record, _ in found:
        if counts[record.id] > 1:
            refused[record.id] = "is reported more than once"
            _occupy(record, busy, foreign)
    found = [(record, status) for record, status in found if counts[record.id] == 1]
    known, left_out = each(
        nodes,
        lambda raw: _node(raw, settings),
        lambda raw, index: _called(raw, "name", f"record {index} of sinfo"),
    )
    refused |= {f"node {name}": why for name, why in left_out.items()}
    ours = [(status, node) for _, pair in known if pair is not None for status, node in [pair]]
    return Reading(
        ClusterState(
            at,
            leave_alone([status for status, _ in ours], foreign, busy=busy, lost=lost),
            tuple(_paired([status for _, status in found])),
        ),
        {record.id: record for record, _ in found},
        {node.id: node for _, node in ours},
        refused,
    )


def _called(raw: Any, name: str, otherwise: str) -> str:
    return label(raw.get(name) if isinstance(raw, Mapping) else None, otherwise)


def _salvaged(raw: Any) -> Holding | None:
    """What a job that is not ours holds; None when its record does not say."""
    try:
        return _holding(raw)
    except Exception:  # noqa: BLE001 - it is refused with the reason, or not ours
        return None


def _occupy(holding: Holding | Record, busy: set[str], foreign: dict[str, set[int]]) -> None:
    busy.update(holding.nodes)
    for slot in holding.slots:
        foreign[slot.server].update(slot.gpus)


def parsed(text: str, name: str, where: str) -> list[dict[str, Any]]:
    """The list of that name in a JSON document of Slurm."""
    try:
        # Names and comments may hold control characters that Slurm does not escape.
        raw = json.loads(text, strict=False)
        entries = raw[name]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ClusterUnavailable(f"is not the JSON of Slurm 22.05: {error}", where=where) from error
    if not isinstance(entries, list):
        raise ClusterUnavailable(f"{name} is no list", where=where)
    return entries


def _holding(raw: Mapping[str, Any]) -> Holding:
    if UNREADABLE in raw:
        raise InvalidInput(str(raw[UNREADABLE]))
    state = str(raw.get("job_state", ""))
    resources = raw.get("job_resources") or {}
    nodes = tuple(str(node["nodename"]) for node in resources.get("allocated_nodes", ()))
    slots = []
    for node, detail in zip(nodes, raw.get("gres_detail") or (), strict=False):
        gpus = {gpu for found in _INDEXED.findall(str(detail)) for gpu in _indices(found)}
        if gpus:
            slots.append(Slot(node, tuple(sorted(gpus))))
    return Holding(state, nodes, () if state in _WAITS else tuple(slots))


def _record(raw: Mapping[str, Any]) -> Record:
    holding = _holding(raw)
    asked = _ASKED.fullmatch(str(raw.get("tres_per_node") or ""))
    return Record(
        str(raw.get("job_id")),
        holding.state,
        holding.nodes,
        f"{asked[1]}:{asked[2]}" if asked else "",
        raw.get("priority") == 0,
        str(raw.get("admin_comment") or ""),
        holding.slots,
        raw.get("restart_cnt", 0),
        str(raw.get("required_nodes") or ""),
    )


def _indices(text: str) -> Iterable[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(last or first) >= MOST_GPUS:
            raise InvalidInput(f"has a GPU index of {MOST_GPUS} or more")
        yield from range(int(first), int(last or first) + 1)


def _status(raw: Mapping[str, Any], record: Record, settings: Settings) -> JobStatus | None:
    """The job as one of ours; None when it did not opt in."""
    comment = str(raw.get("comment") or "")
    by_partition = settings.slurm.partition is not None and (
        raw.get("partition") == settings.slurm.partition
    )
    if not opts_in(comment) and not by_partition:
        return None
    state = _job_state(record.state)
    promise = _promise(comment, raw, record)
    over = state in (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)
    if not over:
        _check_form(raw, record)
    kind, _, count = record.gres.partition(":")
    counts = promise.gpu_counts or ((int(count),) if kind == "gpu" and int(count) else (1,))
    restarts = int(raw.get("restart_cnt") or 0)
    started = _moment(raw.get("start_time"))
    submitted = _moment(raw.get("submit_time")) or datetime.fromtimestamp(0, UTC)
    job = Job(
        record.id,
        promise.descriptors,
        submitted,
        owner=str(raw.get("user_name") or ""),
        name=str(raw.get("name") or ""),
        gpu_counts=(1,) if record.shares else counts,
        required_throughput=promise.required_throughput,
        unit=promise.unit,
        total_steps=promise.total_steps,
        deadline_at=promise.deadline_at,
        priority=promise.priority,
        # Slurm cannot turn whole GPUs into parts of one later.
        shareable=promise.shareable if record.shares else False,
        movable=promise.movable and bool(raw.get("requeue")),
        move_cost_j=promise.move_cost_j,
        surplus_j_per_step=promise.surplus_j_per_step,
    )
    there = state in (JobState.RUNNING, JobState.MOVING)
    status = JobStatus(
        job,
        state,
        record.slots if there else (),
        since=started if there else submitted,
        moved_at=started if there and restarts else None,
        moves=restarts,
    )
    check_job(status)
    return status


def _promise(comment: str, raw: Mapping[str, Any], record: Record) -> Promise:
    if opts_in(comment):
        return read_comment(comment, where=f"comment of job {record.id}")
    name = str(raw.get("name") or "").strip() or "unknown"
    return Promise(Descriptors(name[:200]), shareable=record.shares)


def _check_form(raw: Mapping[str, Any], record: Record) -> None:
    where = f"job {record.id}"
    if raw.get("array_job_id") or raw.get("het_job_id"):
        raise InvalidInput("job arrays and heterogeneous jobs are not planned", where=where)
    if not record.gres:
        raise InvalidInput(
            "asks for no GPUs, or for a GPU type", where=where, todo="use --gres=gpu:N or shard:N"
        )


def _job_state(state: str) -> JobState:
    if state in _RUNS:
        return JobState.RUNNING
    if state in _STARTS:
        return JobState.MOVING
    if state in _WAITS:
        return JobState.WAITING
    if state == "COMPLETED":
        return JobState.FINISHED
    if state == "CANCELLED":
        return JobState.CANCELLED
    return JobState.FAILED


def _moment(seconds: Any) -> datetime | None:
    return datetime.fromtimestamp(int(seconds), UTC) if seconds else None


def _paired(statuses: list[JobStatus]) -> list[JobStatus]:
    """The same jobs with who shares a GPU with whom."""
    holders: dict[tuple[str, int], list[str]] = defaultdict(list)
    for status in statuses:
        for slot in status.slots:
            for gpu in slot.gpus:
                holders[slot.server, gpu].append(status.job.id)
    paired = []
    for status in statuses:
        cells = [(slot.server, gpu) for slot in status.slots for gpu in slot.gpus]
        others = {job for cell in cells for job in holders[cell]} - {status.job.id}
        paired.append(replace(status, partners=tuple(sorted(others))))
    return paired


def _node(raw: Mapping[str, Any], settings: Settings) -> tuple[ServerStatus, Node] | None:
    """The node as a server; None when it has no GPUs or is not in our partition."""
    if UNREADABLE in raw:
        raise InvalidInput(str(raw[UNREADABLE]))
    partition = settings.slurm.partition
    if partition is not None and partition not in (raw.get("partitions") or ()):
        return None
    counts = {"gpu": 0, "shard": 0}
    gpu_type = ""
    for kind, type_, count in _GRES.findall(str(raw.get("gres") or "")):
        counts[kind] += int(count)
        gpu_type = type_ if kind == "gpu" and type_ else gpu_type
    if not counts["gpu"]:
        return None
    known = find(gpu_type)
    name = known.name if known is not None else gpu_type or "unknown"
    cluster = settings.cluster
    flags = {str(flag).upper() for flag in raw.get("state_flags") or ()}
    power = _power(str(raw.get("state") or ""), flags)
    server = Server(
        str(raw["name"]),
        name,
        counts["gpu"],
        cluster.server_base_w_by_type.get(name, cluster.server_base_w),
    )
    status = ServerStatus(
        server,
        power,
        drain=bool(flags & {"DRAIN", "RESERVED", "MAINTENANCE", "FAIL", "REBOOT_REQUESTED"}),
        since=_moment(raw.get("reason_changed_at")),
    )
    check_server(status)
    return status, Node(server.id, counts["gpu"], counts["shard"], power)


def _power(state: str, flags: set[str]) -> PowerState:
    power = PowerState.ON
    if flags & {"POWERING_UP", "POWER_UP"}:
        power = PowerState.SWITCHING_ON
    elif "POWERED_DOWN" in flags:
        power = PowerState.OFF
    elif flags & {"POWERING_DOWN", "POWER_DOWN"}:
        power = PowerState.SWITCHING_OFF
    elif state.lower() in ("down", "error", "unknown", "future") or "NOT_RESPONDING" in flags:
        power = PowerState.DOWN
    return power
