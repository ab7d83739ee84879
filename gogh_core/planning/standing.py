"""What the standing orders mean for one plan: which servers are drained or close, who is pinned.

Orders only restrict: of several caps or quotas the lowest counts, the settings' included. An order
counts for a plan when it is in force at some time of the plan's window, so that the cluster is
ready when it begins. Orders on servers or jobs that are gone are named and otherwise ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gogh_core.allocation import Problem
from gogh_core.domain import ClusterState, JobState, JobStatus, Move, Plan, Stop, Waiting
from gogh_core.planning.orders import Order
from gogh_core.planning.promises import rates
from gogh_core.planning.ways import Ways

__all__ = ["Standing"]

_ENDED = (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)


@dataclass(frozen=True)
class Standing:
    """The orders that one plan keeps, by what they are about."""

    drained: Mapping[str, Order] = field(default_factory=dict)
    """Servers that must be empty."""
    closing: Mapping[str, Order] = field(default_factory=dict)
    """Servers that will be drained later, each with the first drain to come."""
    pinned: Mapping[str, Order] = field(default_factory=dict)
    cap: Order | None = None
    quotas: Mapping[str, Order] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, orders: Iterable[Order], state: ClusterState, now: datetime, window_s: float
    ) -> Standing:
        """The orders that count for a plan that is made now for so many seconds."""
        end = now + timedelta(seconds=window_s)
        standing = sorted(
            (order for order in orders if order.stands(now)), key=lambda o: (o.begins_at, o.id)
        )
        soon = [order for order in standing if order.begins_at < end]
        drains = _first(o for o in standing if o.kind == "drain")
        servers = {status.server.id for status in state.servers}
        pins = _first(o for o in soon if o.kind == "pin")
        places = {s.job.id: s.slots for s in state.jobs if s.state not in _ENDED}
        drained = {s: o for s, o in drains.items() if s in servers and o.begins_at <= now}
        leaving = {s for s, o in drains.items() if o.begins_at < end}
        leaving |= {status.server.id for status in state.servers if status.drain}
        torn = {job for job in pins if any(slot.server in leaving for slot in places.get(job, ()))}
        caps = [order for order in soon if order.kind == "cap"]
        return cls(
            drained,
            {s: o for s, o in drains.items() if s in servers and s not in drained},
            {job: order for job, order in pins.items() if job in places and job not in torn},
            min(caps, key=lambda order: order.power_w or 0.0, default=None),
            _least(order for order in soon if order.kind == "quota"),
            (
                *(str(o) for o in standing if o.id and (o in soon or o.kind == "drain")),
                *(_idle(o, "is not there") for s, o in drains.items() if s not in servers),
                *(_idle(o, "has ended") for job, o in pins.items() if job not in places),
                *(_idle(pins[job], "is on a server that is drained") for job in sorted(torn)),
            ),
        )

    def cap_w(self, settings_w: float | None) -> float | None:
        """The lowest power cap there is."""
        caps = [settings_w, self.cap.power_w if self.cap is not None else None]
        return min((cap for cap in caps if cap is not None), default=None)

    def quotas_with(self, settings: Mapping[str, int]) -> dict[str, int]:
        """The lowest quota of each owner."""
        found = dict(settings)
        for owner, order in self.quotas.items():
            gpus = order.gpus or 0
            found[owner] = min(gpus, found.get(owner, gpus))
        return found

    def concerned(
        self,
        problem: Problem,
        live: Mapping[str, JobStatus],
        ways: Ways,
        barred: Mapping[str, Collection[str]],
    ) -> dict[str, list[Order]]:
        """By job the orders that keep it from places where it could run, or from power and quota.

        `barred` has the GPU types of closing servers where each job may not start.
        """
        kinds = {server.id: server.gpu_type for server in problem.servers}
        found: dict[str, list[Order]] = {}
        for job in problem.jobs:
            if job.id not in live:
                continue
            need = job.required_throughput
            types = {rate.gpu_type for rate in rates(live[job.id].job, ways) if rate.mean >= need}
            shut = types.intersection(barred.get(job.id, ()))
            mine = [order for s, order in self.drained.items() if kinds.get(s) in types]
            mine += [order for s, order in self.closing.items() if kinds.get(s) in shut]
            mine += [order for order in [self.quotas.get(job.owner)] if order is not None]
            mine += [self.cap] if self.cap is not None and types else []
            if mine:
                found[job.id] = mine
        return found

    def told(
        self, plan: Plan, leaving: Collection[str], concerned: Mapping[str, Sequence[Order]]
    ) -> Plan:
        """The plan with reasons that name the orders.

        `leaving` are jobs that must leave servers about to be drained; `concerned` has the orders
        that take places from each job.
        """

        def why(what: Move | Stop) -> str:
            held = {**self.drained, **(self.closing if what.job in leaving else {})}
            found = [held[slot.server] for slot in what.source if slot.server in held]
            return str(found[0]) if found else what.reason

        def waits(what: Waiting) -> Waiting:
            found = ", ".join(order.brief for order in concerned.get(what.job, ()))
            more = f"; orders in its way: {found}" if found else ""
            return replace(what, reason=what.reason + more)

        return replace(
            plan,
            moves=tuple(replace(move, reason=why(move)) for move in plan.moves),
            stops=tuple(replace(stop, reason=why(stop)) for stop in plan.stops),
            waiting=tuple(waits(what) for what in plan.waiting),
        )


def _first(orders: Iterable[Order]) -> dict[str, Order]:
    """By subject the order that begins first."""
    found: dict[str, Order] = {}
    for order in orders:
        found.setdefault(order.subject, order)
    return dict(sorted(found.items()))


def _least(orders: Iterable[Order]) -> dict[str, Order]:
    """By owner the lowest quota."""
    found: dict[str, Order] = {}
    for order in orders:
        if order.subject not in found or (order.gpus or 0) < (found[order.subject].gpus or 0):
            found[order.subject] = order
    return found


def _idle(order: Order, why: str) -> str:
    if not order.id:
        return f"{order.what} has no effect: it {why}"
    return f"order {order.id} has no effect: {order.subject} {why}; `{order.lifting}` lifts it"
