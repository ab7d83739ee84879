"""The prices of one leaf of a certificate, and the cuts that the way to the leaf made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gogh_core.allocation.verify_facts import Array, Facts, JobClass

__all__ = ["Cut", "Prices", "Way", "way_of", "ways_price"]


@dataclass(frozen=True, slots=True)
class Cut:
    """At most (or at least) `value`: GPUs of a kind in use by jobs that fit a server ("gpus"),
    uses of an option on GPUs where nobody stays ("option"), or how often certain jobs go a way.
    """

    what: str
    kind: int
    value: int
    at_most: bool
    way: Way | None = None


@dataclass(frozen=True, slots=True)
class Way:
    """Some jobs that wait, stay, or take new GPUs of a type or one side of an option there."""

    jobs: frozenset[int]
    what: str
    first: int = 0
    second: int = 0


def way_of(facts: Facts, jobs: Any, way: Any) -> Way:
    """A way as a certificate names it; raises where there is no such thing."""
    members = frozenset(int(j) for j in jobs)
    if not members <= set(range(len(facts.problem.jobs))):
        raise ValueError("a way of jobs that do not exist")
    if str(way[0]) not in ("wait", "stay", "type", "side"):
        raise ValueError(f"there is no way {way[0]!r}")
    return Way(members, str(way[0]), *(int(number) for number in way[1:]))


class Prices:
    """The dual values of one leaf; signs are forced to what weak duality needs."""

    def __init__(self, facts: Facts, raw: Mapping[str, Any], cuts: list[Cut]) -> None:
        def numbers(name: str, size: int) -> Array:
            given = np.asarray(raw.get(name) or np.zeros(size), dtype=float)
            if given.shape != (size,) or not np.isfinite(given).all():
                raise ValueError(f"{name} has {given.shape} finite values, not ({size},)")
            return given

        problem, kinds = facts.problem, len(facts.kinds)
        self.jobs = numbers("jobs", len(problem.jobs))
        self.capacity = np.maximum(numbers("capacity", kinds), 0)
        self.occupied = np.maximum(numbers("occupied", kinds), 0)
        self.whole = np.maximum(numbers("whole", kinds), 0)
        self.cells = np.maximum(numbers("cells", len(facts.cell_server)), 0)
        self.worth = numbers("worth", len(problem.jobs))
        quotas = raw.get("quotas") or {}
        self.quotas = {owner: max(0.0, _finite(quotas.get(owner, 0.0))) for owner in problem.quotas}
        self.moves = max(0.0, _finite(raw.get("moves", 0.0))) * (problem.max_moves is not None)
        self.cap = max(0.0, _finite(raw.get("cap", 0.0))) * (problem.power_cap_w is not None)
        self.empty = np.maximum(numbers("empty", kinds), 0)
        self.gpu = self.capacity - self.empty
        self.paid_back = 0.0
        self.options: dict[int, float] = {}
        self.wait = np.zeros(len(problem.jobs))
        self.stay = np.zeros(len(problem.jobs))
        self.sided: list[tuple[Way, float]] = []
        for cut, price in zip(cuts, numbers("cuts", len(cuts)), strict=True):
            signed = max(0.0, price) if cut.at_most else min(0.0, price)
            if cut.what == "gpus":
                self.gpu[cut.kind] += signed
            elif cut.way is not None:
                members = sorted(cut.way.jobs)
                if cut.way.what == "wait":
                    self.wait[members] += signed
                elif cut.way.what == "stay":
                    self.stay[members] += signed
                else:
                    self.sided.append((cut.way, signed))
            else:
                self.options[cut.kind] = self.options.get(cut.kind, 0.0) + signed
            self.paid_back += signed * cut.value
        self.sides: dict[int, dict[int, tuple[float | None, float | None]]] = {}
        for row, a, b, *realm in raw.get("sides") or []:
            mine = self.sides.setdefault(int(realm[0]) if realm else 0, {})
            mine[int(row)] = (_given(a), _given(b))
        self.own: dict[int, dict[int, tuple[float, dict[int, float]]]] = {}
        for row, realm, price, more in raw.get("own") or []:
            extra = {int(j): max(0.0, _finite(m)) for j, m in more}
            self.own.setdefault(int(realm), {})[int(row)] = (_finite(price), extra)
        self.ties = {
            (str(server), int(gpu), int(row)): (_finite(a), _finite(b))
            for server, gpu, row, a, b in raw.get("ties") or []
        }
        self.quota_of = np.array([self.quotas.get(job.owner, 0.0) for job in problem.jobs])


def ways_price(facts: Facts, prices: Prices, group: JobClass) -> Any:
    """[jobs, sides] what the cuts on ways add on new GPUs; 0 where there are none."""
    result: Any = 0.0
    for way, price in prices.sided:
        members = [at for at, j in enumerate(group.jobs.tolist()) if j in way.jobs]
        if not members or not price:
            continue
        if way.what == "type":
            here = facts.problem.table.type_id[group.rows] == way.first
        else:
            here = (group.rows == way.first) & (facts.own[group.rows] | (group.side == way.second))
        result = result + np.zeros(group.usable.shape)
        result[members] += price * here
    return result


def _given(price: Any) -> float | None:
    """A price that may be missing."""
    return None if price is None else _finite(price)


def _finite(price: Any) -> float:
    """A price that is a number: infinities and NaN prove nothing."""
    value = float(price)
    if not math.isfinite(value):
        raise ValueError(f"a price is {value}")
    return value
