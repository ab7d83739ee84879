"""Certificates that nobody made: random trees of random prices, and real ones tampered with."""

from __future__ import annotations

import copy
import random
from typing import Any

from gogh_core.allocation import Problem
from gogh_core.allocation.verify_facts import Facts


def random_certificate(draw: random.Random, problem: Problem, by: str) -> dict[str, Any]:
    facts = Facts(problem, by)
    scale = draw.choice([50.0, 300.0, 2000.0])
    return {"kinds": by, "root": _node(draw, problem, facts, draw.randrange(4), 0, scale)}


def _node(draw, problem, facts, depth, cuts, scale) -> dict[str, Any]:
    what = draw.choice(["servers", "gpus", "option", "way"])
    if depth == 0 or not facts.kinds or not problem.jobs:
        return _leaf(draw, problem, facts, cuts, scale)
    node: dict[str, Any] = {"split": what, "at": draw.randrange(4)}
    if what == "way":
        table = problem.table
        ways = [["wait"], ["stay"], ["type", draw.randrange(len(table.types))]]
        ways.append(["side", draw.randrange(len(table)), draw.randrange(2)])
        node["way"] = draw.choice(ways)
        node["jobs"] = [j for j in range(len(problem.jobs)) if draw.random() < 0.6]
    else:
        node["kind"] = draw.randrange(len(problem.table) if what == "option" else len(facts.kinds))
    cuts += what != "servers"
    for child in ("low", "high"):
        node[child] = _node(draw, problem, facts, depth - 1, cuts, scale)
    return node


def _leaf(draw, problem, facts, cuts, scale) -> dict[str, Any]:
    def price() -> float:
        return draw.choice([0.0, draw.uniform(0, scale), draw.uniform(-scale, scale)])

    kinds, jobs, rows = len(facts.kinds), len(problem.jobs), len(problem.table)
    realms = len(facts.realms)
    places = [gpu for job in problem.jobs for gpu in sorted(job.place)]
    leaf: dict[str, Any] = {name: [price() for _ in range(kinds)] for name in _BY_KIND}
    leaf |= {"jobs": [3 * abs(price()) for _ in range(jobs)]}
    leaf |= {"worth": [price() / 5 for _ in range(jobs)], "cuts": [price() for _ in range(cuts)]}
    leaf |= {"cells": [price() for _ in facts.cell_server], "moves": price(), "cap": price() / 100}
    leaf["quotas"] = {owner: price() for owner in problem.quotas}
    if rows and jobs:
        leaf["sides"] = [
            [draw.randrange(rows), draw.choice([None, price()]), price(), draw.randrange(realms)]
            for _ in range(draw.randrange(2 * rows))
        ]
        leaf["own"] = [
            [draw.randrange(rows), draw.randrange(realms), price(), [[draw.randrange(jobs), 9.0]]]
            for _ in range(draw.randrange(rows))
        ]
    if rows and places:
        leaf["ties"] = [
            [*draw.choice(places), draw.randrange(rows), price(), price()]
            for _ in range(draw.randrange(rows))
        ]
    return leaf


_BY_KIND = ("capacity", "occupied", "whole")


def tampered(draw: random.Random, certificate: dict[str, Any]) -> dict[str, Any]:
    """A copy in which about a third of the prices are others."""
    changed = copy.deepcopy(dict(certificate))
    stack = [changed.get("root", {})]
    while stack:
        node = stack.pop()
        stack += [node[child] for child in ("low", "high") if child in node]
        for value in node.values():
            if isinstance(value, list):
                for at, number in enumerate(value):
                    if isinstance(number, float) and draw.random() < 0.3:
                        value[at] = number * draw.uniform(-0.5, 2) + draw.uniform(-100, 100)
    return changed
