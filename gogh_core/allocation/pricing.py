"""Pricing: which columns are worth adding at the present dual values, over all options and pairs.

For each class the offers of its groups for every side they could fill are one matrix; the most
anybody offers for a side is a column maximum; a pair is worth adding when the two best offers
exceed what the option costs. So all pairs are priced, but over classes, not over jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gogh_core.allocation.compiled import Group
from gogh_core.allocation.master import Master, Place
from gogh_core.allocation.prices import Prices
from gogh_core.allocation.stays import Stays, add_hosts, add_stays, stay_of_group
from gogh_core.allocation.ways import Way

__all__ = ["Pricer"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
INF = np.inf


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
        self.stays = [s for g in c.groups if (s := stay_of_group(self, g)) is not None]
        self.all_stays = Stays(self, self.stays)
        self.worst = 0.0
        self.frozen: set[int] = set()
        """Groups that are decided already and take no new columns."""
        self.host_gains: Floats | None = None
        self.keep_ways: dict[int, list[tuple[str, int, list[int], list[int], list[int]]]] = {}
        self.loose: dict[int, npt.NDArray[np.bool_]] = {}

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
                self._spread_bids(prices, option, (top, who, second), realm)
            for at, block in enumerate(self.blocks):
                shared = self.side_pair[block.sides]
                rows = c.side_row[block.sides]
                rest = option[rows] - top[self.other_side[block.sides]]
                # For a class with itself the best partner may be the group itself (if it has two).
                rc = np.where(
                    shared[None, :] & block.realm[realm][:, None], rest[None, :] - bids[at], INF
                )
                self._fix_own(block, rc, rows, option, bids[at], top, who, second)
                added += self._pick(block, rc, per_group, eps, best_rc, places, (realm, who))
                if self.stop():
                    return added
            added += add_hosts(self, prices, watts, top, who, second, realm, eps, best_rc)
        added += add_stays(self, prices, plain_watts, eps, best_rc)
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
            offered = np.isfinite(top[block.sides])  # nobody of the class may use the others
            who[block.sides] = np.where(offered, block.index[member][arg], -1)
            alone = block.count[member][arg] == 1
            if len(member) > 1:
                runner = np.partition(part, -2, axis=0)[-2]
            else:
                runner = np.full(part.shape[1], -INF)
            second[block.sides] = np.where(alone, runner, top[block.sides])
        return top, who, second

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
                mate = self.other_mate(block, row, group, realm)
            if mate >= 0 and not c.spread[c.groups[mate].first]:
                added += master.side(c.groups[mate], row, 1 - int(c.side_no[side]), realm)
            added += master.pair(row, realm, place)
        return added

    def other_mate(self, block: _Block, row: int, group: Group, realm: int) -> int:
        """Another group of the class that could take the other side of a class with itself."""
        at = self.pos[0][row] - block.sides.start
        for other, usable in enumerate(block.usable[:, at]):
            if usable and block.realm[realm][other] and block.groups[other] is not group:
                return block.groups[other].index
        return -1

    def _spread_bids(
        self, prices: Prices, option: Floats, tops: tuple[Floats, Ints, Floats], realm: int
    ) -> None:
        """Hook for spread jobs: `spread.py` raises the best offers by theirs."""
        from gogh_core.allocation.spread import raise_offers

        raise_offers(self, prices, option, tops, realm)

    def first_columns(self) -> None:
        """What the first LP has."""
        from gogh_core.allocation.start import first_columns

        first_columns(self)
