"""What a plan must not touch: GPUs that are not ours, and jobs that cannot or may not move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from gogh_core import hardware
from gogh_core.allocation import Option, ProblemJob, ProblemServer, can_hold
from gogh_core.cluster import disruptions
from gogh_core.domain import ClusterState, JobStatus, Mode, Slot
from gogh_core.settings import Settings
from gogh_core.store import Store

__all__ = ["FOREIGN", "disturbed_enough", "foreign", "taken_gpus", "unplannable"]

FOREIGN = "foreign:"
"""Jobs of nobody, which hold what is not ours, have ids that begin with this."""
_FOREIGN_CLASS = "foreign work"


def disturbed_enough(store: Store, settings: Settings, now: datetime) -> frozenset[str]:
    """Jobs that were moved and stopped as often as a day allows; the cluster's clock counts."""
    counts = disruptions(store, since=now - timedelta(days=1))
    most = settings.guards.max_disruptions_per_day
    return frozenset(job for job, count in counts.items() if count >= most)


def unplannable(
    live: Mapping[str, JobStatus],
    at: Mapping[str, tuple[Slot, ...]],
    here: Mapping[str, ProblemServer],
    classes: Collection[str],
    *,
    held: Collection[str],
    state: ClusterState,
) -> dict[str, str]:
    """Jobs that no problem can hold, with the reason; whoever shares a GPU with one is another."""
    sizes: dict[str, Counter[int]] = {}
    for server in here.values():
        sizes.setdefault(server.gpu_type, Counter())[server.gpus] += 1
    not_ours = {(s.server.id, gpu) for s in state.servers for gpu in s.foreign_gpus}
    users: dict[tuple[str, int], list[str]] = {}
    for name, slots in at.items():
        for slot in slots:
            for gpu in slot.gpus:
                users.setdefault((slot.server, gpu), []).append(name)
    faults: dict[str, str] = {}
    for name, status in live.items():
        job = status.job
        places = [(slot.server, gpu) for slot in at[name] for gpu in slot.gpus]
        if name in held:
            faults[name] = "its record broke its contract and is held back"
        elif job.job_class not in classes:
            faults[name] = f"nothing is known yet of how {job.job_class} runs on these GPU types"
        elif job.mode is Mode.GANG and not _held_by_any(job.gpu_counts, sizes):
            faults[name] = (
                f"no servers can hold a gang of {' or '.join(map(str, job.gpu_counts))} GPUs"
            )
        elif any(place in not_ours for place in places):
            faults[name] = "it runs on a GPU that is dead or taken by others"
        elif any(len(users[place]) > 2 for place in places):
            faults[name] = "more than two jobs share its GPU"
        elif job.mode is Mode.GANG and len({here[s.server].gpu_type for s in at[name]}) > 1:
            faults[name] = "it runs on GPUs of several types"
    _spread_faults(faults, at, users)
    return faults


def _spread_faults(
    faults: dict[str, str],
    at: Mapping[str, tuple[Slot, ...]],
    users: Mapping[tuple[str, int], Sequence[str]],
) -> None:
    todo = list(faults)
    while todo:
        name = todo.pop()
        for slot in at[name]:
            for gpu in slot.gpus:
                for other in users[(slot.server, gpu)]:
                    if other not in faults:
                        faults[other] = f"it shares a GPU with job {name}, which is left alone"
                        todo.append(other)


def _held_by_any(counts: Sequence[int], sizes: Mapping[str, Counter[int]]) -> bool:
    return any(can_hold(count, each) for count in counts for each in sizes.values())


def taken_gpus(
    state: ClusterState, here: Mapping[str, ProblemServer], alone: Iterable[Slot]
) -> dict[str, set[int]]:
    """By server, the GPUs that are dead, taken by others, or under a job that is left alone."""
    taken: dict[str, set[int]] = {}
    for status in state.servers:
        if status.server.id in here:
            taken[status.server.id] = {g for g in status.foreign_gpus if g < status.server.gpus}
    for slot in alone:
        taken[slot.server].update(slot.gpus)
    return taken


def foreign(
    taken: Mapping[str, set[int]], here: Mapping[str, ProblemServer]
) -> tuple[list[ProblemJob], list[Option]]:
    """A pinned job of nobody on what is not ours, and the option it takes.

    A drained server needs none: nobody goes there.
    """
    jobs: list[ProblemJob] = []
    kinds: set[tuple[str, int]] = set()
    for name, gpus in sorted(taken.items()):
        server = here[name]
        if server.drain or not gpus:
            continue
        kinds.add((server.gpu_type, len(gpus)))
        jobs.append(
            ProblemJob(
                id=f"{FOREIGN}{name}",
                job_class=_FOREIGN_CLASS,
                gpu_counts=(len(gpus),),
                shareable=False,
                at=(Slot(name, tuple(sorted(gpus))),),
                pinned=True,
                movable=False,
            )
        )
    options = [
        Option(name, count, (_FOREIGN_CLASS,), (1.0,), count * hardware.get(name).idle_w)
        for name, count in sorted(kinds)
    ]
    return jobs, options
