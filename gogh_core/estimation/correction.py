"""From the process's beliefs to what is served: second opinions, P1 and P2, and a calibration.

`correct` moves beliefs by what a `Calibration` (found by `calibration`) says each is worth on the
catalog at hand; `predict` reads what is then believed of one job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gogh_core.estimation.beliefs import (
    ALONE,
    Beliefs,
)
from gogh_core.estimation.episodes import Prediction
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.networks import run, tokens

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "GROUPS",
    "Calibration",
    "Group",
    "by_odds",
    "correct",
    "groups_of",
    "predict",
    "usual_blend",
    "usual_second",
]

Array = np.ndarray[Any, Any]
# A job's group: has it been measured (P2), and does it have measured siblings?
Group = tuple[bool, bool]
GROUPS: tuple[Group, ...] = ((False, False), (False, True), (True, False), (True, True))
# Weight of the second opinion on speed alone, for jobs with siblings and facts.
_SIBLINGS_AND_FACTS = 0.25
# What is left of it from the second measurement of a job without siblings on: two cells tell the
# process how the job differs, the second opinion mostly by how much.
_AGAIN = 0.5
# How far networks trained on synthetic worlds are followed in manners, where a job has no siblings
# and the catalog says nothing of it: manners are much the same everywhere, levels are not.
_BLEND_MANNERS = 0.25


@dataclass(frozen=True)
class Calibration:
    """For each group: weights of opinions and corrections, widths of alone and ratio, the lean."""

    second: Mapping[Group, tuple[float, float, float]] = field(default_factory=dict)
    """How far to go from the process to the second opinion, by quantity."""
    blend: Mapping[Group, tuple[float, float, float]] = field(default_factory=dict)
    alone_width: Mapping[Group, float] = field(default_factory=dict)
    ratio_width: Mapping[Group, float] = field(default_factory=dict)
    lean: Mapping[Group, float] = field(default_factory=dict)


def groups_of(beliefs: Beliefs, jobs: JobSet) -> tuple[Array, Array]:
    """Whether each job was measured, and whether any sibling was."""
    measured = (beliefs.observed[0] > 0).any(axis=1) | (beliefs.observed[1] > 0).any(axis=1)
    each = np.bincount(jobs.families, measured)
    return measured, each[jobs.families] - measured > 0


def correct(
    beliefs: Beliefs,
    jobs: JobSet,
    networks: Mapping[str, nn.Module],
    calibration: Calibration | None,
    *,
    who: Array | None = None,
) -> Beliefs:
    """Beliefs with P1 and P2 applied; without a calibration the networks are followed in full."""
    who = np.arange(len(jobs.names)) if who is None else who
    if not len(who):
        return beliefs
    measured, sibling = groups_of(beliefs, jobs)
    mean, variance = beliefs.mean.copy(), beliefs.variance.copy()
    ratio_width, lean = beliefs.ratio_width.copy(), beliefs.lean.copy()
    rows = tokens(beliefs, jobs, who) if networks else np.zeros((0, 0, 0))
    for name, stage in (("P1", False), ("P2", True)):
        mine = np.flatnonzero(measured[who] == stage)
        if not len(mine):
            continue
        job = who[mine]
        shift, factor = (
            np.zeros((3, len(job), mean.shape[2])),
            np.zeros((3, len(job), mean.shape[2])),
        )
        if name in networks:
            shift, factor = run(networks[name], rows[mine])
        second = np.zeros((3, len(job)))
        blend = np.ones((3, len(job)))
        width = np.ones((2, len(job)))
        if calibration is not None:
            for group in ((stage, False), (stage, True)):
                inside = sibling[job] == group[1]
                opinions = calibration.second.get(group) or usual_second(jobs, group)
                second[:, inside] = np.array(opinions)[:, None]
                again = beliefs.observed[ALONE][job[inside]].sum(axis=1) > 1
                second[ALONE, inside] = by_odds(
                    np.where(again & (not group[1]), _AGAIN, 1.0) * opinions[ALONE],
                    beliefs.against_facts[job[inside]],
                )
                blend[:, inside] = np.array(calibration.blend.get(group) or usual_blend(group))[
                    :, None
                ]
                width[0, inside] = calibration.alone_width.get(group, 1.0)
                width[1, inside] = calibration.ratio_width.get(group, 1.0)
                lean[job[inside]] = calibration.lean.get(group, 0.0)
        sd = np.sqrt(variance[:, job])
        mean[:, job] += second[..., None] * (beliefs.second[:, job] - mean[:, job])
        mean[:, job] += blend[..., None] * shift * sd
        grown = np.exp(2 * blend[..., None] * factor)
        grown[0] *= width[0][:, None] ** 2
        variance[:, job] *= grown
        ratio_width[job] = width[1]
    return replace(beliefs, mean=mean, variance=variance, ratio_width=ratio_width, lean=lean)


def by_odds(weight: float | Array, odds: Array) -> Array:
    """The weight of an opinion after evidence for it, in log odds."""
    raised = weight * np.exp(odds)
    return np.asarray(raised / (raised + 1 - weight))


def predict(beliefs: Beliefs, target: int) -> Prediction:
    """What the beliefs say of one job, alone and with every other."""
    jobs = np.arange(beliefs.mean.shape[1])
    columns = np.arange(beliefs.mean.shape[2])
    one = np.full((len(jobs), len(columns)), target)
    all_jobs = np.broadcast_to(jobs[:, None], one.shape)
    place = np.broadcast_to(columns[None], one.shape)
    own, own_sd = beliefs.ratio_of(one, all_jobs, place)
    other, other_sd = beliefs.ratio_of(all_jobs, one, place)
    variance = beliefs.variance[ALONE][target]
    return Prediction(
        beliefs.mean[ALONE][target],
        np.log(own),
        np.log(other),
        np.sqrt(variance),
        np.sqrt(variance[None] + (own_sd / own) ** 2),
        other_sd / other,
        lean=float(beliefs.lean[target]),
    )


def usual_blend(group: Group) -> tuple[float, float, float]:
    """Siblings tell more of a job's manners than worlds do."""
    manners = 0.0 if group[1] else _BLEND_MANNERS
    return 0.0, manners, manners


def usual_second(jobs: JobSet, group: Group) -> tuple[float, float, float]:
    """Half and half, where the one is as good as the other.

    With siblings the process is better than either of its second opinions; before any measurement
    facts are all there is to tell the shape of an unseen family by.
    """
    measured, siblings = group
    facts = bool(jobs.has_facts.any())
    alone = (_SIBLINGS_AND_FACTS if facts else 0.0) if siblings else 0.5
    if facts and not measured and not siblings:
        alone = 0.0
    return alone, 0.5, 0.5
