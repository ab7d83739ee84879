"""Standing orders: drains, pins, caps and quotas that last until they are lifted or over.

An order is given once and then kept by every plan. A drain that begins later is a maintenance
window. What was given and lifted is never changed in the store, only added to; whether an order is
in force follows from the time, which is always the cluster's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, Self

import duckdb

from gogh_core.domain import ClusterState
from gogh_core.errors import InvalidInput
from gogh_core.hardware import closest
from gogh_core.planning.request import Request
from gogh_core.store import Store, fetch

__all__ = ["Kind", "Order", "give", "lift", "list_orders", "moment", "wishes"]

Kind = Literal["drain", "pin", "cap", "quota"]
_NOUNS: Mapping[str, str] = {"drain": "server", "pin": "job", "cap": "", "quota": "owner"}
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Order:
    """One order; `id` 0 means that it is only a wish of one request and is not recorded."""

    kind: Kind
    subject: str
    """The server, job or owner it is about; empty for a cap."""
    begins_at: datetime
    who: str
    given_at: datetime
    ends_at: datetime | None = None
    power_w: float | None = None
    gpus: int | None = None
    reason: str = ""
    id: int = 0
    lifted_by: str | None = None
    lifted_at: datetime | None = None

    def __post_init__(self) -> None:
        cap, quota = self.kind == "cap", self.kind == "quota"
        power_w, gpus = self.power_w, self.gpus
        for good, what in (
            (self.kind in _NOUNS, f"{self.kind!r} is no kind of order"),
            (cap or bool(self.subject.strip()), f"names no {_NOUNS.get(self.kind)}"),
            (
                not cap or (power_w is not None and math.isfinite(power_w) and power_w > 0),
                f"the cap is {power_w} W, not a number of watts over 0",
            ),
            (
                not quota or (gpus is not None and gpus >= 0),
                f"the quota is {gpus}, not a number of GPUs",
            ),
            (
                self.ends_at is None or self.ends_at > self.begins_at,
                f"ends at {shown(self.ends_at)}, which is not after {shown(self.begins_at)}",
            ),
        ):
            if not good:
                raise InvalidInput(what, where=self.kind)

    def stands(self, now: datetime) -> bool:
        """Whether it is in force or planned: neither lifted nor over."""
        return self.lifted_at is None and (self.ends_at is None or now < self.ends_at)

    def in_force(self, now: datetime) -> bool:
        """Whether it holds at this moment."""
        return self.stands(now) and self.begins_at <= now

    def state(self, now: datetime) -> Literal["in force", "planned", "over", "lifted"]:
        """Where it stands in its life."""
        if self.lifted_at is not None:
            return "lifted"
        if not self.stands(now):
            return "over"
        return "in force" if self.begins_at <= now else "planned"

    def covers(self, other: Order) -> bool:
        """Whether everything the other one orders is ordered by this one already."""
        same = (self.kind, self.subject, self.power_w, self.gpus) == (
            other.kind,
            other.subject,
            other.power_w,
            other.gpus,
        )
        last = self.ends_at is None or (other.ends_at is not None and other.ends_at <= self.ends_at)
        return same and self.begins_at <= other.begins_at and last

    def overlaps(self, other: Order) -> bool:
        """Whether there is a moment at which both are in force."""
        return (self.ends_at is None or other.begins_at < self.ends_at) and (
            other.ends_at is None or self.begins_at < other.ends_at
        )

    @property
    def what(self) -> str:
        """Such as `server s1 is drained`."""
        if self.kind == "drain":
            return f"server {self.subject} is drained"
        if self.kind == "pin":
            return f"job {self.subject} is pinned"
        if self.kind == "cap":
            return f"the power cap is {self.power_w:g} W"
        return f"owner {self.subject} gets at most {self.gpus} GPUs"

    @property
    def lifting(self) -> str:
        """The command that lifts it."""
        return f"gogh un{self.kind} {self.subject}".strip()

    def __str__(self) -> str:
        """Such as `server s1 is drained by ann since 2026-01-05 12:51 (order 3): fan`."""
        if not self.id:
            return f"{self.what} by this request"
        since = "since" if self.begins_at <= self.given_at else "from"
        until = f" until {shown(self.ends_at)}" if self.ends_at is not None else ""
        why = f": {self.reason}" if self.reason else ""
        when = f"{since} {shown(self.begins_at)}{until}"
        return f"{self.what} by {self.who} {when} (order {self.id}){why}"

    @property
    def brief(self) -> str:
        """Such as `server s1 is drained (order 3)`; `gogh orders` has the rest."""
        return f"{self.what} ({f'order {self.id}' if self.id else 'this request'})"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        raw = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: v.isoformat() if isinstance(v, datetime) else v for k, v in raw.items()}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Self:
        """From the store."""
        return cls(id=row["order_id"], **{k: v for k, v in row.items() if k != "order_id"})

    def check(self, state: ClusterState) -> None:
        """Refuse an order on a server or a job that is not there."""
        if self.kind == "drain":
            servers = [status.server.id for status in state.servers]
            if self.subject not in servers:
                todo = _near(self.subject, servers)
                raise InvalidInput(
                    f"server {self.subject!r} is not known", where="drain", todo=todo
                )
        elif self.kind == "pin":
            status = state.job(self.subject)
            if status is None:
                todo = _near(self.subject, [known.job.id for known in state.jobs])
                raise InvalidInput(
                    f"job {self.subject!r} is not on the cluster", where="pin", todo=todo
                )
            if not status.slots:
                raise InvalidInput(
                    f"job {self.subject!r} is not running",
                    where="pin",
                    todo="only running jobs can stay",
                )


def give(
    store: Store, asked: Sequence[Order], state: ClusterState, now: datetime
) -> list[tuple[Order, bool]]:
    """Record orders, all or none; each with whether it is new or was ordered already."""
    given: list[tuple[Order, bool]] = []
    with store.write() as connection:
        known = _all(connection)
        standing = [order for order in known if order.stands(now)]
        for order in asked:
            before = next((other for other in standing if other.covers(order)), None)
            if before is not None:
                given.append((before, False))
                continue
            order.check(state)
            _agree(order, standing, state)
            new = replace(order, id=len(known) + 1)
            known.append(new)
            standing.append(order)
            given.append((new, True))
            fetch(connection, "planning_insert_order", order_id=new.id, **_columns(new))
    return given


def lift(
    store: Store, kind: Kind, subject: str, *, who: str, now: datetime, state: ClusterState
) -> list[Order]:
    """Lift every order of this kind on this subject, planned ones too; there must be one."""
    with store.write() as connection:
        standing = [o for o in _all(connection) if o.kind == kind and o.stands(now)]
        found = [order for order in standing if order.subject == subject]
        for order in found:
            fetch(connection, "planning_insert_lift", order_id=order.id, who=who, lifted_at=now)
    if found:
        return [replace(order, lifted_by=who, lifted_at=now) for order in found]
    raise _not_ordered(kind, subject, standing, state)


def _not_ordered(
    kind: Kind, subject: str, standing: Sequence[Order], state: ClusterState
) -> InvalidInput:
    """Nothing of the kind stands: what to do instead."""
    where, todo = f"un{kind}", "`gogh orders` lists all"
    if kind == "cap":
        return InvalidInput("no power cap was ordered", where=where, todo=todo)
    near = closest(subject, {order.subject for order in standing})
    if kind == "drain" and any(s.server.id == subject and s.drain for s in state.servers):
        todo = "the cluster manager drains it: release it there"
    elif near is not None:
        todo = f"did you mean {near!r}?"
    word = {"drain": "drained", "pin": "pinned", "quota": "under a quota"}[kind]
    what = f"{_NOUNS[kind]} {subject!r} is not {word} by an order"
    return InvalidInput(what, where=where, todo=todo)


def list_orders(store: Store) -> list[Order]:
    """Every order that was ever given, the oldest first."""
    with store.read() as connection:
        return _all(connection)


def wishes(request: Request, now: datetime) -> list[Order]:
    """What a request orders."""
    usual: dict[str, Any] = {
        "begins_at": now,
        "given_at": now,
        "who": request.who or "somebody",
        "reason": request.reason,
    }
    orders = [Order("drain", server, **usual) for server in request.drain]
    orders += [Order("pin", job, **usual) for job in request.pin]
    if request.power_cap_w is not None:
        orders.append(Order("cap", "", power_w=request.power_cap_w, **usual))
    return orders


def moment(text: str, now: datetime, *, where: str) -> datetime:
    """A time as people give it: ISO 8601 (UTC where no zone is named), or `+2h` from now."""
    ahead = re.fullmatch(r"\+(\d{1,6})\s*([smhd])", text.strip())
    if ahead is not None:
        return now + timedelta(seconds=int(ahead[1]) * _UNITS_S[ahead[2]])
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInput(
            f"{text!r} is no time", where=where, todo="say it as 2026-01-05T14:00 (UTC) or +2h"
        ) from None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    if found < now:
        raise InvalidInput(f"{shown(found)} is past: it is {shown(now)} now", where=where)
    return found


def shown(at: datetime | None) -> str:
    """A time as people read it, in UTC."""
    if at is None:
        return "its end"
    return f"{at:%Y-%m-%d %H:%M:%S}".removesuffix(":00")


def _agree(order: Order, standing: Sequence[Order], state: ClusterState) -> None:
    """Refuse a drain that a pin forbids, and a pin that a drain forbids."""
    for other in standing:
        if {order.kind, other.kind} != {"drain", "pin"} or not order.overlaps(other):
            continue
        drain, pin = (order, other) if order.kind == "drain" else (other, order)
        status = state.job(pin.subject)
        if status is not None and any(slot.server == drain.subject for slot in status.slots):
            raise InvalidInput(
                f"job {pin.subject} runs on {drain.subject}, and {other}",
                where=order.kind,
                todo=f"`{other.lifting}` first" if other.id else "order one of the two",
            )


def _near(name: str, known: Sequence[str]) -> str:
    found = closest(name, known)
    return f"did you mean {found!r}?" if found else "`gogh query` shows what is there"


def _all(connection: duckdb.DuckDBPyConnection) -> list[Order]:
    return [Order.from_row(row) for row in fetch(connection, "planning_orders").to_pylist()]


def _columns(order: Order) -> dict[str, Any]:
    raw = {field.name: getattr(order, field.name) for field in fields(order)}
    return {k: v for k, v in raw.items() if k not in ("id", "lifted_by", "lifted_at")}
