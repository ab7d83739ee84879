"""The world as it is written down and read again: for the embedded cluster and for saved runs.

Every record is read by itself: one that cannot be read is refused, and kept as it is on disk.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gogh_core.cluster import each, label
from gogh_core.errors import InvalidInput
from gogh_core.simulation.life import Event
from gogh_core.simulation.records import JobRecord, ServerRecord, Totals

if TYPE_CHECKING:
    from gogh_core.simulation.world import World

__all__ = ["restore", "to_dict"]


def to_dict(world: World) -> dict[str, Any]:
    """Everything that changes; what was drawn once is drawn again."""
    return {
        "now_s": world.now_s,
        "drawn": world.drawn,
        "previous_s": world.previous_s,
        "servers": [record.to_dict() for record in world.servers.values()]
        + world.unread["servers"],
        "jobs": [record.to_dict() for record in world.jobs.values()] + world.unread["jobs"],
        "totals": asdict(world.totals),
        "events": [asdict(event) for event in world.events],
    }


def restore(world: World, raw: dict[str, Any]) -> None:
    """Go on where `to_dict` was called."""
    world.now_s, world.drawn = raw["now_s"], raw["drawn"]
    world.previous_s = raw["previous_s"]
    _restore_records(world, raw["servers"], raw["jobs"])
    world.totals = Totals(**raw["totals"])
    world.events = [
        Event(**{**event, "gpus": tuple(event["gpus"]) if event["gpus"] is not None else None})
        for event in raw["events"]
    ]
    world.coming = world.source.draw(world.drawn, world.previous_s)
    world.rebuild()


def _restore_records(world: World, servers: list[Any], jobs: list[Any]) -> None:

    def server_name(entry: Any, index: int) -> str:
        return label(_inner(entry, "server", "id"), f"servers[{index}]")

    def job_name(entry: Any, index: int) -> str:
        return label(_inner(entry, "demand", "job", "id"), f"jobs[{index}]")

    known = {name: record.server for name, record in world.servers.items()}
    classes = set(world.truth.classes())

    def read_server(entry: Any) -> ServerRecord:
        record = ServerRecord.from_dict({"at_s": world.now_s, **entry})
        if record.server != known.get(record.server.id):
            raise InvalidInput("is no server of these settings")
        return record

    def read_job(entry: Any) -> JobRecord:
        record = JobRecord.from_dict({"at_s": world.now_s, **entry})
        if record.demand.job.job_class not in classes:
            raise InvalidInput("is of a class that this cluster does not know")
        for place in record.places:
            server = world.servers.get(place.server)
            if server is None or max(place.gpus) >= server.server.gpus:
                raise InvalidInput("is on a server or GPU that is not known")
        return record

    read_servers, left_out = each(servers, read_server, server_name)
    world.servers = dict(read_servers)
    read_jobs, refused = each(jobs, read_job, job_name)
    world.jobs = dict(read_jobs)
    numbers = [record.number for record in world.jobs.values()]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        for number, record in enumerate(world.jobs.values()):
            record.number = number
    world.unread = {
        "servers": [_kept(e) for i, e in enumerate(servers) if server_name(e, i) in left_out],
        "jobs": [_kept(e) for i, e in enumerate(jobs) if job_name(e, i) in refused],
    }
    world.refused = refused | {f"server {name}": why for name, why in left_out.items()}


def _inner(entry: Any, *names: str) -> Any:
    """What stands there in nested objects; None where they are not."""
    for name in names:
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry


def _kept(entry: Any) -> Any:
    """A record that could not be read, as it can be written: with NaN or infinity it is a text."""
    try:
        json.dumps(entry, allow_nan=False)
    except ValueError:
        return json.dumps(entry)
    return entry
