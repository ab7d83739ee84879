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
from gogh_core.estimation.jobset import JobSet

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "Method",
    "accuracy",
    "gangs",
    "learning_curve",
    "left_out",
    "network_method",
    "simple_method",
    "summary",
]

Array = np.ndarray[Any, Any]
_Z80 = 1.2816


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
    every: int = 1,
    report: Callable[[str, float], None] | None = None,
) -> pd.DataFrame:
    """One row for each split, method, task and job: errors, relative errors, coverage.

    `every` leaves out only each so-manieth job or family.
    """
    truth = Truth.of(catalog)
    families = JobSet.of(catalog).families
    rows = []
    for split in splits:
        grouped = by_hidden(list(episodes(catalog, families, split, partners=partners, seed=seed)))
        for done, (hidden, some) in enumerate(list(grouped.items())[::every]):
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
        if not len(error):
            continue
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
    for hidden, targets in left_out(families, split).items():
        for method in methods:
            answer = method.prepare(catalog, hidden)
            for target, seed in [(target, seed) for target in targets for seed in seeds]:
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


def left_out(families: Array, split: Split) -> dict[tuple[int, ...], list[int]]:
    """Jobs by what is hidden with them: themselves, or their family."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for target in range(len(families)):
        together = np.flatnonzero(families == families[target]) if split == "LOMO" else [target]
        groups.setdefault(tuple(int(i) for i in together), []).append(target)
    return groups


def gangs(catalog: Catalog, methods: Sequence[Method], *, every: int = 1) -> pd.DataFrame:
    """Speed of several GPUs together, for a job (left out) that was measured on single ones."""
    truth = Truth.of(catalog)
    cells = catalog.cells
    several = np.array([column.gpus > 1 for column in catalog.columns])
    rows = []
    for target in np.unique(cells.job[several[cells.column]])[::every]:
        shown = np.flatnonzero((cells.job == target) & ~several[cells.column])
        real = np.exp(truth.alone[target])
        asked = several & ~np.isnan(real)
        if not len(shown):
            continue
        view = catalog.without([int(target)], keep=shown)
        for method in methods:
            said = method.prepare(catalog, (int(target),))(view, int(target))
            gap = np.abs(np.exp(said.point) - real)[asked]
            inside = np.nan
            if said.alone_sd is not None:
                off = np.abs(np.log(real) - said.alone) / said.alone_sd
                inside = float((off[asked] <= _Z80).mean())
            rows.append(
                {
                    "method": method.name, "error": float((gap / np.nanmax(real)).mean()),
                    "relative": float(np.median(gap / real[asked])), "inside": inside,
                }
            )  # fmt: skip
    found = pd.DataFrame(rows).groupby("method", sort=False)[["error", "relative", "inside"]]
    return found.mean().reset_index()


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
