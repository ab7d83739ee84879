"""Best fit by energy: each job goes where a step of it adds the least energy.

The simple rule that GOGH has to beat: jobs by priority and then by arrival, each to the place that
costs the least energy per step, sharing a GPU where both promises hold; services grow the same
way; idle servers are switched off. Nobody who runs is moved. The daily peak of a service is not
known here, so a replica has to leave headroom over what is asked now (`ways.HEADROOM`).

A job for which no place was found is looked at again only on servers that changed since then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gogh_core.domain import Mode, Slot
from gogh_core.simulation.board import Board, Entry, Rates, Why
from gogh_core.simulation.policies.common import INF, Desk, Key, Queue
from gogh_core.simulation.policies.offers import Offer, Offers

__all__ = ["BestFit"]


def _urgency(entry: Entry) -> Key:
    return -entry.job.priority, entry.arrived_s, entry.job.id


@dataclass(slots=True)
class _Round:
    """What one act has found out; by kind of job, the least that found no place."""

    changed: set[str]
    """Servers that are not as they were when waiting jobs were last tried."""
    touched: set[str] = field(default_factory=set)
    """Servers that got a job in this act."""
    proven: dict[tuple[object, ...], float] = field(default_factory=dict)
    """On no server, but perhaps on those touched since."""
    hopeless: dict[tuple[object, ...], float] = field(default_factory=dict)
    hopeless_touched: dict[tuple[object, ...], float] = field(default_factory=dict)

    def touch(self, servers: set[str]) -> None:
        """A job that was placed may share its GPUs: try the others there."""
        self.changed |= servers
        self.touched |= servers
        self.hopeless.clear()
        self.hopeless_touched.clear()


class BestFit:
    """Least energy per step; at windows only, or on events."""

    def __init__(
        self,
        rates: Rates,
        *,
        every_s: float | None = None,
        name: str = "best_fit",
        share: float = 0.0,
    ) -> None:
        self.name = name
        self.every_s = every_s
        self.on_events = every_s is None
        self._desk = Desk(rates)
        self._offers = Offers(self._desk.beliefs, self._desk.floor, share=share)
        self._queue = Queue(_urgency)
        self._tried: dict[str, Entry] = {}
        """Waiting jobs that no server had a place for when they were last looked at."""
        self._round = _Round(set())

    def act(self, board: Board, why: Why) -> None:
        """Place who waits, let services grow, switch off what nobody uses."""
        self._place_waiting(board)
        self._grow_services()
        board.idle_off()

    def _grow_services(self) -> None:
        for entry in list(self._desk.services()):
            if self._desk.is_short(entry):
                self._grow(entry)

    def _place_waiting(self, board: Board) -> None:
        changed = self._desk.open(board)
        if len(changed) == len(board.machines):
            self._offers.forget()
            self._tried.clear()
        self._offers.look(board, changed)
        self._round = _Round(set(changed))
        if not changed and not self._desk.fresh:
            return
        for entry in self._queue.waiting(board):
            slots = self._find(board, entry)
            if slots:
                self._tried.pop(entry.job.id, None)
                self._place(entry, slots)
            else:
                self._tried[entry.job.id] = entry

    def _find(self, board: Board, entry: Entry) -> tuple[Slot, ...]:
        """The cheapest place; only servers are looked at where there may be one.

        A job that was tried before, or one like it in this round, can only find a place on servers
        that changed since; jobs of a kind that found none there either are passed over.
        """
        kind, need = self._kind(entry)
        now = self._round
        if self._tried.get(entry.job.id) is entry:
            servers, passed = now.changed, now.hopeless
        elif need >= now.proven.get(kind, INF):
            servers, passed = now.touched, now.hopeless_touched
        else:
            slots = self._cheapest(entry, board.machines)
            if not slots:
                now.proven[kind] = need
            return slots
        if not servers or need >= passed.get(kind, INF):
            return ()
        slots = self._cheapest(entry, servers)
        if not slots:
            passed[kind] = need
        return slots

    def _kind(self, entry: Entry) -> tuple[tuple[object, ...], float]:
        """What is tried once for all jobs that are like it and need no less."""
        job = entry.job
        owner = job.owner if job.shareable == "owner" or self._offers.by_owner else ""
        group, need = self._desk.group(entry)
        return (group, job.shareable, owner), need

    def _place(self, entry: Entry, slots: tuple[Slot, ...]) -> None:
        self._desk.place(entry, slots)
        servers = {slot.server for slot in slots}
        self._offers.look(self._desk.board, servers)
        self._round.touch(servers)

    def _cheapest(self, entry: Entry, servers: Iterable[str]) -> tuple[Slot, ...]:
        offers = self._offers.of(self._desk.board, entry, servers)
        if entry.job.mode is Mode.SPREAD:
            return self._replicas(entry, offers, ())
        best = min(offers, key=lambda offer: offer.rank, default=None)
        # Left for the desk: gangs larger than a server, and jobs that are too slow everywhere.
        return (best.slot,) if best else self._desk.slots_for(entry)

    def _replicas(
        self, entry: Entry, offers: Iterable[Offer], have: tuple[Slot, ...]
    ) -> tuple[Slot, ...]:
        """`have` and the cheapest offers that carry the load together, or as many as there are."""
        chosen = list(have)
        reached = sum(self._desk.rate_at(entry, slot) for slot in have)
        for offer in sorted(offers, key=lambda offer: offer.rank):
            if reached >= entry.required or len(chosen) >= entry.job.max_gpus:
                break
            if offer.slot not in chosen:
                chosen.append(offer.slot)
                reached += offer.rate
        return tuple(chosen)

    def _grow(self, entry: Entry) -> None:
        offers = self._offers.of(self._desk.board, entry, self._desk.board.machines)
        slots = self._replicas(entry, offers, entry.slots)
        if len(slots) > len(entry.slots):
            self._desk.move(entry, slots)
            self._offers.look(self._desk.board, {slot.server for slot in slots})
