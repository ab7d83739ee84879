"""Schedulers to compare with, one file each, behind one small protocol (`board.Policy`).

`make` builds one by its name. What a policy knows of speeds and watts is given to it as `Rates`;
those that know the future as well, how long each job will take, are oracles and say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gogh_core.errors import InvalidInput
from gogh_core.simulation.board import Policy, Rates
from gogh_core.simulation.policies.attained import LeastAttained
from gogh_core.simulation.policies.best_fit import BestFit
from gogh_core.simulation.policies.best_fit_tuned import BestFitTuned
from gogh_core.simulation.policies.first_come import Easy, FirstCome
from gogh_core.simulation.policies.gavel import Gavel
from gogh_core.simulation.policies.lucid import Lucid
from gogh_core.simulation.policies.shortest import Shortest, ShortestRemaining
from gogh_core.simulation.policies.sia import Sia
from gogh_core.simulation.policies.smallest import Smallest

__all__ = [
    "POLICIES",
    "BestFit",
    "BestFitTuned",
    "Easy",
    "FirstCome",
    "Gavel",
    "LeastAttained",
    "Lucid",
    "Maker",
    "Shortest",
    "ShortestRemaining",
    "Sia",
    "Smallest",
    "make",
]


@dataclass(frozen=True, slots=True)
class Maker:
    """How a policy is built, and whether it knows the future."""

    build: Callable[[Rates, float], Policy]
    """From what it believes and the seconds of a window."""
    oracle: bool = False
    """Knows how many steps every job has left, and is meant to be given the true rates."""


POLICIES: dict[str, Maker] = {
    "fcfs": Maker(lambda rates, _: FirstCome(rates)),
    "fcfs_easy": Maker(lambda rates, _: Easy(rates)),
    "sjf": Maker(lambda rates, _: Shortest(rates), oracle=True),
    "srtf": Maker(lambda rates, _: ShortestRemaining(rates), oracle=True),
    "las": Maker(lambda rates, window_s: LeastAttained(rates, every_s=window_s)),
    "smallest": Maker(lambda rates, _: Smallest(rates)),
    "best_fit_window": Maker(
        lambda rates, window_s: BestFit(rates, every_s=window_s, name="best_fit_window")
    ),
    "best_fit": Maker(lambda rates, _: BestFit(rates)),
    "best_fit_tuned": Maker(lambda rates, window_s: BestFitTuned(rates, every_s=window_s)),
    "gavel": Maker(lambda rates, window_s: Gavel(rates, every_s=window_s)),
    "gavel_packed": Maker(
        lambda rates, window_s: Gavel(rates, every_s=window_s, packed=True, name="gavel_packed")
    ),
    "sia": Maker(lambda rates, window_s: Sia(rates, every_s=window_s)),
    "lucid": Maker(lambda rates, _: Lucid(rates)),
}


def make(name: str, rates: Rates, *, window_s: float) -> Policy:
    """The policy of that name, at the beginning of its life."""
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise InvalidInput(f"policy {name!r} is not known", todo=f"known: {known}")
    return POLICIES[name].build(rates, window_s)
