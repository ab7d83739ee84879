"""The bound that a certificate proves, worked out without any solver.

A certificate is a tree: inner nodes split on the number of servers (or GPUs) in use of one kind,
so that every plan is in one of the leaves; a leaf has prices (dual values). Whatever the prices
are, the cheapest way for each job to pay them, plus what the servers earn, is below the cost of
every plan in that leaf (weak duality). The bound is the lowest leaf.

Prices: a job pays for the GPUs of the kind it takes, for the cells it stays on, for quotas,
moves and the power cap. Two that share pay one price for each side of the option; the two sides
together cost no more than the option does. Side prices are split here from what jobs offer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.problem import Gpu, Problem, ProblemServer

__all__ = ["Leaves", "bound_of"]

Array = npt.NDArray[np.float64]
INF = np.inf
_GRID = 4000


def bound_of(problem: Problem, certificate: Mapping[str, Any]) -> float:
    """The largest lower bound on the cost of any plan that the certificate proves.

    It is never below what no prices at all prove: each job's cheapest way, GPUs for nothing.
    """
    facts = _Facts(problem, str(certificate.get("kinds", "likeness")))
    trivial = _leaf(facts, {}, {}, [])
    root = certificate.get("root", {})
    lowest = INF
    stack: list[tuple[Any, dict[int, tuple[int, int]], list[_Cut]]] = [(root, {}, [])]
    while stack:
        node, box, cuts = stack.pop()
        if "split" not in node:
            lowest = min(lowest, _leaf(facts, node, box, cuts))
            continue
        what, at = str(node["split"]), int(node["at"])
        kind = 0 if what == "way" else int(node["kind"])
        top = len(problem.table) if what == "option" else len(facts.kinds)
        if what != "way" and not 0 <= kind < top:
            raise ValueError(f"there is no {what} {kind}")
        for child, below in ((node["low"], True), (node["high"], False)):
            if what == "servers":
                low, high = box.get(kind, (0, facts.kinds[kind].number))
                pair = (low, min(high, at)) if below else (max(low, at + 1), high)
                if pair[0] <= pair[1]:
                    stack.append((child, {**box, kind: pair}, cuts))
            elif what in ("gpus", "option"):
                cut = _Cut(what, kind, at if below else at + 1, below)
                stack.append((child, box, [*cuts, cut]))
            elif what == "way":
                way = _way(facts, node["jobs"], node["way"])
                cut = _Cut(what, 0, at if below else at + 1, below, way)
                stack.append((child, box, [*cuts, cut]))
            else:
                raise ValueError(f"a node splits on {what!r}")
    return float(max(lowest, trivial))


class Leaves:
    """Bounds of single leaves of one problem, for a search that looks at many."""

    def __init__(self, problem: Problem, by: str) -> None:
        self.facts = _Facts(problem, by)

    def bound_w(
        self,
        leaf: Mapping[str, Any],
        servers: dict[int, tuple[int, int]],
        cuts: list[tuple[str, int, int, bool, Any]],
    ) -> float:
        """What a leaf proves; a cut is (what, kind or row, number, at most?, (jobs, way))."""
        mine = [
            _Cut(what, kind, value, at_most, None if way is None else _way(self.facts, *way))
            for what, kind, value, at_most, way in cuts
        ]
        return _leaf(self.facts, leaf, servers, mine)


@dataclass(frozen=True, slots=True)
class _Cut:
    """At most (or at least) `value`: GPUs of a kind in use by jobs that fit a server ("gpus"),
    uses of an option on GPUs where nobody stays ("option"), or how often certain jobs go a way.
    """

    what: str
    kind: int
    value: int
    at_most: bool
    way: _Way | None = None


@dataclass(frozen=True, slots=True)
class _Way:
    """Some jobs that wait, stay, or take new GPUs of a type or one side of an option there."""

    jobs: frozenset[int]
    what: str
    first: int = 0
    second: int = 0


def _way(facts: _Facts, jobs: Any, way: Any) -> _Way:
    members = frozenset(int(j) for j in jobs)
    if not members <= set(range(len(facts.problem.jobs))):
        raise ValueError("a way of jobs that do not exist")
    if str(way[0]) not in ("wait", "stay", "type", "side"):
        raise ValueError(f"there is no way {way[0]!r}")
    return _Way(members, str(way[0]), *(int(number) for number in way[1:]))


@dataclass(slots=True)
class _Kind:
    """Servers that are the same to the planner."""

    gpu_type: int
    size: int
    number: int
    power_w: float
    other_w: float


class _Facts:
    """What does not depend on the prices."""

    def __init__(self, problem: Problem, by: str) -> None:
        self.problem = problem
        table = problem.table
        self.window_s = problem.window_s
        self.idle = np.array([problem.gpu_types[name] for name in table.types] or [0.0])
        self.largest = [problem.largest.get(name, 0) for name in table.types]
        self.fixed_power = self.fixed_other = 0.0
        self.kinds: list[_Kind] = []
        self.kind_of: dict[str, int] = {}
        self._servers(by)
        self._cells()
        self._jobs()
        self._sides()

    def _servers(self, by: str) -> None:
        """What every server costs unused, and what using it adds; equal ones are one kind."""
        types = {name: i for i, name in enumerate(self.problem.table.types)}
        seen: dict[tuple[Any, ...], int] = {}
        for server in self.problem.servers:
            idle = server.gpus * self.problem.gpu_types[server.gpu_type]
            switch = server.switch_cost_j / self.window_s
            used = (server.base_w + idle, 0.0 if server.on else switch)
            unused = used if server.keep_on else (server.off_w, switch if server.on else 0.0)
            self.fixed_power += unused[0]
            self.fixed_other += unused[1]
            if server.drain or server.gpu_type not in types:
                continue
            key = _likeness(server) if by == "likeness" else (server.id,)
            if key not in seen:
                seen[key] = len(self.kinds)
                self.kinds.append(
                    _Kind(
                        types[server.gpu_type],
                        server.gpus,
                        0,
                        used[0] - unused[0],
                        used[1] - unused[1],
                    )
                )
            self.kinds[seen[key]].number += 1
            self.kind_of[server.id] = seen[key]

    def _cells(self) -> None:
        """GPUs of one server that the same running jobs sit on."""
        users: dict[Gpu, list[int]] = {}
        for index, job in enumerate(self.problem.jobs):
            for gpu in job.place:
                if gpu[0] in self.kind_of:
                    users.setdefault(gpu, []).append(index)
        cells: dict[tuple[str, tuple[int, ...]], int] = {}
        self.cells_of: dict[int, set[int]] = {}
        self.cell_server: list[str] = []
        self.cell_size: list[int] = []
        self.cell_at: dict[Gpu, int] = {}
        for gpu in sorted(users):
            key = (gpu[0], tuple(users[gpu]))
            if key not in cells:
                cells[key] = len(cells)
                self.cell_server.append(gpu[0])
                self.cell_size.append(0)
            self.cell_at[gpu] = cells[key]
            self.cell_size[cells[key]] += 1
            for index in users[gpu]:
                self.cells_of.setdefault(index, set()).add(cells[key])

    def _jobs(self) -> None:
        jobs = self.problem.jobs
        self.running = np.array([bool(job.at) for job in jobs], dtype=bool)
        self.move_w = np.array([job.move_cost_j / self.window_s for job in jobs]) * self.running
        self.free = np.array([not (job.at and (job.pinned or not job.movable)) for job in jobs])
        self.required = np.array([job.required_throughput for job in jobs])
        self.surplus = np.array([job.surplus_j_per_step for job in jobs])
        self.spread = np.array([job.mode == "spread" for job in jobs], dtype=bool)
        self.wait_w = np.array(
            [INF if job.pinned else job.priority * self.problem.waiting_penalty_w for job in jobs]
        )
        self.wait_w = self.wait_w + self.move_w
        consent = sorted({job.owner for job in jobs if job.shareable == "owner"})
        self.realms: list[str | None] = [None, *consent]
        self.in_realm = np.array(
            [
                [
                    job.shareable is True
                    if realm is None
                    else job.shareable is not False and job.owner == realm
                    for job in jobs
                ]
                for realm in self.realms
            ],
            dtype=bool,
        ).reshape(len(self.realms), len(jobs))

    def _sides(self) -> None:
        """For each class: its jobs, the options it is in, and which job may use which."""
        table, jobs = self.problem.table, self.problem.jobs
        self.by_class: list[_Class] = []
        index = {name: i for i, name in enumerate(table.classes)}
        members: dict[int, list[int]] = {}
        for j, job in enumerate(jobs):
            members.setdefault(index[job.job_class], []).append(j)
        order_a = np.argsort(table.class_a, kind="stable")
        order_b = np.argsort(table.class_b, kind="stable")
        ids = np.arange(len(table.classes) + 1)
        cut_a = np.searchsorted(table.class_a[order_a], ids)
        cut_b = np.searchsorted(table.class_b[order_b], ids)
        self.pair = table.class_b >= 0
        self.own = table.class_a == table.class_b
        counts = np.unique(table.gpus)
        for c, member in sorted(members.items()):
            first = np.sort(order_a[cut_a[c] : cut_a[c + 1]])
            second = np.sort(order_b[cut_b[c] : cut_b[c + 1]])
            second = second[~self.own[second]]
            rows = np.concatenate([first, second])
            side = np.concatenate([np.zeros(len(first), int), np.ones(len(second), int)])
            got = np.where(side == 0, table.throughput_a[rows], table.throughput_b[rows])
            js = np.array(member)
            allowed = np.array(
                [
                    [
                        (m == 1) if jobs[j].mode == "spread" else m in jobs[j].gpu_counts
                        for m in counts
                    ]
                    for j in member
                ]
            ).reshape(len(member), len(counts))
            usable = allowed[:, np.searchsorted(counts, table.gpus[rows])]
            need = self.required[js] * (1 - 1e-9) - 1e-9
            enough = got[None, :] >= need[:, None]
            usable &= enough | self.spread[js][:, None]
            self.by_class.append(_Class(js, rows, side, got, usable))


def _likeness(server: ProblemServer) -> tuple[Any, ...]:
    return (
        server.gpu_type,
        server.gpus,
        server.base_w,
        server.off_w,
        server.switch_cost_j,
        server.on,
        server.keep_on,
    )


@dataclass(slots=True)
class _Class:
    """Jobs of one class and the option sides they could fill."""

    jobs: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    side: npt.NDArray[np.int64]
    throughput: Array
    usable: npt.NDArray[np.bool_]
    """[jobs, sides]"""


class _Prices:
    """The dual values of one leaf; signs are forced to what weak duality needs."""

    def __init__(self, facts: _Facts, raw: Mapping[str, Any], cuts: list[_Cut]) -> None:
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
        self.quotas = {owner: max(0.0, float(quotas.get(owner, 0.0))) for owner in problem.quotas}
        self.moves = max(0.0, float(raw.get("moves", 0.0))) * (problem.max_moves is not None)
        self.cap = max(0.0, float(raw.get("cap", 0.0))) * (problem.power_cap_w is not None)
        self.gpu = self.capacity.copy()
        self.paid_back = 0.0
        self.options: dict[int, float] = {}
        self.wait = np.zeros(len(problem.jobs))
        self.stay = np.zeros(len(problem.jobs))
        self.sided: list[tuple[_Way, float]] = []
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
            extra = {int(j): max(0.0, float(m)) for j, m in more}
            self.own.setdefault(int(realm), {})[int(row)] = (float(price), extra)
        self.ties = {
            (str(server), int(gpu), int(row)): (float(a), float(b))
            for server, gpu, row, a, b in raw.get("ties") or []
        }
        self.quota_of = np.array([self.quotas.get(job.owner, 0.0) for job in problem.jobs])


def _ways(facts: _Facts, prices: _Prices, group: _Class) -> Any:
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
    return None if price is None else float(price)


def _leaf(
    facts: _Facts, raw: Mapping[str, Any], box: dict[int, tuple[int, int]], cuts: list[_Cut]
) -> float:
    prices = _Prices(facts, raw, cuts)
    problem = facts.problem
    power = 1 + prices.cap
    total = facts.fixed_power * power + facts.fixed_other - prices.paid_back
    total -= sum(price * problem.quotas[owner] for owner, price in prices.quotas.items())
    total -= prices.moves * (problem.max_moves or 0) + prices.cap * (problem.power_cap_w or 0)
    for k, kind in enumerate(facts.kinds):
        low, high = box.get(k, (0, kind.number))
        use = power * kind.power_w + kind.other_w
        use += prices.whole[k] - kind.size * prices.capacity[k] - prices.occupied[k]
        total += min(use * low, use * high) - prices.whole[k] * kind.number
    earned = np.zeros(len(facts.kinds))
    by_server: dict[str, float] = {}
    for cell, server in enumerate(facts.cell_server):
        by_server[server] = by_server.get(server, 0.0) + prices.cells[cell]
    for server, paid in by_server.items():
        k = facts.kind_of[server]
        earned[k] += min(0.0, prices.occupied[k] - paid)
    total += float(earned.sum())
    return total + float(_cheapest(facts, prices).sum())


def _cheapest(facts: _Facts, prices: _Prices) -> Array:
    """The cheapest way for each job, at these prices."""
    problem, table = facts.problem, facts.problem.table
    power = 1 + prices.cap
    watts = power * (table.power_w - table.gpus * facts.idle[table.type_id])
    option = watts + _place_price(facts, prices, power)
    for row, extra in prices.options.items():
        option[row] += extra
    stays = _stays(facts, prices, power)
    side_price = [
        _side_prices(facts, prices, option, watts, stays, realm)
        for realm in range(len(facts.realms))
    ]
    best = facts.wait_w + prices.wait
    once = facts.move_w + prices.moves * facts.running
    for group in facts.by_class:
        js, rows = group.jobs, group.rows
        alone = ~facts.pair[rows]
        price: Any = np.full((len(js), len(rows)), INF)
        price[:, alone] = option[rows[alone]]
        for realm, (a, b, asks) in enumerate(side_price):
            here = np.where(group.side == 0, a[rows], b[rows])
            here = np.where(alone, INF, here)
            member = facts.in_realm[realm][js]
            asked = np.broadcast_to(here[None, :], price.shape).copy()
            for column in np.flatnonzero(facts.own[rows]):
                row = int(rows[column])
                for j, price_j in asks.each.get(row, {}).items():
                    asked[js == j, column] = price_j
                if row in asks.price:
                    asked[js == asks.first[row], column] = asks.price[row]
            price[member] = np.minimum(price[member], asked[member])
        price = price + prices.quota_of[js][:, None] * table.gpus[rows][None, :]
        price -= facts.surplus[js][:, None] * group.throughput[None, :]
        price += _ways(facts, prices, group)
        price[~group.usable] = INF
        gang = ~facts.spread[js]
        least = price.min(axis=1, initial=INF)
        full = least + once[js] + facts.surplus[js] * facts.required[js]
        full[~facts.free[js]] = INF
        best[js[gang]] = np.minimum(best[js[gang]], full[gang])
        for position in np.flatnonzero(~gang):
            j = int(js[position])
            if facts.free[j]:
                cost = _cover(
                    group.throughput, price[position], facts.required[j], problem.jobs[j].max_gpus
                )
                cost += once[j] + facts.surplus[j] * facts.required[j]
                best[j] = min(best[j], cost)
    for j, price_j in _stay_prices(facts, prices, watts, stays, side_price).items():
        best[j] = min(best[j], price_j + prices.stay[j])
    return best


def _place_price(facts: _Facts, prices: _Prices, power: float) -> Array:
    """The cheapest GPUs for each option on any kind; whole servers for what is larger than one."""
    table = facts.problem.table
    result = np.full(len(table), INF)
    keys = table.type_id * (int(table.gpus.max(initial=0)) + 1) + table.gpus
    for key in np.unique(keys):
        rows = np.flatnonzero(keys == key)
        t, m = int(table.type_id[rows[0]]), int(table.gpus[rows[0]])
        kinds = [k for k, kind in enumerate(facts.kinds) if kind.gpu_type == t]
        if m <= facts.largest[t]:
            fits = [prices.gpu[k] for k in kinds if facts.kinds[k].size >= m]
            result[rows] = m * min(fits) if fits else INF
        else:
            result[rows] = _whole(facts, prices, power, kinds, m)
    return result


def _whole(facts: _Facts, prices: _Prices, power: float, kinds: list[int], m: int) -> float:
    """The cheapest whole servers with m GPUs together (any number of each: a relaxation)."""
    best = [0.0] + [INF] * m
    for total in range(1, m + 1):
        for k in kinds:
            kind = facts.kinds[k]
            if kind.size <= total:
                use = power * kind.power_w + kind.other_w + prices.whole[k]
                best[total] = min(best[total], best[total - kind.size] + use)
    return best[m]


@dataclass(slots=True)
class _Stay:
    """A running job's own place: what its GPUs cost, or each of them for a spread job."""

    job: int
    gpu_type: int
    gpus: int
    price: float
    place: frozenset[Gpu]


def _stays(facts: _Facts, prices: _Prices, power: float) -> dict[int, list[_Stay]]:
    """Where each running job can stay; a spread job has one entry for each GPU."""
    problem = facts.problem
    types = {name: i for i, name in enumerate(problem.table.types)}
    found: dict[int, list[_Stay]] = {}
    for j, job in enumerate(problem.jobs):
        if not job.at or any(server not in facts.kind_of for server, _ in job.place):
            continue
        servers = {server for server, _ in job.place}
        t = types[problem.server_of[next(iter(servers))].gpu_type]
        if job.mode == "spread":
            if len(job.place) > job.max_gpus:
                continue
            entries = []
            for gpu in sorted(job.place):
                t = types[problem.server_of[gpu[0]].gpu_type]
                cell = facts.cell_at[gpu]
                price = prices.gpu[facts.kind_of[gpu[0]]]
                price += prices.cells[cell] / facts.cell_size[cell]
                entries.append(_Stay(j, t, 1, float(price), frozenset([gpu])))
            found[j] = entries
            continue
        m = len(job.place)
        if m not in job.gpu_counts:
            continue
        if m <= facts.largest[t]:
            if len(servers) > 1:
                continue
            price = m * prices.gpu[facts.kind_of[next(iter(servers))]]
        else:
            if sum(problem.server_of[server].gpus for server in servers) != m:
                continue
            price = 0.0
            for server in servers:
                kind = facts.kinds[facts.kind_of[server]]
                price += power * kind.power_w + kind.other_w + prices.whole[facts.kind_of[server]]
        if m <= facts.largest[t]:
            price += sum(prices.cells[cell] for cell in facts.cells_of[j])
        found[j] = [_Stay(j, t, m, float(price), job.place)]
    return found


def _offers(
    facts: _Facts, prices: _Prices, stays: dict[int, list[_Stay]], watts: Array, realm: int
) -> tuple[list[Array], list[Array], _Asks]:
    """For both sides of each option: the most anybody who comes would pay, and the most that may
    be asked so that those who stay on the other side can pay the rest.
    """
    table = facts.problem.table
    asks = _Asks()
    most = [np.full(len(table), -INF), np.full(len(table), -INF)]
    least = [np.full(len(table), INF), np.full(len(table), INF)]
    once = facts.move_w + prices.moves * facts.running
    for group in facts.by_class:
        js, rows = group.jobs, group.rows
        member = facts.in_realm[realm][js]
        if not member.any():
            continue
        value = np.where(
            facts.spread[js], 0.0, prices.jobs[js] - facts.surplus[js] * facts.required[js]
        )
        bid: Any = value[:, None] - prices.quota_of[js][:, None] * table.gpus[rows][None, :]
        bid += facts.surplus[js][:, None] * group.throughput[None, :]
        counted = np.minimum(group.throughput[None, :], facts.required[js][:, None])
        bid += (prices.worth * facts.spread)[js][:, None] * counted
        bid[~group.usable | ~member[:, None]] = -INF
        comes = bid - np.where(facts.spread[js], 0.0, once[js])[:, None]
        comes -= _ways(facts, prices, group)
        comes[~facts.free[js]] = -INF
        top = comes.max(axis=0, initial=-INF)
        for side in (0, 1):
            mine = group.side == side
            np.maximum.at(most[side], rows[mine], top[mine])
        itself: Any = np.flatnonzero(facts.own[rows])
        if len(itself):
            _first_and_second(asks, js, rows[itself], comes[:, itself])
        for position in np.flatnonzero(member):
            if facts.spread[js[position]]:
                continue
            for stay in stays.get(int(js[position]), ()):
                at = (table.type_id[rows] == stay.gpu_type) & (table.gpus[rows] == stay.gpus)
                at &= facts.pair[rows] & group.usable[position]
                if at.any():
                    room = watts[rows[at]] + stay.price - bid[position][at]
                    room += prices.stay[js[position]]
                    for side in (0, 1):
                        pick = group.side[at] == side
                        np.minimum.at(least[1 - side], rows[at][pick], room[pick])
    own = facts.own
    most[1][own] = most[0][own]
    least[0][own] = least[1][own] = np.minimum(least[0][own], least[1][own])
    return most, least, asks


@dataclass(slots=True)
class _Asks:
    """For a class paired with itself: who offers the most, and the most anybody else offers."""

    first: dict[int, int] = field(default_factory=dict)
    second: dict[int, float] = field(default_factory=dict)
    price: dict[int, float] = field(default_factory=dict)
    """What the one who offers the most is asked instead."""
    each: dict[int, dict[int, float]] = field(default_factory=dict)
    """What certain jobs are asked instead, by the certificate."""


def _first_and_second(
    asks: _Asks, js: npt.NDArray[np.int64], rows: npt.NDArray[np.int64], comes: Array
) -> None:
    best = comes.argmax(axis=0)
    rest = comes.copy()
    rest[best, np.arange(comes.shape[1])] = -INF
    second = rest.max(axis=0, initial=-INF)
    for at, row in enumerate(rows):
        asks.first[int(row)] = int(js[best[at]])
        asks.second[int(row)] = float(second[at])


def _side_prices(
    facts: _Facts,
    prices: _Prices,
    option: Array,
    watts: Array,
    stays: dict[int, list[_Stay]],
    realm: int,
) -> tuple[Array, Array, _Asks]:
    """A price for each side of every pair; together no more than the option costs.

    In a class paired with itself the job that offers the most may be asked more than half, the
    others less: any two of them still pay no more than the option costs.
    """
    most, least, asks = _offers(facts, prices, stays, watts, realm)
    (va, vb), (la, lb) = most, least
    with np.errstate(invalid="ignore", divide="ignore"):
        both = np.isfinite(va) & np.isfinite(vb) & np.isfinite(option)
        spare = np.where(both, option - va - vb, 0.0)
        a = np.where(both, va + spare / 2, INF)
        b = np.where(both, vb + spare / 2, INF)
        if facts.spread.any():
            # Offers by throughput overshoot: then both sides pay less in proportion.
            tight = both & (spare < 0) & (va > 0) & (vb > 0) & (option > 0)
            a = np.where(tight, va * option / (va + vb), a)
            b = np.where(tight, vb * option / (va + vb), b)
        roomy = both & (spare > 0)
        if facts.spread.any():
            # Whoever offers a value pays it; what is left is for the one who offers by throughput.
            loose_a, loose_b = _loose(facts, realm)
            b = np.where(both & loose_a & ~loose_b, vb, b)
            a = np.where(both & loose_a & ~loose_b, option - vb, a)
            a = np.where(both & loose_b & ~loose_a, va, a)
            b = np.where(both & loose_b & ~loose_a, option - va, b)
            roomy &= loose_a == loose_b
            if stays:
                # Who stays takes what the other side is not asked: nobody pays beyond an offer.
                a = np.where(both & (spare >= 0), va, a)
                b = np.where(both & (spare >= 0), vb, b)
                la, lb = np.minimum(la, va), np.minimum(lb, vb)
        a = np.where(roomy, np.minimum(a, np.maximum(la, va)), a)
        b = np.where(roomy, np.minimum(option - a, np.maximum(lb, vb)), b)
        a = np.where(roomy, np.minimum(option - b, np.maximum(la, va)), a)
        for row, (first, second) in prices.sides.get(realm, {}).items():
            if not 0 <= row < len(a) or facts.own[row]:
                continue
            if both[row] and first is not None and second is not None:
                rest = min(0.0, option[row] - first - second)
                a[row], b[row] = first + rest / 2, second + rest / 2
        only_b = ~both & np.isfinite(vb)
        only_a = ~both & np.isfinite(va)
        hosts = np.bool_(any(facts.spread[j] for j in stays))
        b = np.where(only_b & hosts, vb, b)
        a = np.where(only_a & hosts, va, a)
        b = np.where(only_b & np.isfinite(lb), (vb + lb) / 2, b)
        a = np.where(only_a & np.isfinite(la), (va + la) / 2, a)
        for row, (first, second) in prices.sides.get(realm, {}).items():
            if not 0 <= row < len(a) or facts.own[row]:
                continue
            # Nobody comes to the other side: whoever stays there takes what this side is asked.
            if not hosts:
                continue
            if only_b[row] and second is not None:
                b[row] = second
            if only_a[row] and first is not None:
                a[row] = first
    own = facts.own & both
    half = np.minimum(option / 2, np.where(roomy, np.maximum(la, va), INF))
    a = np.where(own, half, a)
    b = np.where(own, half, b)
    for row in np.flatnonzero(own).tolist():
        second = asks.second[int(row)]
        if np.isfinite(second) and facts.spread[asks.first[int(row)]]:
            continue  # An offer by throughput is no value: both pay half.
        if second < a[row]:
            if np.isfinite(second):
                a[row] = b[row] = second
                asks.price[int(row)] = float(min(option[row] - second, va[row]))
            else:
                room = float(la[row])
                if not _another(facts, stays, int(row), asks.first[int(row)]):
                    asks.price[int(row)] = INF
                elif np.isfinite(room):
                    asks.price[int(row)] = (va[row] + room) / 2
                else:
                    asks.price[int(row)] = float(va[row]) if hosts else INF
    for row, (price, more) in prices.own.get(realm, {}).items():
        if 0 <= row < len(a) and own[row] and np.isfinite(asks.second[row]):
            # Any two pay no more than the option: the price twice, and all that is on top of it.
            over = max(0.0, 2 * price + sum(more.values()) - float(option[row]))
            a[row] = b[row] = price - over / 2
            asks.price.pop(row, None)
            asks.each[row] = {j: price - over / 2 + extra for j, extra in more.items()}
    return a, b, asks


def _another(facts: _Facts, stays: dict[int, list[_Stay]], row: int, job: int) -> bool:
    """Whether somebody else of the class could be host to a job."""
    jobs, table = facts.problem.jobs, facts.problem.table
    name = table.classes[int(table.class_a[row])]
    return any(j != job and jobs[j].job_class == name for j in stays)


def _loose(facts: _Facts, realm: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """For both sides of each option: whether a spread job could come to it."""
    found = np.zeros((2, len(facts.problem.table)), dtype=bool)
    for group in facts.by_class:
        member = (
            facts.spread[group.jobs] & facts.free[group.jobs] & facts.in_realm[realm][group.jobs]
        )
        usable = group.usable[member].any(axis=0)
        for side in (0, 1):
            found[side][group.rows[usable & (group.side == side)]] = True
    return found[0], found[1]


def _stay_prices(
    facts: _Facts,
    prices: _Prices,
    watts: Array,
    stays: dict[int, list[_Stay]],
    side_price: list[tuple[Array, Array, _Asks]],
) -> dict[int, float]:
    """The cheapest way to stay for each running job that can."""
    problem, table = facts.problem, facts.problem.table
    group_of = {int(j): (g, p) for g in facts.by_class for p, j in enumerate(g.jobs)}
    at_place: dict[frozenset[Gpu], list[int]] = {}
    for j, entries in stays.items():
        for stay in entries:
            at_place.setdefault(stay.place, []).append(j)
    result: dict[int, float] = {}
    for j, entries in stays.items():
        group, position = group_of[j]
        rows = group.rows
        ways: list[tuple[Array, Array]] = []
        for stay in entries:
            here = (table.type_id[rows] == stay.gpu_type) & (table.gpus[rows] == stay.gpus)
            here &= group.usable[position]
            index = np.flatnonzero(here)
            price = np.full(len(index), INF)
            alone = ~facts.pair[rows[index]]
            price[alone] = watts[rows[index]][alone]
            for realm, (a, b, asks) in enumerate(side_price):
                if not facts.in_realm[realm][j]:
                    continue
                other = np.where(group.side[index] == 0, b[rows[index]], a[rows[index]])
                for at in np.flatnonzero(facts.own[rows[index]]).tolist():
                    row = int(rows[index[at]])
                    for i, price_i in asks.each.get(row, {}).items():
                        other[at] = max(other[at], price_i if i != j else other[at])
                    if row in asks.price and asks.first[row] != j:
                        other[at] = max(other[at], asks.price[row])
                    elif row in asks.first and not np.isfinite(asks.second[row]):
                        other[at] = INF  # Nobody else comes.
                with np.errstate(invalid="ignore"):
                    ask = np.where(np.isfinite(other), watts[rows[index]] - other, INF)
                price = np.minimum(price, np.where(alone, INF, ask))
            price = price + stay.price
            for i in at_place[stay.place]:
                if i != j and _consent(problem, i, j):
                    _together(facts, prices, watts, stay, group, index, group_of[i], i, price)
            price = price + prices.quota_of[j] * stay.gpus
            price = price - facts.surplus[j] * group.throughput[index]
            ways.append((group.throughput[index], price))
        extra = facts.surplus[j] * facts.required[j]
        if problem.jobs[j].mode == "spread":
            result[j] = _choose(ways, facts.required[j]) + extra
        else:
            result[j] = float(ways[0][1].min(initial=INF)) + extra
    return result


def _consent(problem: Problem, i: int, j: int) -> bool:
    a, b = problem.jobs[i], problem.jobs[j]
    if a.shareable is False or b.shareable is False:
        return False
    return a.owner == b.owner or (a.shareable is True and b.shareable is True)


def _together(
    facts: _Facts,
    prices: _Prices,
    watts: Array,
    stay: _Stay,
    group: _Class,
    index: npt.NDArray[np.int64],
    partner: tuple[_Class, int],
    i: int,
    price: Array,
) -> None:
    """Both stay on the same GPUs: each pays half of what is left after both offers."""
    other, position = partner
    mine = {int(row): at for at, row in enumerate(other.rows)}
    j = stay.job
    table = facts.problem.table
    for at, side_index in enumerate(index.tolist()):
        row = int(group.rows[side_index])
        if not facts.pair[row] or row not in mine:
            continue
        column = mine[row]
        want = int(table.class_b[row] if group.side[side_index] == 0 else table.class_a[row])
        if table.classes[want] != facts.problem.jobs[i].job_class:
            continue
        if not other.usable[position, column]:
            continue
        offer_j = _offer(facts, prices, j, float(group.throughput[side_index]), stay.gpus)
        offer_i = _offer(facts, prices, i, float(other.throughput[column]), stay.gpus)
        tie = _tie_price(facts, prices, stay, row, i)
        if tie is not None:
            mine_w, other_w = tie
        else:
            mine_w, other_w = offer_j, offer_i
        left = watts[row] + stay.price - mine_w - other_w
        price[at] = min(price[at], mine_w + left / 2)


def _tie_price(
    facts: _Facts, prices: _Prices, stay: _Stay, row: int, i: int
) -> tuple[float, float] | None:
    """What the certificate asks of the two that go on sharing a GPU by an option, mine first."""
    if stay.gpus != 1 or not (facts.spread[i] or facts.spread[stay.job]):
        return None
    ((server, gpu),) = stay.place
    given = prices.ties.get((server, gpu, row))
    if given is None:
        return None
    table, j = facts.problem.table, stay.job
    first = (
        j < i
        if facts.own[row]
        else table.classes[int(table.class_a[row])] == (facts.problem.jobs[j].job_class)
    )
    return given if first else (given[1], given[0])


def _offer(facts: _Facts, prices: _Prices, j: int, throughput: float, gpus: int) -> float:
    """What a job that stays would pay for a side: its value less what it pays elsewhere."""
    if facts.spread[j]:
        value = prices.worth[j] * min(throughput, facts.required[j])
    else:
        value = prices.jobs[j] - prices.stay[j] - facts.surplus[j] * facts.required[j]
    return float(value - prices.quota_of[j] * gpus + facts.surplus[j] * throughput)


# --- spread jobs --------------------------------------------------------------------------------


def _cover(throughput: Array, price: Array, required: float, most: int) -> float:
    """The cheapest at most `most` slots that reach the requirement together (at least one)."""
    finite = np.isfinite(price)
    got, cost = _front(np.minimum(throughput[finite], required), price[finite], required)
    if not len(got):
        return INF
    reach, paid = got, cost
    best = _reached(reach, paid, required)
    for _ in range(most - 1):
        total = np.minimum((reach[:, None] + got[None, :]).ravel(), required)
        reach, paid = _front(total, (paid[:, None] + cost[None, :]).ravel(), required)
        found = _reached(reach, paid, required)
        if found >= best and cost.min() >= 0 and reach.max() >= required:
            break
        best = min(best, found)
    return best


def _choose(ways: list[tuple[Array, Array]], required: float) -> float:
    """The cheapest one way for each GPU that together reach the requirement."""
    reach, paid = np.zeros(1), np.zeros(1)
    for throughput, price in ways:
        finite = np.isfinite(price)
        if not finite.any():
            return INF
        total = np.minimum((reach[:, None] + throughput[finite][None, :]).ravel(), required)
        reach, paid = _front(total, (paid[:, None] + price[finite][None, :]).ravel(), required)
    return _reached(reach, paid, required)


def _reached(reach: Array, paid: Array, required: float) -> float:
    return float(paid[reach >= required * (1 - 1e-9) - 1e-9].min(initial=INF))


def _front(reach: Array, paid: Array, required: float) -> tuple[Array, Array]:
    """What is not worse in both; a long front is rounded up to a grid (still a relaxation)."""
    if len(reach) > _GRID and required > 0:
        step = required / _GRID
        reach = np.minimum(np.ceil(reach / step) * step, required)
    order = np.lexsort((paid, -reach))
    reach, paid = reach[order], paid[order]
    lowest = np.minimum.accumulate(paid)
    keep = np.ones(len(paid), dtype=bool)
    keep[1:] = paid[1:] < lowest[:-1]
    return reach[keep], paid[keep]
