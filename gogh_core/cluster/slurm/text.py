"""The same facts from squeue and sinfo that know no `--json`, by formats of our own.

Fields end with a mark that is drawn anew for each call, so that no name and no comment can hold it;
times are asked for as seconds. What text does not tell is filled in carefully: GPU indices are
counted from the lowest free one, and whether a job was requeued before is not known (None).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gogh_core.cluster.boundary import reason
from gogh_core.cluster.slurm.commands import Commands
from gogh_core.errors import ClusterUnavailable

__all__ = ["UNREADABLE", "Marks", "expand_hosts", "jobs_from_text", "nodes_from_text", "text_of"]

_JOB = {
    "job_id": "%A",
    "array_job_id": "%F",
    "job_state": "%T",
    "user_name": "%u",
    "partition": "%P",
    "tres_per_node": "%b",
    "nodes": "%N",
    "required_nodes": "%n",
    "submit_time": "%V",
    "start_time": "%S",
    "priority": "%Q",
    "name": "%j",
    "comment": "%k",
}
_NODE = {"name": "%N", "partition": "%R", "state": "%T", "gres": "%G"}
UNREADABLE = "unreadable"
"""In a record that could not be read: why."""
_HOLDS_GPUS = ("RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING")
_LARGEST_LIST = 65536
# What sinfo puts behind a state, and the flag that JSON has for it.
_SUFFIX = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_REQUESTED",
}


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands between two fields, and behind a row."""

    field: str
    row: str


def text_of(commands: Commands) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Jobs and nodes, in the form of the JSON."""
    mark = Marks(secrets.token_hex(16), secrets.token_hex(16))
    nodes = commands.read("sinfo", "--noheader", "--Node", "-o", _format(_NODE, mark))
    queue = commands.read("squeue", "--noheader", "--states=all", "-o", _format(_JOB, mark))
    found = nodes_from_text(nodes, mark)
    parts = {node["name"]: _parts(node["gres"]) for node in found if UNREADABLE not in node}
    return jobs_from_text(queue, mark, parts), found


def _format(fields: dict[str, str], mark: Marks) -> str:
    return mark.field.join(fields.values()) + mark.row


def _rows(text: str, fields: dict[str, str], mark: Marks, where: str) -> Iterator[dict[str, str]]:
    """Each row by its fields; one that is not of the form has only the reason."""
    rows = [line.removeprefix("\n").split(mark.field) for line in text.split(mark.row)[:-1]]
    if rows and all(len(values) != len(fields) for values in rows):
        raise ClusterUnavailable("is not in the form that was asked for", where=where)
    for values in rows:
        if len(values) == len(fields):
            yield dict(zip(fields, values, strict=True))
        else:
            yield {UNREADABLE: "is not in the form that was asked for"}


def _parts(gres: str) -> int:
    """Shards of each GPU of a node; 1 where it has none."""
    counts = {"gpu": 0, "shard": 0}
    for kind, count in re.findall(r"(gpu|shard)(?::[A-Za-z][\w.\-]*)?:(\d{1,6})(?!\d)", gres):
        counts[kind] += int(count)
    return max(1, counts["shard"] // counts["gpu"]) if counts["gpu"] else 1


class _Counter:
    """GPUs of one node as they are given out, from the lowest index."""

    def __init__(self, parts: int) -> None:
        self._parts = parts
        self._next = 0
        self._open: dict[int, int] = {}

    def take(self, kind: str, count: int) -> list[int]:
        if kind == "gpu":
            first, self._next = self._next, self._next + count
            return list(range(first, self._next))
        for gpu, free in self._open.items():
            if free >= count:
                self._open[gpu] -= count
                return [gpu]
        gpu, self._next = self._next, self._next + 1
        self._open[gpu] = self._parts - count
        return [gpu]


def jobs_from_text(
    text: str, mark: Marks, parts: Mapping[str, int] | None = None
) -> list[dict[str, Any]]:
    """What squeue printed; `parts` are the shards of a GPU of each node."""
    counters: dict[str, _Counter] = {}
    return [_job(row, counters, parts or {}) for row in _rows(text, _JOB, mark, "squeue")]


def _job(
    row: dict[str, str], counters: dict[str, _Counter], parts: Mapping[str, int]
) -> dict[str, Any]:
    """One job in the form of the JSON, or why there is none."""
    if UNREADABLE in row:
        return dict(row)
    try:
        return _job_of(row, counters, parts)
    except Exception as error:  # noqa: BLE001 - whatever one record does, the others go on
        return {"job_id": row["job_id"], UNREADABLE: reason(error)}


def _job_of(
    row: dict[str, str], counters: dict[str, _Counter], parts: Mapping[str, int]
) -> dict[str, Any]:
    job: dict[str, Any] = {**row, "requeue": True, "restart_cnt": None}
    for name in ("submit_time", "start_time", "priority", "array_job_id"):
        job[name] = int(row[name]) if row[name].isdecimal() else 0
    if job["array_job_id"] == int(row["job_id"]):
        job["array_job_id"] = 0
    job["comment"] = "" if row["comment"] == "(null)" else row["comment"]
    hosts = list(expand_hosts(row["nodes"])) if row["job_state"] in _HOLDS_GPUS else []
    asked = re.fullmatch(r"gres:(gpu|shard)(?::[A-Za-z][\w.\-]*)?:(\d{1,6})", row["tres_per_node"])
    details = []
    for host in hosts:
        counter = counters.setdefault(host, _Counter(parts.get(host, 1)))
        taken = counter.take(asked[1], int(asked[2])) if asked else []
        indices = ",".join(map(str, taken))
        details.append(f"gpu:{len(taken)}(IDX:{indices})" if taken else "")
    job["job_resources"] = {"allocated_nodes": [{"nodename": host} for host in hosts]}
    job["gres_detail"] = details
    return job


def nodes_from_text(text: str, mark: Marks) -> list[dict[str, Any]]:
    """What sinfo printed; a node in several partitions is one node."""
    nodes: dict[str, dict[str, Any]] = {}
    for index, row in enumerate(_rows(text, _NODE, mark, "sinfo")):
        if UNREADABLE in row:
            nodes[f"row {index}"] = dict(row)
            continue
        node = nodes.setdefault(row["name"], {**row, "partitions": [], "state_flags": []})
        node["partitions"].append(row["partition"])
        state = row["state"]
        flags = {_SUFFIX[sign] for sign in state if sign in _SUFFIX}
        state = state.rstrip("".join(_SUFFIX)).lower()
        if state.startswith("drain"):
            flags.add("DRAIN")
        if state in ("reserved", "maint"):
            flags.add("RESERVED")
        if state in ("powering_down", "powered_down", "powering_up", "power_down", "power_up"):
            flags.add(state.upper())
        node["state"] = state
        node["state_flags"] = sorted(flags)
    return list(nodes.values())


def expand_hosts(text: str) -> Iterator[str]:
    """The names in a list as Slurm writes it: `n1,gpu[01-03,7]`."""
    found = 0
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)?", text):
        match = re.fullmatch(r"([^\[]+)\[([\d,\-]+)\]([^\[]*)", part)
        if match is None:
            yield part
            continue
        for piece in match[2].split(","):
            first, _, last = piece.partition("-")
            for number in range(int(first), int(last or first) + 1):
                found += 1
                if found > _LARGEST_LIST:
                    raise ClusterUnavailable("a list of nodes is too long", where="squeue")
                yield f"{match[1]}{number:0{len(first)}d}{match[3]}"
