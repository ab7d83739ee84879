"""Whether an action still fits the cluster as it is now, and whether it has come true.

`Now` indexes one state for many questions. `came_true` asks whether the state already shows what
an action wants; `misfit` says why an action no longer makes sense (None: it does). Where a manager
does not choose GPU indices, places are compared by server and number of GPUs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import cached_property

from gogh_core.cluster.actions import Action, Kind
from gogh_core.cluster.manager import Capabilities
from gogh_core.domain import ClusterState, JobState, JobStatus, PowerState, ServerStatus, Slot

__all__ = ["Now", "came_true", "misfit", "same_place", "shown"]

_OVER = (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)
_THERE = (JobState.RUNNING, JobState.MOVING)
_IS_ON = (PowerState.ON, PowerState.SWITCHING_ON)
_IS_OFF = (PowerState.OFF, PowerState.SWITCHING_OFF)


def same_place(has: Iterable[Slot], wants: Iterable[Slot], *, by_index: bool) -> bool:
    """Whether two places are one, by GPU index or only by number of GPUs on each server."""
    if by_index:
        return _gpus(has) == _gpus(wants)
    return _counts(has) == _counts(wants)


def _gpus(slots: Iterable[Slot]) -> set[tuple[str, int]]:
    """Every GPU, however the slots were put together."""
    return {(slot.server, gpu) for slot in slots for gpu in slot.gpus}


def _counts(slots: Iterable[Slot]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for slot in slots:
        counts[slot.server] += len(slot.gpus)
    return counts


def shown(slots: Iterable[Slot]) -> str:
    """A place for people: `s1[0,1] s2[3]`; nowhere is `nowhere`."""
    parts = [f"{slot.server}[{','.join(map(str, slot.gpus))}]" for slot in slots]
    return " ".join(parts) or "nowhere"


class Now:
    """One state of the cluster, indexed."""

    def __init__(self, state: ClusterState, capabilities: Capabilities) -> None:
        self.state = state
        self.by_index = capabilities.chooses_gpu_index

    @cached_property
    def jobs(self) -> dict[str, JobStatus]:
        """Jobs by identity."""
        return {status.job.id: status for status in self.state.jobs}

    @cached_property
    def servers(self) -> dict[str, ServerStatus]:
        """Servers by identity."""
        return {status.server.id: status for status in self.state.servers}

    @cached_property
    def holders(self) -> dict[tuple[str, int], set[str]]:
        """Who sits on each GPU."""
        holders: dict[tuple[str, int], set[str]] = {}
        for status in self.state.jobs:
            for slot in status.slots:
                for gpu in slot.gpus:
                    holders.setdefault((slot.server, gpu), set()).add(status.job.id)
        return holders

    @cached_property
    def guests(self) -> dict[str, set[str]]:
        """Who sits on each server."""
        guests: dict[str, set[str]] = {}
        for (server, _), jobs in self.holders.items():
            guests.setdefault(server, set()).update(jobs)
        return guests

    def at(self, job: str, slots: Iterable[Slot]) -> bool:
        """Whether the job runs exactly there."""
        status = self.jobs.get(job)
        return (
            status is not None
            and status.state in _THERE
            and same_place(status.slots, slots, by_index=self.by_index)
        )


def came_true(action: Action, now: Now) -> bool:
    """Whether the cluster already has what the action wants."""
    if action.kind in (Kind.PLACE, Kind.MOVE):
        return now.at(action.job or "", action.slots)
    if action.kind is Kind.HOLD:
        status = now.jobs.get(action.job or "")
        return status is not None and status.state is JobState.WAITING
    if action.kind is Kind.LIMIT:
        # No manager reports limits of single GPUs; what was accepted is taken as done.
        return True
    server = now.servers.get(action.server or "")
    if server is None:
        return False
    return server.power in (_IS_ON if action.kind is Kind.ON else _IS_OFF)


def misfit(
    action: Action,
    now: Now,
    *,
    leaving: frozenset[str] = frozenset(),
    starting: frozenset[str] = frozenset(),
) -> str | None:
    """Why the action no longer fits.

    `leaving` are jobs that other actions take away before it, `starting` servers that other
    actions switch on before it.
    """
    if action.kind is Kind.OFF:
        return _misfit_off(action.server or "", now, leaving)
    if action.kind is Kind.ON:
        return _misfit_server(action.server or "", now, starting=True)
    if action.kind is Kind.LIMIT:
        return _misfit_server(action.server or "", now, starting=False)
    reason = _misfit_job(action, now)
    if reason is None and action.kind is not Kind.HOLD:
        reason = _misfit_target(action, now, leaving, starting)
    return reason


def _misfit_job(action: Action, now: Now) -> str | None:
    status = now.jobs.get(action.job or "")
    reason = None
    if status is None:
        reason = f"job {action.job} is not there any more"
    elif status.state in _OVER:
        reason = f"job {action.job} has ended: {status.state}"
    elif action.kind is Kind.PLACE:
        if status.slots:
            reason = f"job {action.job} runs already, on {shown(status.slots)}"
    elif status.state is JobState.WAITING:
        reason = f"job {action.job} does not run any more: it waits"
    elif not same_place(status.slots, action.source, by_index=now.by_index):
        was, is_ = shown(action.source), shown(status.slots)
        reason = f"job {action.job} is not on {was} any more but on {is_}"
    return reason


def _misfit_server(server: str, now: Now, *, starting: bool) -> str | None:
    status = now.servers.get(server)
    if status is None:
        return f"server {server} is not known to the cluster"
    if status.power is PowerState.DOWN:
        return f"server {server} is down"
    if status.drain:
        return f"server {server} is drained"
    if not starting and status.power in _IS_OFF:
        return f"server {server} is off"
    return None


def _misfit_off(server: str, now: Now, leaving: frozenset[str]) -> str | None:
    reason = _misfit_server(server, now, starting=True)
    if reason is not None:
        return reason
    guests = now.guests.get(server, set()) - leaving
    if guests:
        return f"server {server} is not empty: {', '.join(sorted(guests)[:3])}"
    if now.servers[server].foreign_gpus:
        return f"server {server} is used by others"
    if now.servers[server].keep_on:
        return f"server {server} is to be kept on"
    return None


def _misfit_target(
    action: Action, now: Now, leaving: frozenset[str], starting: frozenset[str]
) -> str | None:
    gone = leaving | {action.job or ""}
    for slot in action.slots:
        reason = _misfit_server(slot.server, now, starting=slot.server in starting)
        if reason is not None:
            return reason
        server = now.servers[slot.server]
        if max(slot.gpus) >= server.server.gpus:
            return f"server {slot.server} has {server.server.gpus} GPUs, no GPU {max(slot.gpus)}"
        if now.by_index:
            reason = _taken_by_index(action, slot, server, now, gone)
        else:
            reason = _taken_by_count(action, slot, server, now, gone)
        if reason is not None:
            return reason
    return None


def _taken_by_index(
    action: Action, slot: Slot, server: ServerStatus, now: Now, gone: frozenset[str]
) -> str | None:
    for gpu in slot.gpus:
        if gpu in server.foreign_gpus:
            return f"GPU {gpu} of {slot.server} is taken by others"
        others = now.holders.get((slot.server, gpu), set()) - gone - {*action.partners}
        if others:
            return f"GPU {gpu} of {slot.server} is taken by {', '.join(sorted(others)[:3])}"
    return None


def _taken_by_count(
    action: Action, slot: Slot, server: ServerStatus, now: Now, gone: frozenset[str]
) -> str | None:
    ours = {
        gpu
        for gpu in range(server.server.gpus)
        if now.holders.get((slot.server, gpu), set()) - gone
    }
    free = server.server.gpus - len(ours | set(server.foreign_gpus))
    # A GPU that is shared already may take the job as well.
    shared = 1 if action.partners and ours else 0
    if free + shared < len(slot.gpus):
        return f"server {slot.server} has {free} GPUs free, {len(slot.gpus)} are needed"
    return None
