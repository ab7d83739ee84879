"""The constraints of the allocation model, one function each; its first line is the sentence.

Each takes the Pyomo model and the part of the program that is being solved, and adds the rows
of one family. Golden LP files under `tests/allocation/golden` show each of them once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gogh_core.allocation.mip import Part

__all__ = ["CONSTRAINTS"]


def every_job_runs_once_or_waits(model: Any, part: Part) -> None:
    """Each job of a group runs in exactly one way, or waits."""
    part.add_family(model, "job")


def sides_of_a_pair_are_filled(model: Any, part: Part) -> None:
    """Each shared option has as many jobs on each of its two sides as it is used."""
    part.add_family(model, "slot")


def gpus_are_counted(model: Any, part: Part) -> None:
    """The GPUs taken of a kind are those that options on the kind take."""
    part.add_family(model, "gpus")


def gpus_are_on_servers_in_use(model: Any, part: Part) -> None:
    """The GPUs taken of a kind are no more than those of its servers in use."""
    part.add_family(model, "room")


def servers_in_use_are_not_empty(model: Any, part: Part) -> None:
    """Servers that draw less in use than off are in use only with a job, one GPU at least."""
    part.add_family(model, "empty")


def servers_are_not_used_twice(model: Any, part: Part) -> None:
    """Servers in use, and those that large gangs fill, are no more than the kind has."""
    part.add_family(model, "servers")


def occupied_servers_are_in_use(model: Any, part: Part) -> None:
    """Servers on which somebody stays are among the servers in use of their kind."""
    part.add_family(model, "occupied")


def cells_have_one_way(model: Any, part: Part) -> None:
    """GPUs that are held now are kept in at most one way, and only if their server is in use."""
    part.add_family(model, "cell")


def partners_stay_together(model: Any, part: Part) -> None:
    """Two that go on sharing a GPU where they are both take the same option there."""
    part.add_family(model, "tie")


def quotas_are_kept(model: Any, part: Part) -> None:
    """The jobs of an owner hold no more GPUs than the owner's quota."""
    part.add_family(model, "quota")


def few_enough_move(model: Any, part: Part) -> None:
    """No more running jobs change their GPUs than allowed."""
    part.add_family(model, "moves")


def power_stays_under_the_cap(model: Any, part: Part) -> None:
    """Servers in use and chosen options together draw no more than the power cap leaves."""
    part.add_family(model, "power")


def no_job_shares_with_itself(model: Any, part: Part) -> None:
    """A spread job fills at most as many sides of its class with itself as there are such pairs."""
    part.add_family(model, "self")


def options_are_counted(model: Any, part: Part) -> None:
    """The count of an option that is branched on is how often it is used on new GPUs."""
    part.add_family(model, "count")


def ways_are_counted(model: Any, part: Part) -> None:
    """The count of a way that is branched on is how many of the group's jobs go it."""
    part.add_family(model, "way")


CONSTRAINTS: tuple[Callable[[Any, Part], None], ...] = (
    every_job_runs_once_or_waits,
    sides_of_a_pair_are_filled,
    gpus_are_counted,
    gpus_are_on_servers_in_use,
    servers_in_use_are_not_empty,
    servers_are_not_used_twice,
    occupied_servers_are_in_use,
    cells_have_one_way,
    partners_stay_together,
    quotas_are_kept,
    few_enough_move,
    power_stays_under_the_cap,
    no_job_shares_with_itself,
    options_are_counted,
    ways_are_counted,
)
