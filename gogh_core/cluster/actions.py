"""A plan as ordered actions, each with what it has to wait for.

`actions_of` compares the plan with the state it was made for: jobs that wait there are placed,
moves and stops are taken over, servers are switched. An action that takes GPUs depends on those
that free them; a server is switched off after everything has left it. Moves that wait for each
other (two full servers that swap jobs) are opened by the plan, which says which job is held first
and placed last; a plan that leaves such a cycle closed is refused. Actions are sorted by
dependencies, then by the plan's own steps.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any, Self

from gogh_core.cluster.manager import Capabilities
from gogh_core.domain import ClusterState, JobStatus, Mode, Move, Placement, Plan, Slot
from gogh_core.errors import InvalidPlan

__all__ = ["Action", "Kind", "actions_of", "job_slots", "not_capable"]


class Kind(StrEnum):
    """What an action does."""

    PLACE = "place"
    MOVE = "move"
    HOLD = "hold"
    ON = "on"
    OFF = "off"
    LIMIT = "limit"


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do; `id` is the same each time the plan is turned into actions."""

    id: str
    kind: Kind
    step: int
    job: str | None = None
    server: str | None = None
    slots: tuple[Slot, ...] = ()
    source: tuple[Slot, ...] = ()
    partners: tuple[str, ...] = ()
    """Who shares its GPUs: one job for a gang, one for each shared GPU for a spread job."""
    power_limit_w: float | None = None
    needs: tuple[str, ...] = ()
    reason: str = ""

    @property
    def partner(self) -> str | None:
        """The one it shares all its GPUs with, if it is one."""
        return self.partners[0] if len(self.partners) == 1 else None

    @property
    def subject(self) -> str:
        """Whom it is about, for people."""
        return f"job {self.job}" if self.job is not None else f"server {self.server}"

    def to_json(self) -> str:
        """As it is kept in the journal."""
        return json.dumps(
            {
                "id": self.id,
                "kind": self.kind,
                "step": self.step,
                "job": self.job,
                "server": self.server,
                "slots": [slot.to_dict() for slot in self.slots],
                "source": [slot.to_dict() for slot in self.source],
                "partners": list(self.partners),
                "power_limit_w": self.power_limit_w,
                "needs": list(self.needs),
                "reason": self.reason,
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From the journal."""
        raw: dict[str, Any] = json.loads(text)
        return cls(
            raw["id"],
            Kind(raw["kind"]),
            raw["step"],
            raw["job"],
            raw["server"],
            tuple(Slot.from_dict(slot) for slot in raw["slots"]),
            tuple(Slot.from_dict(slot) for slot in raw["source"]),
            tuple(raw["partners"]) if "partners" in raw else _named(raw["partner"]),
            raw["power_limit_w"],
            tuple(raw["needs"]),
            raw["reason"],
        )


def _named(partner: str | None) -> tuple[str, ...]:
    return () if partner is None else (partner,)


def job_slots(placements: Iterable[Placement]) -> dict[str, Placement]:
    """One placement for each job; the slots of a spread job are put together by server."""
    grouped: dict[str, list[Placement]] = defaultdict(list)
    for placement in placements:
        grouped[placement.job].append(placement)
    return {job: _merged(parts) for job, parts in grouped.items()}


def _merged(parts: Sequence[Placement]) -> Placement:
    if len(parts) == 1:
        return parts[0]
    gpus: dict[str, set[int]] = defaultdict(set)
    for part in parts:
        for slot in part.slots:
            gpus[slot.server].update(slot.gpus)
    partners = {part.partner for part in parts}
    return Placement(
        parts[0].job,
        tuple(Slot(server, tuple(sorted(gpus[server]))) for server in sorted(gpus)),
        partners.pop() if len(partners) == 1 else None,
        sum(part.throughput for part in parts),
        parts[0].power_limit_w,
    )


def not_capable(plan: Plan, capabilities: Capabilities) -> tuple[str, ...]:
    """What the plan asks for and the manager cannot do, in words."""
    said: list[str] = []
    if plan.servers and not capabilities.switches_servers:
        said.append(f"{len(plan.servers)} servers to switch: this manager switches no servers")
    limits = sum(1 for placement in plan.placements if placement.power_limit_w is not None)
    if limits and not capabilities.sets_power_limits:
        said.append(f"{limits} power limits: this manager sets no power limits")
    pairs = sum(1 for placement in plan.placements if placement.partner is not None) // 2
    if pairs and not capabilities.pairs_named_jobs:
        said.append(f"{pairs} pairs: this manager shares GPUs, but chooses itself who meets whom")
    if plan.placements and not capabilities.chooses_gpu_index:
        said.append("GPU indices: this manager places by server and number of GPUs")
    return tuple(said)


def actions_of(plan: Plan, basis: ClusterState, capabilities: Capabilities) -> tuple[Action, ...]:
    """The plan's actions in an order that respects what each of them waits for.

    Raises InvalidPlan where moves wait for each other and the plan holds none of them.
    """
    jobs = {status.job.id: status for status in basis.jobs}
    placed = job_slots(plan.placements)
    mates: dict[str, set[str]] = defaultdict(set)
    for placement in plan.placements:
        mates[placement.job].update(_named(placement.partner))
    partners = {job: tuple(sorted(names)) for job, names in mates.items()}
    actions: list[Action] = []
    moved = {move.job for move in plan.moves}
    for stop in plan.stops:
        actions.append(
            Action(
                f"hold:{stop.job}",
                Kind.HOLD,
                stop.step,
                job=stop.job,
                source=stop.source,
                reason=stop.reason,
            )
        )
    for move in plan.moves:
        limit = placed[move.job].power_limit_w if move.job in placed else None
        limit = limit if capabilities.sets_power_limits else None
        actions.extend(_moving(move, partners.get(move.job, ()), limit))
    last = max((action.step for action in actions), default=0)
    for job, placement in placed.items():
        if job in moved:
            continue
        actions.extend(_placing(placement, partners[job], jobs.get(job), capabilities, last + 1))
    if capabilities.switches_servers:
        for switch in plan.servers:
            actions.append(
                Action(
                    f"{switch.action}:{switch.id}",
                    Kind(switch.action),
                    0 if switch.action == "on" else last + 2,
                    server=switch.id,
                )
            )
    spread = frozenset(job for job, status in jobs.items() if status.job.mode is Mode.SPREAD)
    return _ordered(_linked(actions, spread), plan.id)


def _moving(move: Move, partners: tuple[str, ...], power_limit_w: float | None) -> list[Action]:
    """A move is one action; that of a held job is two, so that others can come in between."""
    going = Action(
        f"move:{move.job}",
        Kind.MOVE,
        move.step,
        job=move.job,
        slots=move.target,
        source=move.source,
        partners=partners,
        power_limit_w=power_limit_w,
        reason=move.reason,
    )
    if not move.held:
        return [going]
    hold = Action(
        f"hold:{move.job}", Kind.HOLD, 0, job=move.job, source=move.source, reason=move.reason
    )
    place = replace(going, id=f"place:{move.job}", kind=Kind.PLACE, source=(), needs=(hold.id,))
    return [hold, place]


def _placing(
    placement: Placement,
    partners: tuple[str, ...],
    status: JobStatus | None,
    capabilities: Capabilities,
    step: int,
) -> list[Action]:
    """What a placed job that is no move needs: a start, a new start in its place, or a limit."""
    limit = placement.power_limit_w if capabilities.sets_power_limits else None
    if status is None or not status.slots:
        return [
            Action(
                f"place:{placement.job}",
                Kind.PLACE,
                step,
                job=placement.job,
                slots=placement.slots,
                partners=partners,
                power_limit_w=limit,
            )
        ]
    if partners and not status.partners and not capabilities.pairs_named_jobs:
        # Whether its GPU can be shared is settled when the job starts: it starts again there.
        hold = Action(
            f"hold:{placement.job}",
            Kind.HOLD,
            step,
            job=placement.job,
            source=status.slots,
            reason="its GPU is to be shared, so it starts again in its place",
        )
        place = Action(
            f"place:{placement.job}",
            Kind.PLACE,
            step,
            job=placement.job,
            slots=status.slots,
            partners=partners,
            power_limit_w=limit,
            needs=(hold.id,),
        )
        return [hold, place]
    if limit != status.power_limit_w and limit is not None:
        return [
            Action(
                f"limit:{placement.job}:{slot.server}",
                Kind.LIMIT,
                step,
                server=slot.server,
                slots=(slot,),
                power_limit_w=limit,
            )
            for slot in placement.slots
        ]
    return []


def _cells(slots: Iterable[Slot]) -> set[tuple[str, int]]:
    return {(slot.server, gpu) for slot in slots for gpu in slot.gpus}


def _linked(actions: Sequence[Action], spread: frozenset[str]) -> list[Action]:
    """Each action with the identities of those it has to wait for."""
    leaving: dict[tuple[str, int], list[Action]] = defaultdict(list)
    leaves_server: dict[str, list[str]] = defaultdict(list)
    switched_on = {action.server: action.id for action in actions if action.kind is Kind.ON}
    for action in actions:
        for cell in _cells(action.source):
            leaving[cell].append(action)
        for server in {slot.server for slot in action.source} - {s.server for s in action.slots}:
            leaves_server[server].append(action.id)
    return [
        replace(action, needs=_needs(action, leaving, leaves_server, switched_on, spread))
        for action in actions
    ]


def _needs(
    action: Action,
    leaving: Mapping[tuple[str, int], Sequence[Action]],
    leaves_server: Mapping[str, Sequence[str]],
    switched_on: Mapping[str | None, str],
    spread: frozenset[str],
) -> tuple[str, ...]:
    if action.kind is Kind.OFF:
        return tuple(sorted(leaves_server.get(action.server or "", ())))
    needs = set(action.needs)
    for cell in _cells(action.slots):
        for other in leaving.get(cell, ()):
            if other.id == action.id:
                continue
            # A replica that stays where it is holds nobody up; a gang starts again as a whole.
            starts_again = other.job not in spread and action.job in other.partners
            if cell not in _cells(other.slots) or starts_again:
                needs.add(other.id)
    needs.update(switched_on[slot.server] for slot in action.slots if slot.server in switched_on)
    return tuple(sorted(needs))


def _ordered(actions: Sequence[Action], plan_id: str) -> tuple[Action, ...]:
    """By depth of dependencies, then the plan's steps, then identity."""
    by_id = {action.id: action for action in actions}
    needs = {name: [n for n in action.needs if n in by_id] for name, action in by_id.items()}
    depth: dict[str, int] = {}
    try:
        for name in TopologicalSorter(needs).static_order():
            depth[name] = 1 + max((depth[n] for n in needs[name]), default=-1)
    except CycleError as error:
        names = ", ".join(sorted({by_id[name].job or name for name in error.args[1]}))
        raise InvalidPlan(
            [f"{names} wait for each other, and the plan holds none of them"],
            where=f"plan {plan_id}",
        ) from None
    return tuple(sorted(actions, key=lambda action: (depth[action.id], action.step, action.id)))
