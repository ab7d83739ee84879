"""The program as the paper writes it: one binary for each GPU and combination of jobs.

A rival for the benchmark, not a way to plan: it dies early, and the table shows where. Every
option of every job, and of every two jobs that consent, is a binary on every GPU of its type;
gangs add one binary for each server, tied to their GPUs. Servers are binaries too. New jobs only.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import Any

import numpy as np

from gogh_core.allocation.compiled import Compiled, Seat, Seats, need_of
from gogh_core.allocation.mip import run_model

__all__ = ["naive_seats"]

Combo = tuple[int, tuple[int, ...]]
"""(option row, the jobs in it)."""


def naive_seats(c: Compiled, *, solver: str, gap: float, time_s: float) -> Seats | None:
    """Seats by the naive program, or None if the solver found nothing in the time."""
    model, slots = _model(c)
    finished, _ = run_model(model, solver, gap, time_s)
    if finished is None:
        return None
    taken: dict[tuple[str, Combo], list[int]] = defaultdict(list)
    for index, (server, gpu, combo) in enumerate(slots):
        if (model.x[index].value or 0.0) > 0.5:
            taken[server, combo].append(gpu)
    seats: Seats = {}
    for (server, (row, jobs)), gpus in sorted(taken.items()):
        m = int(c.table.gpus[row])
        for at in range(0, len(gpus), m):
            place = ((server, tuple(gpus[at : at + m])),)
            for j in jobs:
                mate = next((i for i in jobs if i != j), -1)
                seats.setdefault(j, []).append(Seat(j, place, row, mate))
    return seats


def _combos(c: Compiled) -> list[Combo]:
    """Every job alone and every two jobs that share, by every option that allows it."""
    usable: dict[int, set[tuple[int, int]]] = {}
    for group in c.groups:
        here = c.sides(group.cls)
        fit = np.flatnonzero(group.usable) + here.start
        sides = {(int(c.side_row[s]), int(c.side_no[s])) for s in fit}
        usable.update(dict.fromkeys(group.jobs, sides))
    found: list[Combo] = []
    for j, sides in sorted(usable.items()):
        found.extend((row, (j,)) for row, _ in sorted(sides) if not c.pair[row])
    for i, j in combinations(sorted(usable), 2):
        if c.consent(i, j):
            both = [
                row
                for row, side in sorted(usable[i])
                if c.pair[row] and (row, 0 if c.own[row] else 1 - side) in usable[j]
            ]
            found.extend((row, (i, j)) for row in both)
    return [(row, jobs) for row, jobs in found if c.table.gpus[row] <= c.largest.max()]


def _model(c: Compiled) -> tuple[Any, list[tuple[str, int, Combo]]]:
    """The program in Pyomo and what its binaries stand for."""
    import pyomo.environ as pyo
    from pyomo.core.expr.numeric_expr import LinearExpression

    problem = c.problem
    by_type: dict[int, list[Combo]] = defaultdict(list)
    for combo in _combos(c):
        by_type[int(c.table.type_id[combo[0]])].append(combo)
    slots = [
        (server, gpu, combo)
        for kind in c.kinds
        for server in kind.servers
        for combo in by_type[kind.gpu_type]
        if c.table.gpus[combo[0]] <= kind.size
        for gpu in range(kind.size)
    ]
    servers = sorted(c.kind_of)
    model = pyo.ConcreteModel()
    model.x = pyo.Var(range(len(slots)), within=pyo.Binary)
    model.on = pyo.Var(servers, within=pyo.Binary)
    model.waits = pyo.Var(range(len(c.cls)), within=pyo.Binary)
    on_gpu: dict[tuple[str, int], list[int]] = defaultdict(list)
    on_server: dict[tuple[str, Combo], list[int]] = defaultdict(list)
    of_job: dict[int, list[tuple[float, int]]] = defaultdict(list)
    watts = []
    for index, (server, gpu, combo) in enumerate(slots):
        row, jobs = combo
        on_gpu[server, gpu].append(index)
        on_server[server, combo].append(index)
        watts.append(float(c.net_w[row]) / int(c.table.gpus[row]))
        for j in jobs:
            got = 1.0 / int(c.table.gpus[row])
            if c.spread[j]:
                first = c.table.class_a[row] == c.cls[j]
                got = float(c.table.throughput_a[row] if first else c.table.throughput_b[row])
            of_job[j].append((got, index))

    def add(variables: list[Any], values: list[float]) -> Any:
        return LinearExpression(linear_coefs=values, linear_vars=variables)

    model.rows = pyo.ConstraintList()
    for (server, _), uses in on_gpu.items():
        variables = [*(model.x[i] for i in uses), model.on[server]]
        model.rows.add(add(variables, [1.0] * len(uses) + [-1.0]) <= 0)
    gangs = [key for key in on_server if c.table.gpus[key[1][0]] > 1]
    model.gang = pyo.Var(range(len(gangs)), within=pyo.Binary)
    for at, key in enumerate(gangs):
        uses, m = on_server[key], float(c.table.gpus[key[1][0]])
        variables = [*(model.x[i] for i in uses), model.gang[at]]
        model.rows.add(add(variables, [1.0] * len(uses) + [-m]) == 0)
    for j, job in enumerate(problem.jobs):
        need = float(need_of(c.required[j])) if c.spread[j] else 1.0
        variables = [*(model.x[i] for _, i in of_job[j]), model.waits[j]]
        values = [*(got for got, _ in of_job[j]), need]
        total = add(variables, values)
        model.rows.add(total >= need if c.spread[j] else total == need)
        if c.spread[j]:
            # A job that waits has no slots, and no job more than it may use.
            uses = [*(model.x[i] for _, i in of_job[j]), model.waits[j]]
            most = float(job.max_gpus)
            model.rows.add(add(uses, [*([1.0] * len(of_job[j])), most]) <= most)
    variables = [model.x[i] for i in range(len(slots))]
    values = list(watts)
    for server in servers:
        variables.append(model.on[server])
        values.append(c.kinds[c.kind_of[server]].use_w)
    for j in range(len(c.cls)):
        variables.append(model.waits[j])
        values.append(float(c.wait_w[j]))
    model.cost = pyo.Objective(expr=add(variables, values))
    return model, slots
