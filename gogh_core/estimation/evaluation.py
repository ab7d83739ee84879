"""Accuracy on the outer split: every method on the same episodes, errors, intervals, learning.

Variances, blends and widths are found inside the training part of each split (`correction`), never
on the rows that are reported here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from gogh_core.estimation.baselines import BASELINES
from gogh_core.estimation.beliefs import believe
from gogh_core.estimation.calibration import calibrate
from gogh_core.estimation.catalog import Catalog
from gogh_core.estimation.correction import correct, predict
from gogh_core.estimation.episodes import (
    Prediction,
    Split,
    Truth,
    by_hidden,
    episodes,
    score,
)
from gogh_core.estimation.feasibility import fit_memory
from gogh_core.estimation.jobset import JobSet

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Method", "accuracy", "feasibility", "learning_curve", "network_method", "simple_method"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Method:
    """A name, and a function from what is hidden to a predictor of episodes."""

    name: str
    prepare: Callable[[Catalog, tuple[int, ...]], Callable[[Catalog, int], Prediction]]


def simple_method(name: str) -> Method:
    """One of the baselines."""

    def prepare(_: Catalog, __: tuple[int, ...]) -> Callable[[Catalog, int], Prediction]:
        def answer(view: Catalog, target: int) -> Prediction:
            return BASELINES[name](Truth.of(view), JobSet.of(view), target)

        return answer

    return Method(name, prepare)


def network_method(
    name: str,
    networks: Mapping[str, nn.Module],
    *,
    use_facts: bool,
    calibrated: bool = True,
    seed: int = 0,
) -> Method:
    """The process with networks on top; without networks and calibration the process itself.

    `seed` chooses the inner episodes that calibrate.
    """

    def prepare(catalog: Catalog, hidden: tuple[int, ...]) -> Callable[[Catalog, int], Prediction]:
        jobs = JobSet.of(catalog, use_facts=use_facts)
        rest = catalog.without(hidden)
        hyper = believe(rest, jobs, catalog.columns).hyper
        found = calibrate(rest, jobs, hyper, networks, seed=seed) if calibrated else None

        def answer(view: Catalog, target: int) -> Prediction:
            beliefs = believe(view, jobs, catalog.columns, hyper=hyper)
            if calibrated or networks:
                beliefs = correct(beliefs, jobs, networks, found)
            return predict(beliefs, target)

        return answer

    return Method(name, prepare)


def accuracy(
    catalog: Catalog,
    methods: Sequence[Method],
    *,
    splits: Sequence[Split] = ("LOJO", "LOMO"),
    partners: int = 2,
    seed: int = 0,
    report: Callable[[str, float], None] | None = None,
) -> pd.DataFrame:
    """One row for each split, method, task and job: sums of errors, medians, coverage."""
    truth = Truth.of(catalog)
    families = JobSet.of(catalog).families
    rows = []
    for split in splits:
        grouped = by_hidden(list(episodes(catalog, families, split, partners=partners, seed=seed)))
        for done, (hidden, some) in enumerate(grouped.items()):
            for method in methods:
                answer = method.prepare(catalog, hidden)
                for episode in some:
                    said = answer(episode.view(catalog), episode.target)
                    for one in score(truth, episode, said):
                        rows.append(
                            {
                                "split": split,
                                "method": method.name,
                                "task": one.task,
                                "job": catalog.names[episode.target],
                                "family": catalog.jobs[episode.target].model,
                                "error": one.error,
                                "relative": one.relative,
                                "covered": one.covered,
                            }
                        )
            if report is not None:
                report(f"accuracy {split}", (done + 1) / len(grouped))
    return pd.DataFrame(rows)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """nMAE, median relative error, coverage and spread over families, by row of the report."""
    out = []
    for (split, method, task), some in rows.groupby(["split", "method", "task"], sort=False):
        error = np.concatenate(some["error"].to_list())
        covered = np.concatenate(some["covered"].to_list())
        each = [np.concatenate(f["error"].to_list()).mean() for _, f in some.groupby("family")]
        seeds = [0.0]
        if "seed" in some:
            seeds = [np.concatenate(x["error"].to_list()).mean() for _, x in some.groupby("seed")]
        known = ~np.isnan(covered)
        out.append(
            {
                "split": split, "method": method, "task": task, "nmae": error.mean(),
                "relative": float(np.median(np.concatenate(some["relative"].to_list()))),
                "coverage": float(covered[known].mean()) if known.any() else np.nan,
                "family_sd": float(np.std(each)), "seed_sd": float(np.std(seeds)),
                "cells": len(error),
            }
        )  # fmt: skip
    return pd.DataFrame(out)


def _revealing(
    catalog: Catalog, target: int, hidden: tuple[int, ...], seed: int
) -> list[list[int]]:
    """Cells of the target in the order they are shown: two alone and six pairs, mixed."""
    rng = np.random.default_rng(seed * 1000 + target)
    cells = catalog.cells
    own = np.flatnonzero((cells.job == target) & (cells.partner < 0))
    mates = np.flatnonzero(
        (cells.job == target) & (cells.partner >= 0) & ~np.isin(cells.partner, hidden)
    )
    if len(own) < 3 or len(mates) < 10:
        return []
    alone = rng.permutation(own)[:2]
    mates = rng.permutation(mates[np.isin(cells.column[mates], cells.column[alone])])[:6]
    order = [[int(alone[0])]]
    rest = [[int(alone[1])]]
    for i in mates:
        place, mate = cells.column[i], cells.partner[i]
        back = catalog.find(np.array([mate]), np.array([target]), np.array([place]))
        rest.append([int(i)] + [int(b) for b in back if b >= 0])
    return order + [rest[int(i)] for i in rng.permutation(len(rest))]


def learning_curve(
    catalog: Catalog,
    methods: Sequence[Method],
    *,
    split: Split = "LOMO",
    steps: Sequence[int] = (0, 1, 2, 4, 8),
    seeds: Sequence[int] = (0,),
) -> pd.DataFrame:
    """Error on cells never shown against how many were: alone, in pairs, on the partner."""
    truth = Truth.of(catalog)
    families = JobSet.of(catalog).families
    rows = []
    for target in range(len(catalog.names)):
        together = np.flatnonzero(families == families[target]) if split == "LOMO" else [target]
        hidden = tuple(int(i) for i in together)
        for method in methods:
            answer = method.prepare(catalog, hidden)
            for seed in seeds:
                order = _revealing(catalog, target, hidden, seed)
                if not order:
                    continue
                shown_in_the_end = [cell for part in order for cell in part]
                for step in steps:
                    shown = [cell for part in order[:step] for cell in part]
                    view = catalog.without(hidden, keep=np.array(shown, int))
                    said = answer(view, target)
                    for kind, error, width in _unseen(
                        catalog, truth, said, target, hidden, shown_in_the_end
                    ):
                        rows.append(
                            {
                                "method": method.name, "step": step, "kind": kind, "seed": seed,
                                "error": error, "width": width,
                            }
                        )  # fmt: skip
    frame = pd.DataFrame(rows)
    keys = ["method", "kind", "step", "seed"]
    return frame.groupby(keys, sort=False)[["error", "width"]].mean().reset_index()


def _unseen(
    catalog: Catalog,
    truth: Truth,
    said: Prediction,
    target: int,
    hidden: tuple[int, ...],
    shown: Sequence[int],
) -> Iterator[tuple[str, float, float]]:
    """Mean error and width of the cells that are never shown, alone and in pairs."""
    cells = catalog.cells
    real = truth.alone[target].copy()
    pair = truth.pair[target].copy()
    for cell in shown:
        if cells.job[cell] != target:
            continue
        if cells.partner[cell] < 0:
            real[cells.column[cell]] = np.nan
        else:
            pair[cells.partner[cell], cells.column[cell]] = np.nan
    pair[list(hidden)] = np.nan
    best = float(np.nanmax(np.exp(truth.alone[target])))
    guess = np.exp(said.point)
    both = np.exp(said.point[None] + np.minimum(said.own, 0.0))
    effect = np.exp(truth.ratio[:, target]) - np.exp(np.minimum(said.other, 0.0))
    weight = np.exp(truth.alone - np.nanmax(truth.alone, axis=1, keepdims=True))
    effect = np.where(np.isnan(pair), np.nan, effect * weight)
    nan = np.full(1, np.nan)
    wide = said.alone_sd if said.alone_sd is not None else nan
    wide_pair = said.pair_sd if said.pair_sd is not None else nan
    yield "alone", float(np.nanmean(np.abs(guess - np.exp(real))) / best), float(np.mean(wide))
    gap = float(np.nanmean(np.abs(both - np.exp(pair))) / best)
    yield "pairs", gap, float(np.mean(wide_pair))
    yield "partner", float(np.nanmean(np.abs(effect))), np.nan


def feasibility(
    catalog: Catalog, *, split: Split, declared: Mapping[str, float] | None = None,
    use_facts: bool = True,
) -> dict[str, float]:  # fmt: skip
    """Share of infeasible pairs found when 5 % of feasible ones are refused, jobs left out."""
    families = JobSet.of(catalog).families
    chance: list[Array] = []
    ran: list[Array] = []
    if declared:
        catalog = _declare(catalog, declared)
    groups: dict[tuple[int, ...], list[int]] = {}
    for target in range(len(catalog.names)):
        together = np.flatnonzero(families == families[target]) if split == "LOMO" else [target]
        groups.setdefault(tuple(int(i) for i in together), []).append(target)
    for hidden, targets in groups.items():
        rest = catalog.without(hidden)
        jobs = JobSet.of(catalog, use_facts=use_facts)
        model = fit_memory(rest, jobs, catalog.columns)
        for target in targets:
            pairs = _outcomes_of(catalog, target, set(hidden) - {target})
            if len(pairs[0]):
                own = np.full(len(pairs[0]), target)
                chance.append(model.probability(own, pairs[0], pairs[1]))
                ran.append(pairs[2])
    if not chance:
        return {"found": np.nan, "pairs": 0.0}
    p, truth = np.concatenate(chance), np.concatenate(ran)
    if truth.all():
        return {"found": np.nan, "pairs": float(len(p))}
    limit = np.quantile(p[truth], 0.05)
    return {
        "found": float((p[~truth] < limit).mean()),
        "pairs": float(len(p)),
        "limit": float(limit),
    }


def _declare(catalog: Catalog, memory: Mapping[str, float]) -> Catalog:
    from dataclasses import replace

    jobs = tuple(
        replace(job, memory_bytes=memory.get(name, job.memory_bytes))
        for name, job in zip(catalog.names, catalog.jobs, strict=True)
    )
    return replace(catalog, jobs=jobs)


def _outcomes_of(catalog: Catalog, target: int, left_out: set[int]) -> tuple[Array, Array, Array]:
    """Partners, columns and whether the pair ran, of one job."""
    cells = catalog.cells
    ran = np.flatnonzero((cells.job == target) & (cells.partner >= 0))
    mates = [(int(cells.partner[i]), int(cells.column[i]), True) for i in ran]
    for a, b, column in zip(
        catalog.refused_job, catalog.refused_partner, catalog.refused_column, strict=True
    ):
        if b >= 0 and target in (a, b):
            mates.append((int(b if a == target else a), int(column), False))
    mates = [m for m in mates if m[0] not in left_out]
    table = np.array(mates, int).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2].astype(bool)
