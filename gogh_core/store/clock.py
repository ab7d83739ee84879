"""Whether the clock can be believed when it says that something is too old.

A clock that jumped ahead makes everything look old. So it is compared with the newest sample and,
with a clock that nobody sets (seconds since the machine started), with the last ageing. After a
jump nothing expires until the clock has gone on evenly for a day of real time: what follows from a
wrong clock shows by then. An embedded cluster has a clock of its own, which may run faster than
ours; only the newest sample tells about that.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

__all__ = ["Look", "look"]

_DAY_S = 86_400.0
_BACK_S = 300.0
"""Clocks are put right by so much all the time."""


@dataclass(frozen=True, slots=True)
class Look:
    """The clocks at one ageing."""

    now: datetime
    """What the cluster's clock says."""
    boot: str
    boot_s: float
    """Seconds since the machine started, and which start that was."""
    steady_s: float
    """Real time between all ageings so far, as far as it is known: never too much."""
    jumped_s: float | None = None
    """The same when the clock was last seen to have jumped."""
    doubt: str = ""
    """Why the clock is not believed now."""

    def noted(self) -> str:
        """For the next look."""
        return json.dumps(
            {
                "now": self.now.isoformat(),
                "boot": self.boot,
                "boot_s": self.boot_s,
                "steady_s": self.steady_s,
                "jumped_s": self.jumped_s,
            }
        )

    def agrees_with(self, expired_s: float) -> bool:
        """Whether what was found too old then may be removed now: a day of real time has passed."""
        return not self.doubt and self.steady_s - expired_s >= _DAY_S


def look(
    now: datetime,
    newest: datetime | None,
    last: str | None,
    *,
    virtual: bool = False,
    boot: tuple[str, float] | None = None,
) -> Look:
    """The clocks now: `newest` is the newest sample's time, `last` what was noted the last time."""
    boot_id, boot_s = boot or _boot()
    if last is None:
        steady_s, passed_s, jumped_s = 0.0, None, None
    else:
        raw = json.loads(last)
        real_s = boot_s - (raw["boot_s"] if raw["boot"] == boot_id else 0.0)
        steady_s = raw["steady_s"] + max(0.0, real_s)
        passed_s = (now - datetime.fromisoformat(raw["now"])).total_seconds() - real_s
        jumped_s = raw["jumped_s"]
    doubt = ""
    if passed_s is not None and not virtual and passed_s > _DAY_S:
        doubt = f"the clock is {_days(passed_s)} further than the time since the last ageing"
    elif passed_s is not None and not virtual and passed_s < -_BACK_S:
        doubt = f"the clock is {_days(-passed_s)} behind the time since the last ageing"
    if doubt:
        jumped_s = steady_s
    elif jumped_s is not None and steady_s - jumped_s < _DAY_S:
        doubt = "the clock jumped less than a day ago"
    if not doubt and newest is not None and abs(now - newest) > timedelta(seconds=_DAY_S):
        doubt = f"it is {now:%Y-%m-%d %H:%M}, but the newest sample is of {newest:%Y-%m-%d %H:%M}"
    return Look(now, boot_id, boot_s, steady_s, jumped_s, doubt)


def _days(seconds: float) -> str:
    return f"{seconds / _DAY_S:.1f} days" if seconds >= _DAY_S else f"{seconds:.0f} s"


def _boot() -> tuple[str, float]:
    started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return started, time.clock_gettime(time.CLOCK_BOOTTIME)
