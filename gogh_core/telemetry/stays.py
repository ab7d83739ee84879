"""Who ran where, when and with whom: from job events to stays, and from stays to stretches.

A stay is one job at one place (GPUs of a server) from a start to an end. A stretch is the part of
a stay inside one window in which the partners did not change; a gang on several servers is one
stretch, each replica of a spread job is one of its own. Times are epoch seconds.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb

from gogh_core.store import fetch

__all__ = ["Event", "Stay", "Stretch", "build_stays", "read_events", "stretches"]

_ENDS = frozenset({"finished", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Event:
    """One row of job_events, as far as it matters here."""

    job: str
    ts: float
    event: str
    server: str | None
    gpus: tuple[int, ...]


@dataclass(slots=True)
class Stay:
    """A job at one place; `end` is infinite while it is there."""

    job: str
    server: str
    gpus: tuple[int, ...]
    start: float
    end: float = math.inf

    @property
    def open(self) -> bool:
        """Whether the job is still there."""
        return self.end == math.inf

    def shares_with(self, other: Stay) -> bool:
        """Whether they had a GPU in common at some moment."""
        return (
            self.job != other.job
            and self.server == other.server
            and not set(self.gpus).isdisjoint(other.gpus)
            and self.start < other.end
            and other.start < self.end
        )


@dataclass(frozen=True, slots=True)
class Stretch:
    """A job with the same GPUs and the same partner for a while."""

    job: str
    places: tuple[tuple[str, tuple[int, ...]], ...]
    partner: str | None
    start: float
    end: float
    since: float
    """When its stay began, for the warm-up."""
    stay: Stay = field(compare=False)

    @property
    def gpus(self) -> int:
        """How many GPUs it had."""
        return sum(len(gpus) for _, gpus in self.places)


def read_events(
    connection: duckdb.DuckDBPyConnection, *, since: float, until: float
) -> list[Event]:
    """What the log has before `until` of every job that was not over by `since`."""
    rows = fetch(connection, "telemetry_stay_events", since=since, until=until).to_pylist()
    return [
        Event(e["job_id"], e["ts"], e["event"], e["server_id"], tuple(sorted(e["gpus"] or ())))
        for e in rows
    ]


def build_stays(events: Iterable[Event], spread: Mapping[str, bool]) -> list[Stay]:
    """Stays from events in the order of time (and, at one moment, of arrival)."""
    by_job: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_job[event.job].append(event)
    stays: list[Stay] = []
    for job, listed in by_job.items():
        listed.sort(key=lambda event: event.ts)
        stays.extend(_stays_of(job, listed, spread.get(job, False)))
    return stays


def _stays_of(job: str, events: Sequence[Event], spread: bool) -> list[Stay]:
    done: list[Stay] = []
    now: dict[tuple[str, tuple[int, ...]], Stay] = {}

    def close(keys: Iterable[tuple[str, tuple[int, ...]]], ts: float) -> None:
        for key in list(keys):
            stay = now.pop(key)
            stay.end = ts
            if stay.end > stay.start:
                done.append(stay)

    for event in events:
        place = (event.server, event.gpus) if event.server and event.gpus else None
        if event.event in ("started", "moved") and place is not None:
            server, gpus = place[0], place[1]
            assert server is not None
            if event.event == "moved" or not spread:
                old = (k for k, stay in now.items() if stay.start < event.ts and k != place)
                close(list(old), event.ts)
            if (server, gpus) not in now:
                now[server, gpus] = Stay(job, server, gpus, event.ts)
        elif event.event in _ENDS or (event.event == "stopped" and not (spread and place)):
            close(list(now), event.ts)
        elif event.event == "stopped" and place in now:
            close([key for key in now if key == place], event.ts)
    return done + list(now.values())


def stretches(
    stays: Sequence[Stay], spread: Mapping[str, bool], start: float, end: float
) -> list[Stretch]:
    """Every stretch inside [start, end) with no partner or one."""
    inside = [stay for stay in stays if stay.start < end and stay.end > start]
    by_server: dict[str, list[Stay]] = defaultdict(list)
    for stay in inside:
        by_server[stay.server].append(stay)
    groups: dict[tuple[str, int], list[Stay]] = defaultdict(list)
    for number, stay in enumerate(inside):
        groups[stay.job, number if spread.get(stay.job, False) else -1].append(stay)
    found: list[Stretch] = []
    for (job, _), own in groups.items():
        others = [
            other
            for server in {stay.server for stay in own}
            for other in by_server[server]
            if any(stay.shares_with(other) for stay in own)
        ]
        found.extend(_cut(job, own, others, start, end))
    return found


def _cut(
    job: str, own: Sequence[Stay], others: Sequence[Stay], start: float, end: float
) -> Iterable[Stretch]:
    marks = {start, end}
    for stay in (*own, *others):
        marks.update(mark for mark in (stay.start, stay.end) if start < mark < end)
    moments = sorted(marks)
    for begin, until in itertools.pairwise(moments):
        here = [stay for stay in own if stay.start <= begin and stay.end >= until]
        if not here:
            continue
        with_whom = {
            other.job
            for other in others
            if other.start <= begin
            and other.end >= until
            and any(
                stay.server == other.server and not set(stay.gpus).isdisjoint(other.gpus)
                for stay in here
            )
        }
        if len(with_whom) > 1:
            continue  # three on one GPU is no option of ours
        places = tuple(sorted((stay.server, stay.gpus) for stay in here))
        since = max(stay.start for stay in here)
        yield Stretch(job, places, next(iter(with_whom), None), begin, until, since, here[0])
