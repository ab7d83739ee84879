"""What somebody asks of one cycle: the schedule asks for nothing special, a person may."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

from gogh_core.errors import InvalidInput
from gogh_core.planning.objectives import OBJECTIVES, Objective

__all__ = ["Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """One cycle's wishes; None means what the settings say.

    Every `objective` keeps the same promises: `energy` for the least energy of the work, `watts`
    for the least draw of the window, `throughput` with work done as fast as the cluster allows,
    `cost` and `carbon` for the least of a curve (`objectives`). `pin`, `drain` and `power_cap_w`
    are standing orders: a run that is no dry run records them, and they last until they are lifted.
    """

    reason: str = "schedule"
    objective: Objective | None = None
    solver: Literal["glpk", "highs"] | None = None
    gap: float | None = None
    time_limit_s: float | None = None
    max_moves: int | None = None
    power_cap_w: float | None = None
    pin: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    dry_run: bool = False
    wait_for_approval: bool = False
    who: str = ""
    """Who asks; stands with the orders that the request gives."""
    increment: bool = False
    """Only jobs that wait are planned; what runs stays where it is."""

    def __post_init__(self) -> None:
        for name in ("pin", "drain"):
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))
        for good, what in (
            (bool(self.reason.strip()), "reason is empty"),
            (
                self.objective in (None, *OBJECTIVES),
                f"objective is {self.objective!r}, not one of {', '.join(OBJECTIVES)}",
            ),
            (self.solver in (None, "glpk", "highs"), f"solver is {self.solver!r}"),
            (self.gap is None or 0 <= self.gap <= 1, f"gap is {self.gap}, not within 0 and 1"),
            (_over_zero(self.time_limit_s), f"time limit is {self.time_limit_s} s"),
            (_over_zero(self.power_cap_w), f"power cap is {self.power_cap_w} W"),
            (self.max_moves is None or self.max_moves >= 0, f"max moves is {self.max_moves}"),
        ):
            if not good:
                raise InvalidInput(what, where="replan request")

    @property
    def orders(self) -> bool:
        """Whether it gives orders that outlast the cycle."""
        return bool(self.pin or self.drain or self.power_cap_w is not None)

    def without_orders(self) -> Self:
        """What it asks of its own cycle only."""
        return replace(self, pin=(), drain=(), power_cap_w=None)

    @property
    def scheduled(self) -> bool:
        """Whether the cadence asked, not a person or an event."""
        return self.reason == "schedule"

    def to_json(self) -> str:
        """For the record of the cycle."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """From the record of the cycle."""
        raw: Mapping[str, Any] = json.loads(text)
        known = {field.name for field in fields(cls)}
        kept: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in raw.items()
            if name in known
        }
        return cls(**kept)


def _over_zero(value: float | None) -> bool:
    return value is None or (math.isfinite(value) and value > 0)
