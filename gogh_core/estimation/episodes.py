"""Episodes: hide a job or a family everywhere, predict it, reveal a measurement, predict the rest.

The same episodes train the networks, calibrate them inside a catalog, and report accuracy on the
outer split. `Truth` is a catalog as dense tables, `Prediction` what a method says of one job, and
`score` compares the two in the tasks of the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gogh_core.estimation.catalog import Catalog

__all__ = [
    "LEAN_TOP",
    "TASKS",
    "Episode",
    "Prediction",
    "Score",
    "Truth",
    "episodes",
    "lean_of",
    "score",
]

Array = np.ndarray[Any, Any]
# No estimate leans by more than this variance times its lean.
LEAN_TOP = 2.25
Split = Literal["LOJO", "LOMO"]

TASKS = (
    "P1 alone",
    "P1 shape",
    "P1 own ratio",
    "P1 pair",
    "P1 partner",
    "P2 alone",
    "P2 pairs",
    "P2 partner",
    "P2 pairs after a pair",
    "P2 partner after a pair",
)


@dataclass(frozen=True)
class Truth:
    """Dense tables of a catalog: log alone [jobs, columns], log pair [job, partner, columns]."""

    alone: Array
    pair: Array

    @classmethod
    def of(cls, catalog: Catalog) -> Truth:
        """NaN where nothing was measured."""
        jobs, columns = len(catalog.names), len(catalog.columns)
        cells = catalog.cells
        alone = np.full((jobs, columns), np.nan)
        pair = np.full((jobs, jobs, columns), np.nan)
        single = cells.partner < 0
        alone[cells.job[single], cells.column[single]] = cells.log[single]
        both = ~single
        pair[cells.job[both], cells.partner[both], cells.column[both]] = cells.log[both]
        return cls(alone, pair)

    @property
    def ratio(self) -> Array:
        """Log of pair over alone, of the row's job."""
        return np.asarray(self.pair - self.alone[:, None, :])


@dataclass(frozen=True)
class Episode:
    """One job to predict, what is hidden with it, and which cells were revealed."""

    target: int
    hidden: tuple[int, ...]
    stage: Literal["none", "alone", "pair"]
    revealed: tuple[int, ...] = ()
    column: int = -1
    partner: int = -1

    def view(self, catalog: Catalog) -> Catalog:
        """What a method may see."""
        return catalog.without(self.hidden, keep=np.array(self.revealed, int))


def lean_of(mean: Array, variance: Array, lean: Array) -> Array:
    """Points below the centre by `lean` mean variances of the row, [..., columns].

    One shift for the whole row keeps its shape; sure cells (a hundredth of the widest) stay put.
    """
    wide = variance > 0.01 * variance.max(axis=-1, keepdims=True)
    usual = (variance * wide).sum(-1) / np.maximum(wide.sum(-1), 1)
    shift = lean * np.minimum(usual, LEAN_TOP)
    return np.asarray(mean - np.where(wide, shift[..., None], 0.0))


@dataclass(frozen=True)
class Prediction:
    """Logs: alone [columns], own ratio and effect on partners [jobs, columns]; spreads beside."""

    alone: Array
    own: Array
    other: Array
    alone_sd: Array | None = None
    pair_sd: Array | None = None
    """Of the job's throughput in a pair."""
    other_sd: Array | None = None
    lean: float = 0.0
    """The point estimate lies this many variances below the centre (see docs/estimation.md)."""

    @property
    def point(self) -> Array:
        """Log of the estimate alone."""
        if self.alone_sd is None or not self.lean:
            return self.alone
        return lean_of(self.alone, self.alone_sd**2, np.array(self.lean))


def episodes(
    catalog: Catalog, families: Array, split: Split, *, partners: int = 2, seed: int = 0
) -> Iterator[Episode]:
    """Every job of the catalog: nothing revealed, then one measurement alone, then one pair too."""
    rng = np.random.default_rng(seed)
    cells = catalog.cells
    for target in range(len(catalog.names)):
        together = np.flatnonzero(families == families[target]) if split == "LOMO" else [target]
        hidden = tuple(int(job) for job in together)
        yield Episode(target, hidden, "none")
        for cell in np.flatnonzero((cells.job == target) & (cells.partner < 0)):
            column = int(cells.column[cell])
            yield Episode(target, hidden, "alone", (int(cell),), column)
            mates = np.flatnonzero(
                (cells.job == target)
                & (cells.column == column)
                & (cells.partner >= 0)
                & ~np.isin(cells.partner, hidden)
            )
            for own in rng.permutation(mates)[:partners]:
                mate = int(cells.partner[own])
                back = catalog.find(np.array([mate]), np.array([target]), np.array([column]))
                shown = [int(cell), int(own)] + [int(i) for i in back if i >= 0]
                yield Episode(target, hidden, "pair", tuple(shown), column, mate)


@dataclass(frozen=True)
class Score:
    """Errors of one task in one episode: normalised, relative, and whether the interval held."""

    task: str
    error: Array
    relative: Array
    covered: Array


def score(truth: Truth, episode: Episode, said: Prediction, z: float = 1.2816) -> list[Score]:
    """The tasks that the episode's stage belongs to."""
    target = episode.target
    real = np.exp(truth.alone[target])
    best = float(np.nanmax(real))
    mates = np.array([k for k in range(len(truth.alone)) if k not in episode.hidden], int)
    pair = np.exp(truth.pair[target][mates])
    # Effects and ratios count in units of the sufferer's best throughput alone, as all errors do.
    weight = np.exp(truth.alone - np.nanmax(truth.alone, axis=1, keepdims=True))
    effect = np.exp(truth.ratio[mates, target])
    alone = np.exp(said.point)
    ratio = np.minimum(said.own[mates], np.log(1.05))
    guess = np.exp(said.point[None] + ratio)
    other = np.exp(np.minimum(said.other[mates], np.log(1.05)))
    open_cells = np.ones(len(real), bool)
    open_pairs = np.ones(pair.shape, bool)
    if episode.stage != "none":
        open_cells[episode.column] = False
    if episode.stage == "pair":
        open_pairs[mates == episode.partner, episode.column] = False
    held_alone = _held(said.alone, said.alone_sd, truth.alone[target], z)
    held_pair = _held(
        said.alone[None] + ratio,
        said.pair_sd[mates] if said.pair_sd is not None else None,
        truth.pair[target][mates],
        z,
    )
    held_other = _held(
        np.log(other),
        said.other_sd[mates] if said.other_sd is not None else None,
        truth.ratio[mates, target],
        z,
    )
    cell = _Rows(real, alone, best, held_alone, open_cells)
    both = _Rows(pair, guess, best, held_pair, open_pairs)
    partner = _Rows(effect, other, 1 / weight[mates], held_other, open_pairs)
    if episode.stage == "none":
        shape = _Rows(
            real / best, alone / np.max(alone), 1.0, np.full(len(real), np.nan), open_cells
        )
        own = np.exp(truth.ratio[target][mates])
        scale = np.broadcast_to(1 / weight[target], own.shape)
        ratios = _Rows(own, np.exp(ratio), scale, np.full(own.shape, np.nan), open_pairs)
        return [
            cell.score("P1 alone"),
            shape.score("P1 shape"),
            ratios.score("P1 own ratio"),
            both.score("P1 pair"),
            partner.score("P1 partner"),
        ]
    if episode.stage == "alone":
        return [cell.score("P2 alone"), both.score("P2 pairs"), partner.score("P2 partner")]
    return [both.score("P2 pairs after a pair"), partner.score("P2 partner after a pair")]


def _held(mean: Array, sd: Array | None, real: Array, z: float) -> Array:
    if sd is None:
        return np.full(real.shape, np.nan)
    return np.where(np.isnan(real), np.nan, np.abs(real - mean) <= z * sd)


@dataclass(frozen=True)
class _Rows:
    real: Array
    said: Array
    scale: float | Array
    held: Array
    open: Array

    def score(self, task: str) -> Score:
        use = self.open & ~np.isnan(self.real)
        gap = np.abs(self.said - self.real)[use]
        scale = np.broadcast_to(self.scale, self.real.shape)[use]
        return Score(task, gap / scale, gap / self.real[use], self.held[use])


def by_hidden(items: Sequence[Episode]) -> dict[tuple[int, ...], list[Episode]]:
    """Episodes that hide the same jobs together: they share fitted variances."""
    out: dict[tuple[int, ...], list[Episode]] = {}
    for item in items:
        out.setdefault(item.hidden, []).append(item)
    return out
