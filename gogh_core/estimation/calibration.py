"""What second opinions and networks are worth on one catalog, and how wide intervals must be.

`calibrate` plays episodes inside the catalog (jobs and families left out) and finds how far to go
to the second opinions, how far the networks' corrections may be followed, how wide intervals must
be, and how far a wide estimate should lean to the low side; all shrink to what is usual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gogh_core.estimation.beliefs import (
    AGGRESSIVE,
    ALONE,
    RATIO_HIGH,
    RATIO_LOW,
    SENSITIVE,
    Beliefs,
    Hyper,
    believe,
)
from gogh_core.estimation.catalog import Catalog
from gogh_core.estimation.correction import (
    GROUPS,
    Calibration,
    Group,
    by_odds,
    groups_of,
    usual_blend,
    usual_second,
)
from gogh_core.estimation.episodes import LEAN_TOP, Episode, Truth
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.networks import run, tokens

if TYPE_CHECKING:
    from torch import nn

__all__ = ["calibrate", "inner_episodes"]

Array = np.ndarray[Any, Any]
_BLENDS = (0.0, 0.25, 0.5, 0.75, 1.0)
_LEANS = (0.0, 0.25, 0.5, 0.75, 1.0)
# Episodes that the prior is worth, and how many are played at most.
_PRIOR_WEIGHT, _MOST = 6.0, 48
# How much it takes to leave a usual weight: families are few.
_PULL = 10.0
_COVER = 0.80
# What the spread of ratios is usually worth, without and with siblings: found on synthetic worlds.
_RATIO_WIDTH = (0.92, 0.61)
_WIDE_SD = 0.7


def inner_episodes(
    catalog: Catalog,
    jobs: JobSet,
    *,
    seed: int,
    most: int = _MOST,
    targets: Array | None = None,
) -> list[Episode]:
    """Jobs left out, and families left out, each before and after a measurement or two."""
    rng = np.random.default_rng(seed)
    cells = catalog.cells
    alone = np.flatnonzero(cells.partner < 0)
    known = np.unique(cells.job[alone])
    asked = known if targets is None else np.intersect1d(known, targets)
    families = jobs.families[: len(catalog.names)]
    found: list[Episode] = []
    per = max(1, most // 4)
    for split in ("job", "family"):
        for target in rng.permutation(asked)[:per]:
            hidden = [int(target)]
            if split == "family":
                hidden = [int(i) for i in np.flatnonzero(families == families[target])]
            if len(hidden) == len(known):
                continue
            found.append(Episode(int(target), tuple(hidden), "none"))
            own = alone[cells.job[alone] == target]
            if len(own) < 2:
                continue
            cell = int(rng.choice(own))
            shown, stage = [cell], "alone"
            mates = np.flatnonzero(
                (cells.job == target)
                & (cells.partner >= 0)
                & (cells.column == cells.column[cell])
                & ~np.isin(cells.partner, hidden)
            )
            mate = -1
            if len(mates) and rng.random() < 0.5:
                pick = int(rng.choice(mates))
                mate, stage = int(cells.partner[pick]), "pair"
                back = catalog.find(
                    np.array([mate]), np.array([target]), np.array([cells.column[cell]])
                )
                shown += [pick] + [int(i) for i in back if i >= 0]
            found.append(
                Episode(
                    int(target), tuple(hidden), "pair" if stage == "pair" else "alone",
                    tuple(shown), int(cells.column[cell]), mate,
                )
            )  # fmt: skip
    return found


def _whole_family(episode: Episode, truth: Truth) -> list[Episode]:
    """Before any measurement one look at the catalog serves all jobs that are hidden together."""
    if episode.stage != "none":
        return [episode]
    measured = np.asarray((~np.isnan(truth.alone)).any(axis=1))
    return [replace(episode, target=job) for job in episode.hidden if measured[job]]


@dataclass(frozen=True)
class _Played:
    """One inner episode: what the process believed, what networks would change, and the truth."""

    group: Group
    hidden: tuple[int, ...]
    open: Array
    real: Array
    mean: Array
    sd: Array
    second: Array
    """From the process to the second opinion, [3, columns]."""
    against_facts: float
    shift: Array
    factor: Array
    own: tuple[Array, Array, Array]
    """Real ratio, its sum without s and a of the target, and spread beside, of open pairs."""
    other: tuple[Array, Array, Array]
    own_column: Array
    other_column: Array
    best: float

    def moved(self, weights: Sequence[float]) -> _Played:
        """As if the process had listened to the second opinion that much."""
        heard = np.array(weights)
        heard[ALONE] = by_odds(weights[ALONE], np.array(self.against_facts))
        by = heard[:, None] * self.second
        own = (self.own[0], self.own[1] + by[1][self.own_column], self.own[2])
        other = (self.other[0], self.other[1] + by[2][self.other_column], self.other[2])
        return replace(self, mean=self.mean + by[0], own=own, other=other)

    def shape_error(self) -> float:
        """Of the open cells over the best; before any measurement, with the level given."""
        said = self.mean
        if not self.group[0]:
            said = said + np.nanmean((self.real - said)[self.open])
        return float((np.abs(np.exp(said) - np.exp(self.real))[self.open]).mean() / self.best)

    def ratio_error(self, quantity: int) -> float:
        """Mean error of the open pairs' ratios."""
        side = self.own if quantity == SENSITIVE else self.other
        return float(np.abs(side[0] - np.clip(side[1], RATIO_LOW, RATIO_HIGH)).mean())


def _play(
    catalog: Catalog,
    jobs: JobSet,
    beliefs: Beliefs,
    networks: Mapping[str, nn.Module],
    episode: Episode,
    truth: Truth,
) -> _Played:
    target = episode.target
    measured, sibling = groups_of(beliefs, jobs)
    group = (bool(measured[target]), bool(sibling[target]))
    name = "P2" if group[0] else "P1"
    count = beliefs.mean.shape[2]
    shift = factor = np.zeros((3, count))
    if name in networks:
        rows = tokens(beliefs, jobs, np.array([target]))
        a, b = run(networks[name], rows)
        shift, factor = a[:, 0], b[:, 0]
    real = truth.alone[target]
    open_cells = ~np.isnan(real)
    if episode.stage != "none":
        open_cells = open_cells & (np.arange(count) != episode.column)
    size = len(catalog.names)
    mates = np.setdiff1d(np.arange(size), np.array(episode.hidden))
    sides = []
    for swap in (False, True):
        ratio = np.exp(truth.ratio[mates, target] if swap else truth.ratio[target, mates])
        good = ~np.isnan(ratio)
        if episode.stage == "pair":
            good &= ~((mates == episode.partner)[:, None] & (np.arange(count) == episode.column))
        which, column = np.nonzero(good)
        mate = mates[which]
        own = np.full(len(mate), target)
        a, b = (mate, own) if swap else (own, mate)
        said, sd = beliefs.ratio_of(a, b, column, clip=False)
        part = beliefs.variance[AGGRESSIVE if swap else SENSITIVE][target, column]
        sides.append((ratio[which, column], said, np.sqrt(np.maximum(sd**2 - part, 1e-6)), column))
    return _Played(
        group, episode.hidden, open_cells, real, beliefs.mean[ALONE][target],
        np.sqrt(beliefs.variance[:, target]), beliefs.second[:, target] - beliefs.mean[:, target],
        float(beliefs.against_facts[target]),
        shift, factor, sides[0][:3], sides[1][:3],
        sides[0][3], sides[1][3], float(np.nanmax(np.exp(real))),
    )  # fmt: skip


def calibrate(
    catalog: Catalog,
    jobs: JobSet,
    hyper: Hyper,
    networks: Mapping[str, nn.Module],
    *,
    seed: int = 0,
    most: int = _MOST,
) -> Calibration:
    """Blend, widths and lean for each group, from episodes inside the catalog."""
    if len(np.unique(catalog.cells.job)) < 4 or len(catalog.names) > 400:
        return Calibration()
    truth = Truth.of(catalog)
    inside = JobSet(catalog.names, catalog.jobs, catalog.units, jobs.use_facts)
    played, looked = [], set()
    for first in inner_episodes(catalog, inside, seed=seed, most=most):
        if (first.hidden, first.revealed) in looked:
            continue
        looked.add((first.hidden, first.revealed))
        beliefs = believe(
            first.view(catalog), inside, catalog.columns, doubt=np.array(first.hidden), hyper=hyper
        )
        played += [
            _play(catalog, inside, beliefs, networks, episode, truth)
            for episode in _whole_family(first, truth)
        ]
    second: dict[Group, tuple[float, float, float]] = {}
    blend: dict[Group, tuple[float, float, float]] = {}
    alone: dict[Group, float] = {}
    ratio: dict[Group, float] = {}
    lean: dict[Group, float] = {}
    for group in GROUPS:
        mine = [p for p in played if p.group == group]
        second[group] = _second(mine, usual_second(inside, group), alone=group != (True, False))
        mine = [p.moved(second[group]) for p in mine]
        blend[group] = _blend(mine, usual_blend(group))
        families = None if group[1] else len({p.hidden for p in mine})
        alone[group] = _alone_width(mine, blend[group][0], families)
        ratio[group] = _ratio_width(mine, blend[group], _RATIO_WIDTH[group[1]])
        # The level of a measured job is known: nothing to lean for.
        lean[group] = 0.0 if group[0] else _lean(mine, blend[group][0], alone[group])
    return Calibration(second, blend, alone, ratio, lean)


def _second(
    played: list[_Played], usual: tuple[float, float, float], *, alone: bool
) -> tuple[float, float, float]:
    """Weights that miss least inside the catalog, held to the usual ones: families are few.

    Unless `alone`, that of speed alone stays the usual one: a measured job of an unseen family has
    odds of its own, and six other families tell less than nothing.
    """
    out = list(usual)
    for quantity in (ALONE, SENSITIVE, AGGRESSIVE)[0 if alone else 1 :]:
        some = [
            p for p in played
            if (p.open.any() if quantity == ALONE else len((p.own, p.other)[quantity - 1][0]))
        ]  # fmt: skip
        if not some:
            continue
        losses = np.array([[_missed(p, quantity, w) for p in some] for w in _BLENDS])
        out[quantity] = _held_to(usual[quantity], losses)
    return out[0], out[1], out[2]


def _missed(played: _Played, quantity: int, weight: float) -> float:
    moved = played.moved([weight if i == quantity else 0.0 for i in range(3)])
    return moved.shape_error() if quantity == ALONE else moved.ratio_error(quantity)


def _choose(
    options: tuple[float, ...], losses: list[Array], default: float, *, sure: float = 1.0
) -> float:
    """The option with the smallest mean loss; the first unless another wins by `sure` errors."""
    if not losses or not len(losses[0]):
        return default
    table = np.array(losses)
    mean = table.mean(axis=1)
    safe = mean[0]
    # Shrink to the first option (no correction): gains count less with few episodes.
    trust = table.shape[1] / (table.shape[1] + _PRIOR_WEIGHT)
    spread = (table - table[0]).std(axis=1) / np.sqrt(table.shape[1])
    gain = (safe - mean) * trust - sure * spread
    return options[int(np.argmax(gain))]


def _held_to(usual: float, losses: Array) -> float:
    """The weight of `_BLENDS` with the smallest loss [weights, episodes], held to the usual one."""
    if not losses.shape[1]:
        return usual
    mean = losses.mean(axis=1)
    pull = _PULL * (np.array(_BLENDS) - usual) ** 2 / losses.shape[1]
    return _BLENDS[int(np.argmin(mean + pull * mean.min()))]


def _blend(played: list[_Played], usual: tuple[float, float, float]) -> tuple[float, float, float]:
    """How far to follow the networks in each quantity."""
    by_hidden: dict[tuple[int, ...], list[list[float]]] = {}
    for p in (p for p in played if p.open.any()):
        gaps = [np.abs(p.real - p.mean - b * p.shift[0] * p.sd[0])[p.open].mean() for b in _BLENDS]
        by_hidden.setdefault(p.hidden, []).append(gaps)
    # The level of jobs that were hidden together is one draw.
    alone = np.array([np.mean(gaps, axis=0) for gaps in by_hidden.values()])
    out = [_held_to(usual[ALONE], alone.reshape(-1, len(_BLENDS)).T)]
    for quantity in (SENSITIVE, AGGRESSIVE):
        losses = []
        for b in _BLENDS:
            row = []
            for p in played:
                side, column = (p.own, p.own_column) if quantity == 1 else (p.other, p.other_column)
                if len(column):
                    said = side[1] + b * (p.shift[quantity] * p.sd[quantity])[column]
                    row.append(np.abs(side[0] - said).mean())
            losses.append(row)
        out.append(_held_to(usual[quantity], np.array(losses)))
    return out[0], out[1], out[2]


def _quantile(scores: list[Array], draws: int | None = None, usual: float = 1.0) -> float:
    """How many standard deviations hold 80 %, over those of a normal; episodes weigh the same.

    Held to the usual width. With few independent `draws` the next one falls outside more often
    than those at hand did: of n, the place 0.8 (n + 1) holds 80 % of the next.
    """
    parts = [s for s in scores if len(s)]
    if not parts:
        return usual
    values = np.concatenate(parts)
    weights = np.concatenate([np.full(len(s), 1 / len(s)) for s in parts])
    order = np.argsort(values)
    values, weights = values[order], weights[order]
    total = np.cumsum(weights) / weights.sum()
    cover = _COVER * (1 + 1 / draws) if draws else _COVER
    found = float(values[min(int(np.searchsorted(total, cover)), len(values) - 1)]) / 1.2816
    trust = len(parts) / (len(parts) + _PRIOR_WEIGHT)
    width = trust * np.log(max(found, 0.05)) + (1 - trust) * np.log(usual)
    return float(np.clip(np.exp(width), 0.4, 2.5))


def _alone_width(played: list[_Played], blend: float, draws: int | None) -> float:
    return _quantile(
        [
            np.abs(
                (p.real - p.mean - blend * p.shift[0] * p.sd[0])
                / (p.sd[0] * np.exp(blend * p.factor[0]))
            )[p.open]
            for p in played
        ],
        draws,
    )


def _ratio_width(played: list[_Played], blend: tuple[float, float, float], usual: float) -> float:
    scores = []
    for p in played:
        for quantity, side, column in ((1, p.own, p.own_column), (2, p.other, p.other_column)):
            b = blend[quantity]
            spread = p.sd[quantity] * np.exp(b * p.factor[quantity])
            said = side[1] + b * (p.shift[quantity] * p.sd[quantity])[column]
            scores.append(np.abs(side[0] - said) / np.hypot(side[2], spread[column]))
    return _quantile(scores, usual=usual)


def _lean(played: list[_Played], blend: float, width: float) -> float:
    """Wide estimates should lean by theory, narrow ones only on strong evidence."""
    losses = []
    spreads = [float(np.mean(p.sd[0][p.open])) for p in played if p.open.any()]
    wide = bool(spreads) and float(np.mean(spreads)) * width > _WIDE_SD
    for c in _LEANS:
        row = []
        for p in played:
            if not p.open.any():
                continue
            variance = ((p.sd[0] * np.exp(blend * p.factor[0]) * width) ** 2)[p.open].mean()
            said = p.mean + blend * p.shift[0] * p.sd[0] - c * min(variance, LEAN_TOP)
            gap = np.abs(np.exp(said) - np.exp(p.real)) / p.best
            row.append(np.minimum(gap[p.open], 5.0).mean())
        losses.append(np.array(row))
    return _choose(_LEANS, losses, 0.0, sure=0.2 if wide else 2.0)
