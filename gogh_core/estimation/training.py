"""Training as it will be used: hide a job or a family, predict it, reveal, predict the rest.

`collect` turns catalogs into samples (tokens and what the process got wrong, in its own spreads);
`train` fits a network to them. Deterministic for a seed, one thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gogh_core.estimation.beliefs import ALONE, Hyper, believe
from gogh_core.estimation.calibration import inner_episodes
from gogh_core.estimation.catalog import Catalog
from gogh_core.estimation.correction import groups_of
from gogh_core.estimation.episodes import Episode, Truth
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.networks import REACH, Kind, build, tokens

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Sample", "collect", "reveal", "train"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sample:
    """One job of one episode: tokens [columns, FEATURES] and errors in spreads [columns, 3]."""

    rows: Array
    errors: Array
    """NaN where nothing is to be predicted."""
    stage: str


def reveal(catalog: Catalog, episode: Episode, rng: np.random.Generator) -> Episode:
    """The same episode with some more cells shown: one to three alone, none to four pairs."""
    cells = catalog.cells
    own = np.flatnonzero((cells.job == episode.target) & (cells.partner < 0))
    if len(own) < 2:
        return episode
    some = rng.permutation(own)[: int(rng.integers(1, min(3, len(own) - 1) + 1))]
    shown = [int(i) for i in some]
    columns = set(cells.column[some].tolist())
    mates = np.flatnonzero(
        (cells.job == episode.target)
        & (cells.partner >= 0)
        & np.isin(cells.column, list(columns))
        & ~np.isin(cells.partner, episode.hidden)
    )
    for i in rng.permutation(mates)[: int(rng.integers(0, 5))]:
        place, mate = cells.column[i], cells.partner[i]
        back = catalog.find(np.array([mate]), np.array([episode.target]), np.array([place]))
        shown += [int(i)] + [int(b) for b in back if b >= 0]
    return Episode(
        episode.target, episode.hidden, "alone", tuple(shown), int(cells.column[some[0]])
    )


def collect(
    catalog: Catalog,
    *,
    seed: int,
    most: int = 16,
    hyper: Hyper | None = None,
    use_facts: bool = True,
    targets: Array | None = None,
) -> list[Sample]:
    """Samples of one catalog; variances are fitted once on all of it unless given."""
    rng = np.random.default_rng(seed)
    jobs = JobSet.of(catalog, use_facts=use_facts)
    truth = Truth.of(catalog)
    if hyper is None:
        hyper = believe(catalog, jobs, catalog.columns).hyper
    samples = []
    for episode in inner_episodes(catalog, jobs, seed=seed, most=most, targets=targets):
        if episode.stage != "none":
            episode = reveal(catalog, episode, rng)  # noqa: PLW2901
        sample = _sample(catalog, jobs, hyper, truth, episode)
        if sample is not None:
            samples.append(sample)
    return samples


def _sample(
    catalog: Catalog, jobs: JobSet, hyper: Hyper, truth: Truth, episode: Episode
) -> Sample | None:
    beliefs = believe(episode.view(catalog), jobs, catalog.columns, hyper=hyper)
    target = episode.target
    measured, _ = groups_of(beliefs, jobs)
    sd = np.sqrt(beliefs.variance[:, target])
    errors = np.full((sd.shape[1], 3), np.nan)
    errors[:, 0] = (truth.alone[target] - beliefs.mean[ALONE][target]) / sd[0]
    errors[beliefs.observed[0][target] > 0, 0] = np.nan
    mates = np.setdiff1d(np.arange(len(catalog.names)), np.array(episode.hidden))
    place = np.broadcast_to(np.arange(sd.shape[1])[None], (len(mates), sd.shape[1]))
    own = np.full(place.shape, target)
    mate = np.broadcast_to(mates[:, None], place.shape)
    for quantity, swap in ((1, False), (2, True)):
        a, b = (mate, own) if swap else (own, mate)
        said, _ = beliefs.ratio_of(a, b, place, clip=False)
        real = np.exp(truth.ratio[mates, target] if swap else truth.ratio[target, mates])
        gap = real - said
        count = (~np.isnan(gap)).sum(axis=0)
        mean = np.nansum(gap, axis=0) / np.maximum(count, 1)
        errors[:, quantity] = np.where(count >= 3, mean / sd[quantity], np.nan)
    if np.isnan(errors).all():
        return None
    rows = tokens(beliefs, jobs, np.array([target]))[0]
    return Sample(rows, np.clip(errors, -6, 6), "P2" if measured[target] else "P1")


def train(
    kind: Kind,
    samples: Iterable[Sample],
    *,
    seed: int,
    epochs: int = 30,
    rate: float = 2e-3,
    start: Mapping[str, Any] | None = None,
    until: float | None = None,
) -> nn.Module:
    """A network fitted to samples by the robust likelihood of their errors.

    `start` are weights to go on from; `until` is a moment of `time.monotonic` to stop at.
    """
    import torch

    network = build(kind, seed=seed)
    if start is not None:
        network.load_state_dict(dict(start))
    rng = np.random.default_rng(seed)
    by_size: dict[int, list[Sample]] = {}
    for sample in samples:
        by_size.setdefault(len(sample.rows), []).append(sample)
    groups = {
        size: (
            torch.from_numpy(np.stack([s.rows for s in some])),
            torch.from_numpy(np.stack([s.errors for s in some]).astype(np.float32)),
        )
        for size, some in by_size.items()
    }
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.02)
    batches = [
        (size, part)
        for size, (rows, _) in sorted(groups.items())
        for part in range(int(np.ceil(len(rows) / 64)))
    ]
    total = max(1, epochs * len(batches))
    step = 0
    for _ in range(epochs):
        order = {size: rng.permutation(len(rows)) for size, (rows, _) in groups.items()}
        for i in rng.permutation(len(batches)):
            size, part = batches[i]
            which = torch.from_numpy(order[size][part * 64 : part * 64 + 64])
            rows, errors = groups[size][0][which], groups[size][1][which]
            for group in optimiser.param_groups:
                group["lr"] = rate * 0.5 * (1 + np.cos(np.pi * step / total))
            loss = _loss(network(rows), errors)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            step += 1
            if until is not None and time.monotonic() > until:
                return network.eval()
    return network.eval()


def _loss(answer: Any, errors: Any) -> Any:
    import torch

    known = ~torch.isnan(errors)
    real = torch.where(known, errors, torch.zeros_like(errors))
    factor = answer[..., 3:]
    gap = (real - REACH * answer[..., :3]) * torch.exp(-factor)
    # Huber in place of the square: a world's outlier should not teach much.
    size = gap.abs()
    robust = torch.where(size < 1.5, 0.5 * gap**2, 1.5 * size - 1.125)
    loss = (robust + factor) * known
    return loss.sum() / known.sum().clamp(min=1)
