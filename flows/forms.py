"""The forms people fill in: what a run can be asked for, with labels, help and limits.

Prefect makes the form of a manual run from these models, and refuses values they refuse. Every
field has a default that is safe to leave as it is.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator

from gogh_core.errors import InvalidInput
from gogh_core.planning import Kind, Order, Request, moment
from gogh_core.planning import Objective as PlanObjective

__all__ = ["OrderForm", "ReplanForm", "WhatIfForm", "WhatIfJob", "WhatIfServer"]

Objective = Literal["settings", "energy", "watts", "throughput", "cost", "carbon"]
Solver = Literal["settings", "glpk", "highs"]


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReplanForm(_Form):
    """A new plan for what is left of this window."""

    reason: str = Field(
        "by hand",
        title="Reason",
        description="Stands in the plan's record and in the run's name.",
        min_length=1,
        max_length=200,
    )
    dry_run: bool = Field(
        False,
        title="Dry run",
        description="Only show the difference to the running plan; nothing is sent.",
    )
    wait_for_approval: bool = Field(
        False,
        title="Wait for approval",
        description="Pause before anything is sent, and show what would change.",
    )
    objective: Objective = Field(
        "settings",
        title="Objective",
        description="Promises are kept under all of them. settings: what gogh.toml says. "
        "energy: least energy for the work. watts: least draw in this window. "
        "throughput: work as fast as possible. cost, carbon: least by the curve of the settings, "
        "best effort waits for cheaper hours.",
    )
    solver: Solver = Field("settings", title="Solver", description="settings: what gogh.toml says.")
    gap: float | None = Field(
        None,
        title="Gap",
        description="How far from the proven optimum the plan may be, 0.01 is 1 %. "
        "Empty: as in the settings.",
        ge=0,
        le=1,
    )
    time_limit_s: float | None = Field(
        None,
        title="Time limit (s)",
        description="Seconds the planner may take. Empty: as in the settings.",
        gt=0,
        le=3600,
    )
    max_moves: int | None = Field(
        None,
        title="Moves at most",
        description="0: nobody who runs is moved. Empty: as in the settings.",
        ge=0,
    )
    power_cap_w: float | None = Field(
        None,
        title="Power cap (W)",
        description="The cluster may not draw more, until the cap is lifted (deployment `order`). "
        "Empty: as in the settings.",
        gt=0,
    )
    pin: list[str] = Field(
        default_factory=list,
        title="Jobs to pin",
        description="Ids of running jobs that stay where they are until the pin is lifted.",
    )
    drain: list[str] = Field(
        default_factory=list,
        title="Servers to drain",
        description="Ids of servers that must be empty until the drain is lifted.",
    )
    who: str = Field(
        "", title="Your name", description="Stands with the orders you give.", max_length=100
    )

    @field_validator("pin", "drain")
    @classmethod
    def _named(cls, names: list[str]) -> list[str]:
        if any(not name.strip() for name in names):
            raise ValueError("an id is empty; remove the line or fill it in")
        return [name.strip() for name in names]

    @field_validator("reason")
    @classmethod
    def _said(cls, reason: str) -> str:
        if not reason.strip() or reason.strip() == "schedule":
            raise ValueError("say why; `schedule` is the cadence's own reason")
        return reason.strip()

    def to_request(self) -> Request:
        """As planning takes it."""
        raw: dict[str, Any] = self.model_dump(exclude={"solver", "objective", "pin", "drain"})
        return Request(
            **raw,
            solver=None if self.solver == "settings" else self.solver,
            objective=None if self.objective == "settings" else self.objective,
            pin=tuple(self.pin),
            drain=tuple(self.drain),
        )


class OrderForm(_Form):
    """A standing order: every plan keeps it until it is lifted or its time is over."""

    does: Literal[
        "list", "drain", "undrain", "pin", "unpin", "cap", "uncap", "quota", "unquota"
    ] = Field(
        "list",
        title="What to do",
        description="drain: keep a server empty. pin: keep a running job where it is. "
        "cap: limit what the cluster draws. quota: limit an owner's GPUs. "
        "un…: lift it again. list: only show what stands.",
    )
    subject: str = Field(
        "",
        title="Server, job or owner",
        description="Its id; empty for a cap.",
        max_length=200,
    )
    amount: float | None = Field(
        None, title="Watts or GPUs", description="Of a cap or a quota.", ge=0
    )
    begins: str = Field(
        "",
        title="From",
        description="2026-01-05T14:00 (UTC) or +2h. Empty: now. "
        "A drain that begins later is a maintenance window.",
    )
    until: str = Field(
        "", title="Until", description="Likewise. Empty: until somebody lifts the order."
    )
    reason: str = Field("", title="Reason", description="Is kept and shown.", max_length=200)
    who: str = Field("", title="Your name", description="Is kept and shown.", max_length=100)

    def to_order(self, now: datetime) -> Order | tuple[Kind, str]:
        """The order that is given, or kind and subject of those that are lifted."""
        subject = self.subject.strip()
        kind = cast(Kind, self.does.removeprefix("un"))
        if self.does.startswith("un"):
            return kind, subject
        amount = self.amount
        if kind == "quota" and amount is not None and amount % 1:
            raise InvalidInput(f"{amount:g} is no number of GPUs", where="quota")
        return Order(
            kind,
            subject,
            begins_at=moment(self.begins, now, where="from") if self.begins.strip() else now,
            ends_at=moment(self.until, now, where="until") if self.until.strip() else None,
            who=self.who.strip() or "somebody",
            given_at=now,
            power_w=amount if kind == "cap" else None,
            gpus=int(amount) if kind == "quota" and amount is not None else None,
            reason=self.reason.strip(),
        )


class WhatIfServer(_Form):
    """Servers that are not there yet."""

    gpu_type: str = Field(title="GPU type", description="Such as v100 or a100.", min_length=1)
    gpus: int = Field(4, title="GPUs per server", ge=1, le=64)
    count: int = Field(1, title="How many servers", ge=1, le=1000)


class WhatIfJob(_Form):
    """Jobs like one that is on the cluster."""

    like: str = Field(title="Like job", description="Id of a job to copy.", min_length=1)
    count: int = Field(1, title="How many", ge=1, le=10_000)
    required_throughput: float | None = Field(
        None, title="Promised throughput", description="Empty: the copied job's.", ge=0
    )


class WhatIfForm(_Form):
    """Changes to the cluster of this moment. Nothing is sent."""

    add_servers: list[WhatIfServer] = Field(default_factory=list, title="Servers added")
    lose_servers: list[str] = Field(
        default_factory=list, title="Servers lost", description="Ids of servers."
    )
    add_jobs: list[WhatIfJob] = Field(default_factory=list, title="Jobs added")
    objective: Objective = Field(
        "settings", title="Objective", description="settings: what gogh.toml says."
    )
    power_cap_w: float | None = Field(
        None, title="Power cap (W)", description="Empty: as in the settings.", gt=0
    )
    max_moves: int | None = Field(
        None, title="Moves at most", description="Empty: as in the settings.", ge=0
    )

    @property
    def asked_objective(self) -> PlanObjective | None:
        """The objective that is asked for; None: that of the settings."""
        return None if self.objective == "settings" else self.objective
