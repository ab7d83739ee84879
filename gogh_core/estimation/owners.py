"""Measurements of one class by several owners: who is believed where they contradict each other.

What an owner's jobs report is their word. It is compared with what *other* owners reached, from
near to far: the same cell, the same class elsewhere, and what hardware facts and all other classes
make of it. An owner whom at least half of the others confirm is believed. Where nobody confirms
anybody, the one nearest to the hardware facts is. A measurement that stands alone and is far from
those facts serves its own class, and no other is estimated from it; but not if other owners
contradict its owner where they can: then such a figure would only win its jobs better places.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["Doubt", "settle"]

Array = np.ndarray[Any, Any]

# Factors within which honest measurements agree: GPUs of one type, servers and inputs differ.
SAME_CELL, SAME_CLASS, FACTS = np.log(1.75), np.log(3.0), np.log(5.0)
# What sharing takes, roughly: for comparing pairs with facts, which know none.
SHARED = np.log(0.6)
_FEWEST = 5  # other measurements from which the facts' own error is told
_FEWEST_SAID = 2  # figures from which an owner's credit is told
_CELL = ["job", "partner", "column"]


@dataclass(frozen=True, slots=True)
class Doubt:
    """What an owner's jobs reported of a cell, and why it is not used, or not for others."""

    job: int
    partner: int
    column: int
    owner: str
    throughput: float
    used: bool
    """For jobs of its own class."""
    reason: str


def settle(frame: pd.DataFrame, facts: Array) -> tuple[pd.DataFrame, list[Doubt]]:
    """The rows that are believed, and what is not, or for its own class only.

    `frame` has job, partner, column, log, owner and `alone` (nobody else has jobs of the class);
    `facts` are log throughputs by hardware facts, [jobs, columns], NaN where nothing is known.
    """
    keys = [*_CELL, "owner"]
    said = frame.groupby(keys, as_index=False, observed=True).agg(
        log=("log", "median"), alone=("alone", "all")
    )
    job, column = said["job"].to_numpy(), said["column"].to_numpy()
    shared = np.where(said["partner"].to_numpy() >= 0, SHARED, 0.0)
    said["off"] = said["log"].to_numpy() - facts[job, column] - shared
    said["verdict"] = ""
    said["forged"] = False
    believed = np.ones(len(said), bool)
    while (liar := _least_credible(said[believed])) is not None:
        mine = (said["owner"] == liar).to_numpy()
        said.loc[mine, "verdict"] = "most of what its owner reports differs from other owners'"
        gaps, by_others = _gaps(said[believed])
        here = mine[believed]
        if (gaps[here & by_others] > 1.0).mean() > 0.5:
            said.loc[mine, "forged"] = gaps[here] > 1.0
        believed &= ~mine
    rest = said[believed].copy()
    rest["far"] = _far(rest)
    by_class = _by_class(rest)
    for _, cell in rest.groupby(_CELL, observed=True):
        _judge(rest, cell, by_class)
    said.loc[rest.index, "verdict"] = rest["verdict"]
    # A doubtful figure of a class that nobody else has harms nobody else, if it is not forged.
    said["used"] = said["alone"] & (said["verdict"] != "") & ~said["forged"]
    doubts = [
        Doubt(
            job=int(row["job"]),
            partner=int(row["partner"]),
            column=int(row["column"]),
            owner=str(row["owner"]),
            throughput=float(np.exp(row["log"])),
            used=bool(row["used"]),
            reason=str(row["verdict"]),
        )
        for row in said[said["verdict"] != ""].to_dict("records")
    ]
    marked = frame.merge(said[[*keys, "verdict", "used"]], on=keys, how="left")
    kept = marked[(marked["verdict"] == "") | marked["used"]]
    return kept.drop(columns=["verdict", "used"]).reset_index(drop=True), doubts


def _least_credible(said: pd.DataFrame) -> Any:
    """The owner most of whose figures differ from all others', by the most; None: there is none."""
    gaps, _ = _gaps(said)
    judged = said.assign(gap=gaps)[~np.isnan(gaps)]
    if not len(judged):
        return None
    judged["over"] = np.maximum(judged["gap"] - 1.0, 0.0)
    judged["far"] = _far(judged)
    by = judged.groupby("owner", observed=True).agg(
        middle=("gap", "median"), over=("over", "sum"), far=("far", "median"), count=("gap", "size")
    )
    suspects = by[(by["middle"] > 1.0) & (by["count"] >= _FEWEST_SAID)].fillna({"far": 0.0})
    if not len(suspects):
        return None
    # Whoever contradicts whom: it is the one who contradicts more, and facts decide a draw.
    rounded = suspects.assign(over=suspects["over"].round(1))
    return rounded.sort_values(["over", "far"], ascending=False).index[0]


def _gaps(said: pd.DataFrame) -> tuple[Array, Array]:
    """How far each is from other owners' figures, in units of what honest ones differ by.

    And which of them were compared with figures of the same class; the rest with the facts.
    """
    gaps = np.full(len(said), np.nan)
    by_class = _by_class(said)
    for _, cell in said.assign(place=np.arange(len(said))).groupby(_CELL, observed=True):
        rows = cell.to_dict("records")
        for row in rows:
            others = [other["log"] for other in rows if other is not row]
            elsewhere = _elsewhere(by_class, row)
            if others:
                gaps[row["place"]] = abs(row["log"] - np.median(others)) / SAME_CELL
            elif elsewhere and not np.isnan(row["off"]):
                gaps[row["place"]] = abs(row["off"] - np.median(elsewhere)) / SAME_CLASS
    alone = np.isnan(gaps)
    gaps[alone] = _far(said)[alone] / FACTS
    return gaps, ~alone


def _by_class(said: pd.DataFrame) -> dict[int, dict[str, float]]:
    """How far each owner's figures of a class are from the facts, in the middle."""
    found: dict[int, dict[str, float]] = {}
    grouped = said.groupby(["job", "owner"], observed=True, as_index=False)
    middle = pd.DataFrame(grouped["off"].median())
    for row in middle.dropna().to_dict("records"):
        found.setdefault(row["job"], {})[row["owner"]] = row["off"]
    return found


def _elsewhere(by_class: Mapping[int, Mapping[str, float]], row: Mapping[Any, Any]) -> list[float]:
    """Of the same class, by other owners."""
    return [off for who, off in by_class.get(row["job"], {}).items() if who != row["owner"]]


def _far(said: pd.DataFrame) -> Array:
    """How far each is from the facts, corrected by what they miss for other owners' classes."""
    off, owner, job = (said[name].to_numpy() for name in ("off", "owner", "job"))
    far = np.full(len(said), np.nan)
    known = ~np.isnan(off)
    for who in pd.unique(owner):
        mine = owner == who
        for which in np.unique(job[mine & known]):
            others = off[known & ~mine & (job != which)]
            here = mine & known & (job == which)
            if len(others) >= _FEWEST:
                far[here] = np.abs(off[here] - np.median(others))
    return far


def _judge(
    said: pd.DataFrame, cell: pd.DataFrame, by_class: Mapping[int, Mapping[str, float]]
) -> None:
    """Write the verdict on each owner's measurement of one cell; empty: believed."""
    if len(cell) > 1:
        logs = cell["log"].to_numpy()
        near = np.abs(logs[:, None] - logs[None]) <= SAME_CELL
        confirmed = near.sum(axis=1) - 1 >= (len(cell) - 1) / 2
        _drop(said, cell, confirmed, "differs from what other owners reached there")
        return
    [row] = cell.to_dict("records")
    others = np.array(_elsewhere(by_class, row))
    if len(others) and not np.isnan(row["off"]):
        agree = np.abs(others - row["off"]) <= SAME_CLASS
        if agree.sum() < len(others) / 2 and (len(others) > 1 or row["far"] > FACTS):
            why = "differs from what other owners reached with its class elsewhere"
            said.loc[cell.index, "verdict"] = why
    elif row["far"] > FACTS:
        said.loc[cell.index, "verdict"] = "is far from what the hardware does with other classes"


def _drop(said: pd.DataFrame, cell: pd.DataFrame, confirmed: Array, why: str) -> None:
    """Those whom nobody confirms; where it is all of them, the nearest to the facts stays."""
    if not confirmed.any():
        far = cell["far"].to_numpy()
        if not np.isnan(far).all():
            confirmed = np.arange(len(far)) == np.nanargmin(far)
    said.loc[cell.index[~confirmed], "verdict"] = why
