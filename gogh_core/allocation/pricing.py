"""Pricing: which columns are worth adding at the present dual values, over all options and pairs.

For each class the offers of its groups for every side they could fill are one matrix; the most
anybody offers for a side is a column maximum; a pair is worth adding when the two best offers
exceed what the option costs. So all pairs are priced, but over classes, not over jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.compiled import Group
from gogh_core.allocation.master import Master, Place
from gogh_core.allocation.ways import Way

__all__ = ["Pricer", "Prices"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
INF = np.inf


@dataclass(slots=True)
class Prices:
    """Dual values by what they are the price of; all but `groups` are >= 0."""

    groups: Floats
    gpus: Floats
    room: Floats
    servers: Floats
    occupied: Floats
    cells: Floats
    quotas: Floats
    moves: float
    power: float
    slots: dict[tuple[int, int, int], float] = field(default_factory=dict)
    ties: dict[tuple[Any, ...], float] = field(default_factory=dict)
    selves: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """(row, realm, group): price of filling a class with itself."""
    counts: dict[int, float] = field(default_factory=dict)
    """Price of using an option whose count is branched on; of either sign."""
    ways: dict[tuple[int, Way], float] = field(default_factory=dict)
    """Price of a group's way that is branched on; of either sign."""

    @classmethod
    def of(cls, master: Master, duals: Floats) -> Prices:
        """From the duals of the master's rows."""
        c = master.c
        occupied = np.zeros(len(c.kinds))
        for k, row in master.occ_rows.items():
            occupied[k] = -duals[row]
        prices = cls(
            duals[master.job_rows],
            -duals[master.cap_rows] if master.cap_rows else np.zeros(0),
            -duals[master.room_rows] if master.room_rows else np.zeros(0),
            -duals[master.use_rows] if master.use_rows else np.zeros(0),
            occupied,
            -duals[master.cell_rows] if master.cell_rows else np.zeros(0),
            -duals[list(master.quota_rows.values())] if master.quota_rows else np.zeros(0),
            -float(duals[master.moves_row]) if master.moves_row >= 0 else 0.0,
            -float(duals[master.power_row]) if master.power_row >= 0 else 0.0,
        )
        for option_row, (row, _) in master.count_rows.items():
            prices.counts[option_row] = -float(duals[row])
        for way, (_, row, _) in master.way_rows.items():
            prices.ways[way] = -float(duals[row])
        for key, row in master.program.row_of.items():
            if key[0] == "slot" and key[3] >= 0:
                prices.slots[key[1], key[2], key[3]] = float(duals[row])
            elif key[0] == "tie":
                prices.ties[key[1:]] = float(duals[row])
            elif key[0] == "self" and duals[row] < 0:
                prices.selves[key[1], key[2], key[3]] = -float(duals[row])
        return prices


@dataclass(slots=True)
class _Block:
    """A class: its gang groups and the sides they could fill."""

    cls: int
    groups: list[Group]
    index: Ints
    usable: npt.NDArray[np.bool_]
    sides: slice
    realm: npt.NDArray[np.bool_]
    """[realms, groups]"""
    once: Floats
    running: npt.NDArray[np.bool_]
    free: npt.NDArray[np.bool_]
    owner: Ints
    surplus: Floats
    required: Floats
    count: Ints


@dataclass(slots=True)
class Stay:
    """Sides a running gang could fill where it is."""

    group: Group
    alone: Ints
    shared: Ints


class Pricer:
    """Prices columns of one master; what does not change is worked out once."""

    def __init__(self, master: Master, stop: Callable[[], bool] | None = None) -> None:
        """`stop` says when the time is up: what is being priced is left as it is."""
        self.master = master
        self.stop = stop or (lambda: False)
        self.c = c = master.c
        self.blocks = self._blocks()
        self.block_of = {block.cls: at for at, block in enumerate(self.blocks)}
        self.spread = [g for g in c.groups if c.spread[g.first]]
        rows = c.side_row
        self.side_pair = c.pair[rows]
        self.side_gpus = c.table.gpus[rows]
        self.side_type = c.table.type_id[rows]
        self.pos = np.full((2, len(c.table)), -1, dtype=np.int64)
        self.pos[0][rows[c.side_no == 0]] = np.flatnonzero(c.side_no == 0)
        self.pos[1][rows[c.side_no == 1]] = np.flatnonzero(c.side_no == 1)
        self.pos[1][c.own] = self.pos[0][c.own]
        self.pairs = np.flatnonzero(c.pair)
        other = np.where(c.side_no == 0, self.pos[1][rows], self.pos[0][rows])
        self.other_side = np.where(self.side_pair, other, 0)
        factor = int(c.table.gpus.max(initial=0)) + 1
        key = c.table.type_id * factor + c.table.gpus
        self.place_keys, self.place_of = np.unique(key, return_inverse=True)
        self.place_what = [(int(k) // factor, int(k) % factor) for k in self.place_keys]
        self.stays = [s for g in c.groups if (s := self._stay(g)) is not None]
        self.worst = 0.0
        self.frozen: set[int] = set()
        """Groups that are decided already and take no new columns."""

    def _blocks(self) -> list[_Block]:
        c = self.c
        by_class: dict[int, list[Group]] = {}
        for group in c.groups:
            if not c.spread[group.first]:
                by_class.setdefault(group.cls, []).append(group)
        blocks = []
        for cls, groups in sorted(by_class.items()):
            first = np.array([g.first for g in groups])
            realm = np.array(
                [[r in c.job_realms[j] for j in first] for r in range(len(c.realms))], dtype=bool
            )
            blocks.append(
                _Block(
                    cls,
                    groups,
                    np.array([g.index for g in groups]),
                    np.array([g.usable for g in groups]),
                    c.sides(cls),
                    realm,
                    c.move_w[first],
                    c.running[first],
                    c.free[first],
                    c.owner[first],
                    c.surplus[first],
                    c.required[first],
                    np.array([g.count for g in groups]),
                )
            )
        return blocks

    def _stay(self, group: Group) -> Stay | None:
        c, j = self.c, group.first
        place = c.stay_of(j) if c.running[j] and not c.spread[j] else None
        if place is None:
            return None
        here = c.sides(group.cls)
        rows = c.side_row[here]
        fit = group.usable & (c.table.type_id[rows] == place[0]) & (c.table.gpus[rows] == place[1])
        index = np.flatnonzero(fit) + here.start
        shared = self.side_pair[index]
        return Stay(group, index[~shared], index[shared])

    # --- places ----------------------------------------------------------------------------

    def place_prices(self, prices: Prices) -> tuple[Floats, list[Place | None]]:
        """For each (type, GPUs): the cheapest GPUs at these prices and where they are."""
        c = self.c
        cost = np.full(len(self.place_what), INF)
        places: list[Place | None] = [None] * len(self.place_what)
        for at, (t, m) in enumerate(self.place_what):
            kinds = [kind for kind in c.kinds if kind.gpu_type == t]
            if m <= c.largest[t]:
                for kind in kinds:
                    if kind.size >= m and m * prices.gpus[kind.index] < cost[at]:
                        cost[at] = m * prices.gpus[kind.index]
                        places[at] = (kind.index,)
            else:
                cost[at], places[at] = self._whole(kinds, m, prices)
        return cost, places

    def _whole(self, kinds: list[Any], m: int, prices: Prices) -> tuple[float, Place | None]:
        best: dict[int, tuple[float, Place]] = {0: (0.0, ())}
        power = 1 + prices.power
        for kind in kinds:
            use = power * kind.power_w + kind.other_w + prices.servers[kind.index]
            step = dict(best)
            for total, (paid, place) in best.items():
                for number in range(1, len(kind.servers) + 1):
                    reached = total + number * kind.size
                    if reached > m:
                        break
                    price = paid + number * use
                    if reached not in step or price < step[reached][0]:
                        step[reached] = (price, place + (kind.index,) * number)
            best = step
        return best.get(m, (INF, None))

    def option_prices(self, prices: Prices, place_cost: Floats) -> Floats:
        """What each option costs on new GPUs."""
        option: Floats = (1 + prices.power) * self.c.net_w + place_cost[self.place_of]
        for row, price in prices.counts.items():
            option[row] += price
        return option

    # --- gangs -----------------------------------------------------------------------------

    def offers(self, block: _Block, prices: Prices) -> Floats:
        """[groups, sides]: what each group would pay for a side on new GPUs, -inf if it cannot."""
        c = self.c
        value = prices.groups[block.index] - block.once - prices.moves * block.running
        value = value - block.surplus * block.required
        bid = np.broadcast_to(value[:, None], block.usable.shape)
        if len(prices.quotas):
            price = np.where(block.owner >= 0, prices.quotas[block.owner], 0.0)
            if price.any():
                bid = bid - price[:, None] * self.side_gpus[block.sides][None, :]
        if block.surplus.any():
            bid = bid + block.surplus[:, None] * c.side_got[block.sides][None, :]
        for (group, way), extra in prices.ways.items():
            at = int(np.searchsorted(block.index, group))
            if extra and at < len(block.index) and block.index[at] == group:
                bid = np.array(bid)
                bid[at] -= self.way_prices(way, extra, block.sides)
        free = block.free
        if self.frozen:
            free = free & ~np.isin(block.index, list(self.frozen))
        return np.where(block.usable & free[:, None], bid, -INF)

    def way_prices(self, way: Way, price: float, sides: slice) -> Floats:
        """What a way that is branched on adds to each side on new GPUs."""
        if way[0] == "type":
            return np.asarray(price * (self.side_type[sides] == way[1]), dtype=float)
        if way[0] == "side":
            mine = self.c.side_row[sides] == way[1]
            here = mine & (self.c.own[way[1]] | (self.c.side_no[sides] == way[2]))
            return np.asarray(price * here, dtype=float)
        return np.zeros(sides.stop - sides.start)

    def add_columns(self, prices: Prices, per_group: int = 2, eps: float = 1e-7) -> int:
        """Add the columns with the most negative reduced costs; the count of new ones."""
        c = self.c
        place_cost, places = self.place_prices(prices)
        watts = (1 + prices.power) * c.net_w
        option = self.option_prices(prices, place_cost)
        added = 0
        bids = [self.offers(block, prices) for block in self.blocks]
        self.worst = 0.0
        best_rc = np.zeros(len(c.groups))
        for at, block in enumerate(self.blocks):
            alone = ~self.side_pair[block.sides]
            rc = np.where(alone[None, :], option[c.side_row[block.sides]][None, :] - bids[at], INF)
            added += self._pick(block, rc, per_group, eps, best_rc, places, None)
            if self.stop():
                return added
        plain_option, plain_watts, plain_bids = option, watts, bids
        for realm in range(len(c.realms)):
            mine = {key: price for key, price in prices.selves.items() if key[1] == realm}
            option, watts, bids = self._with_selves(mine, plain_option, plain_watts, plain_bids)
            top, who, second = self._tops(bids, realm)
            if self.spread:
                self._spread_bids(prices, option, top, who, realm)
            take = self._partner_offer(top, second, who)
            for at, block in enumerate(self.blocks):
                shared = self.side_pair[block.sides]
                rows = c.side_row[block.sides]
                rest = option[rows] - take[self.other_side[block.sides]]
                # For a class with itself the best partner may be the group itself (if it has two).
                rc = np.where(
                    shared[None, :] & block.realm[realm][:, None], rest[None, :] - bids[at], INF
                )
                self._fix_own(block, rc, rows, option, bids[at], top, who, second)
                added += self._pick(block, rc, per_group, eps, best_rc, places, (realm, who))
                if self.stop():
                    return added
            added += self._hosts(prices, watts, take, who, second, realm, eps, best_rc)
        added += self._stays(prices, plain_watts, eps, best_rc)
        counts = np.array([g.count for g in c.groups])
        self.worst = float((counts * best_rc).sum())
        return added

    def _with_selves(
        self,
        mine: dict[tuple[int, int, int], float],
        option: Floats,
        watts: Floats,
        bids: list[Floats],
    ) -> tuple[Floats, Floats, list[Floats]]:
        """Prices with the rows that keep jobs from being their own partners."""
        if not mine:
            return option, watts, bids
        option, watts, bids = option.copy(), watts.copy(), list(bids)
        copied: set[int] = set()
        for (row, _, group), price in mine.items():
            option[row] -= price
            watts[row] -= price
            if self.c.spread[self.c.groups[group].first]:
                continue
            at = self.block_of[self.c.groups[group].cls]
            if at not in copied:
                bids[at] = bids[at].copy()
                copied.add(at)
            block = self.blocks[at]
            line = int(np.searchsorted(block.index, group))
            bids[at][line, self.pos[0][row] - block.sides.start] -= price
        return option, watts, bids

    def _tops(self, bids: list[Floats], realm: int) -> tuple[Floats, Ints, Floats]:
        """For each side: the best offer, whose it is, and the best offer of anybody else."""
        n = len(self.c.side_row)
        top, second = np.full(n, -INF), np.full(n, -INF)
        who = np.full(n, -1, dtype=np.int64)
        for block, bid in zip(self.blocks, bids, strict=True):
            member = np.flatnonzero(block.realm[realm])
            if not len(member):
                continue
            part = bid[member]
            arg = part.argmax(axis=0)
            top[block.sides] = part[arg, np.arange(part.shape[1])]
            who[block.sides] = block.index[member][arg]
            alone = block.count[member][arg] == 1
            if len(member) > 1:
                runner = np.partition(part, -2, axis=0)[-2]
            else:
                runner = np.full(part.shape[1], -INF)
            second[block.sides] = np.where(alone, runner, top[block.sides])
        return top, who, second

    def _partner_offer(self, top: Floats, second: Floats, who: Ints) -> Floats:
        return top

    def _fix_own(
        self,
        block: _Block,
        rc: Floats,
        rows: Ints,
        option: Floats,
        bid: Floats,
        top: Floats,
        who: Ints,
        second: Floats,
    ) -> None:
        own = np.flatnonzero(self.c.own[rows])
        if not len(own):
            return
        at = own + block.sides.start
        self_best = who[at][None, :] == block.index[:, None]
        partner = np.where(self_best, second[at][None, :], top[at][None, :])
        with np.errstate(invalid="ignore"):
            value = option[rows[own]][None, :] - partner - bid[:, own]
        rc[:, own] = np.where(np.isfinite(rc[:, own]), value, INF)

    def _pick(
        self,
        block: _Block,
        rc: Floats,
        per_group: int,
        eps: float,
        best_rc: Floats,
        places: list[Place | None],
        pair: tuple[int, Ints] | None,
    ) -> int:
        c, master = self.c, self.master
        if not rc.shape[1]:
            return 0
        number = min(per_group, rc.shape[1])
        if number < rc.shape[1]:
            picks = np.argpartition(rc, number - 1, axis=1)[:, :number]
        else:
            picks = np.broadcast_to(np.arange(rc.shape[1]), rc.shape)
        values = np.take_along_axis(rc, picks, axis=1)
        share = 1.0 if pair is None else 0.5
        least = values.min(axis=1, initial=INF) * share
        best_rc[block.index] = np.minimum(best_rc[block.index], least)
        added = 0
        for g, p in zip(*np.nonzero(values < -eps), strict=True):
            side = int(picks[g, p]) + block.sides.start
            row = int(c.side_row[side])
            place = places[self.place_of[row]]
            if place is None:
                continue
            group = block.groups[g]
            if pair is None:
                added += master.alone(group, row, place)
                continue
            realm, who = pair
            added += master.side(group, row, int(c.side_no[side]), realm)
            mate = int(who[self.other_side[side]])
            if c.own[row] and mate == group.index and group.count == 1:
                mate = self._other_mate(block, row, group, realm)
            if mate >= 0 and not c.spread[c.groups[mate].first]:
                added += master.side(c.groups[mate], row, 1 - int(c.side_no[side]), realm)
            added += master.pair(row, realm, place)
        return added

    def _other_mate(self, block: _Block, row: int, group: Group, realm: int) -> int:
        """Another group of the class that could take the other side of a class with itself."""
        at = self.pos[0][row] - block.sides.start
        for other, usable in enumerate(block.usable[:, at]):
            if usable and block.realm[realm][other] and block.groups[other] is not group:
                return block.groups[other].index
        return -1

    def _loc(self, prices: Prices, j: int) -> float:
        """What the GPUs where a job is cost it."""
        c = self.c
        place = c.problem.jobs[j].place
        servers = sorted({server for server, _ in place})
        kind = c.kinds[c.kind_of[servers[0]]]
        if len(place) > c.largest[kind.gpu_type]:
            power = 1 + prices.power
            whole = sum(
                power * c.kinds[c.kind_of[s]].power_w
                + c.kinds[c.kind_of[s]].other_w
                + prices.servers[c.kind_of[s]]
                for s in servers
            )
            return float(whole)
        return float(
            len(place) * prices.gpus[kind.index] + sum(prices.cells[x] for x in c.cells_of[j])
        )

    def _stay_value(self, prices: Prices, group: Group, sides: Ints) -> Floats:
        c, j = self.c, group.first
        value = prices.groups[group.index] - c.surplus[j] * c.required[j]
        value -= prices.ways.get((group.index, ("stay",)), 0.0)
        value = value + c.surplus[j] * c.side_got[sides]
        if c.owner[j] >= 0:
            value = value - prices.quotas[c.owner[j]] * self.side_gpus[sides]
        return np.asarray(value, dtype=float)

    def _stays(self, prices: Prices, watts: Floats, eps: float, best_rc: Floats) -> int:
        c, added = self.c, 0
        for stay in self.stays:
            if not len(stay.alone):
                continue
            rows = c.side_row[stay.alone]
            value = self._stay_value(prices, stay.group, stay.alone)
            rc = watts[rows] + self._loc(prices, stay.group.first) - value
            best = int(np.argmin(rc))
            best_rc[stay.group.index] = min(best_rc[stay.group.index], float(rc[best]))
            if rc[best] < -eps:
                added += self.master.stay(stay.group, int(rows[best]))
        return added

    def _hosts(
        self,
        prices: Prices,
        watts: Floats,
        take: Floats,
        who: Ints,
        second: Floats,
        realm: int,
        eps: float,
        best_rc: Floats,
    ) -> int:
        c, added = self.c, 0
        for stay in self.stays:
            j = stay.group.first
            if realm not in c.job_realms[j] or not len(stay.shared):
                continue
            rows = c.side_row[stay.shared]
            value = self._stay_value(prices, stay.group, stay.shared)
            other = self.other_side[stay.shared]
            # In a class with itself the best offer may be the host's own: then the next one.
            itself = who[other] == stay.group.index
            offer = np.where(itself, second[other], take[other])
            rc = watts[rows] + self._loc(prices, j) - value - offer
            best = int(np.argmin(rc))
            if rc[best] >= -eps:
                continue
            side, row = int(stay.shared[best]), int(rows[best])
            mate = int(who[self.other_side[side]])
            if mate == stay.group.index:
                block = self.blocks[self.block_of[stay.group.cls]]
                mate = self._other_mate(block, row, stay.group, realm)
            best_rc[stay.group.index] = min(best_rc[stay.group.index], float(rc[best]) / 2)
            added += self.master.host(stay.group, row, int(c.side_no[side]), realm)
            if mate >= 0 and not c.spread[c.groups[mate].first]:
                added += self.master.side(c.groups[mate], row, 1 - int(c.side_no[side]), realm)
        return added

    def _spread_bids(
        self, prices: Prices, option: Floats, top: Floats, who: Ints, realm: int
    ) -> None:
        """Hook for spread jobs: `spread.py` raises the best offers by theirs."""
        from gogh_core.allocation.spread import raise_offers

        raise_offers(self, prices, option, top, who, realm)

    # --- the first columns -----------------------------------------------------------------

    def first_columns(self) -> None:
        """Every group alone on each type it can use, and everybody where they are."""
        c, master = self.c, self.master
        zero = Prices(
            np.zeros(len(c.groups)),
            np.array([kind.use_w / kind.size for kind in c.kinds]),
            np.zeros(len(c.kinds)),
            np.zeros(len(c.kinds)),
            np.zeros(len(c.kinds)),
            np.zeros(len(c.cells)),
            np.zeros(len(c.owners)),
            0.0,
            0.0,
        )
        place_cost, places = self.place_prices(zero)
        option = c.net_w + place_cost[self.place_of]
        for block in self.blocks:
            if self.stop():
                break
            rows = c.side_row[block.sides]
            alone = ~self.side_pair[block.sides] & np.isfinite(option[rows])
            for at, group in enumerate(block.groups):
                if not block.free[at]:
                    continue
                index = np.flatnonzero(group.usable & alone)
                seen: set[int] = set()
                for s in index[np.argsort(option[rows[index]], kind="stable")]:
                    row = int(rows[s])
                    t = int(c.table.type_id[row])
                    place = places[self.place_of[row]]
                    if t not in seen and place is not None:
                        seen.add(t)
                        master.alone(group, row, place)
        for stay in self.stays:
            for side in stay.alone:
                master.stay(stay.group, int(c.side_row[side]))
        self._both_columns()
        if self.spread:
            from gogh_core.allocation.spread import first_bundles

            first_bundles(self)

    def _both_columns(self) -> None:
        """Two gangs that share now and may go on sharing."""
        c = self.c
        by_place: dict[Any, list[Stay]] = {}
        for stay in self.stays:
            by_place.setdefault(c.problem.jobs[stay.group.first].place, []).append(stay)
        for stays in by_place.values():
            if len(stays) != 2:
                continue
            i, j = stays[0].group.first, stays[1].group.first
            if not c.consent(i, j):
                continue
            theirs = set(stays[1].shared.tolist())
            for side in stays[0].shared:
                other = int(self.other_side[side])
                if other in theirs:
                    no = int(c.side_no[side])
                    self.master.both(i, j, int(c.side_row[side]), (no, int(c.side_no[other])))
