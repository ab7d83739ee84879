"""Names and first lines that tell: what a run did, or what to do about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from gogh_core.domain import Plan
from gogh_core.errors import GoghError, InvalidInput

__all__ = ["advice", "change_percent", "plan_name"]

_DEGRADED_SHOWN = 2
_SHORT = 60


def change_percent(now: float | None, before: float | None) -> str | None:
    """`−18 % W`; None where there is nothing to compare with."""
    if now is None or not before:
        return None
    percent = round(100 * (now - before) / before)
    sign = "−" if percent < 0 else "+" if percent > 0 else "±"
    return f"{sign}{abs(percent)} % W"


def plan_name(
    at: datetime,
    plan: Plan | None,
    *,
    power_w: float | None = None,
    before_w: float | None = None,
    degraded: Sequence[str] = (),
    kind: str = "plan",
) -> str:
    """Such as `plan 12:05 · 143 jobs · −18 % W · gap 0.4 %`; what was done without comes last."""
    parts = [f"{kind} {at:%H:%M}"]
    if plan is None:
        parts.append("no plan")
    else:
        jobs = len({placement.job for placement in plan.placements})
        parts.append(f"{jobs} job{'' if jobs == 1 else 's'}")
        if plan.waiting:
            parts.append(f"{len(plan.waiting)} waiting")
        change = change_percent(power_w, before_w)
        parts += [change] if change else []
        parts.append(f"gap {100 * plan.gap:.1f} %" if plan.status != "infeasible" else "infeasible")
        if plan.status in ("greedy", "time_limit"):
            parts.append(plan.status.replace("_", " "))
    parts += [f"⚠ {_short(what)}" for what in degraded[:_DEGRADED_SHOWN]]
    if len(degraded) > _DEGRADED_SHOWN:
        parts.append(f"⚠ {len(degraded) - _DEGRADED_SHOWN} more")
    return " · ".join(parts)


def _short(what: str) -> str:
    """Up to where the details begin; the artifact has all of it."""
    head = re.split(r"[:(]", what, maxsplit=1)[0].strip()
    return head if len(head) <= _SHORT else head[: _SHORT - 1] + "…"


def advice(error: GoghError) -> str:
    """The first line of a failed run: what to do, then what was wrong."""
    kind = "the form cannot be used" if isinstance(error, InvalidInput) else type(error).__name__
    todo = error.todo or "run `gogh replan --dry-run` to see whether it still holds"
    what = f"{error.where}: {error.what}" if error.where else error.what
    return f"To do: {todo}. Why: {what} ({kind})"
