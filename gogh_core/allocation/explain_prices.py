"""What alternatives would cost by the prices in a plan's certificate: quick, and only about.

A price says what a GPU, a place under the quota, a move or a watt under the cap is worth to the
other jobs. It holds for a little more or less of each. Where the proof branched, the prices are
those of the largest part of the plans (the leaf nearest to the root), and nothing is called scarce.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from gogh_core.allocation.compiled import Compiled, need_of
from gogh_core.allocation.problem import Problem, ProblemJob
from gogh_core.domain import Plan

__all__ = ["Estimates"]

_TOGETHER = "watts and penalties together, by the prices in the plan"


class Estimates:
    """Options of one job, ordered and priced."""

    def __init__(self, problem: Problem, plan: Plan, job: ProblemJob) -> None:
        self.problem, self.plan, self.job = problem, plan, job
        self.c = c = Compiled(problem)
        self.index = next(i for i, other in enumerate(problem.jobs) if other.id == job.id)
        self.leaf, self.branched = _leaf(plan.certificate)
        self.price = [kind.use_w / kind.size for kind in c.kinds]
        self.value, self.cap = [0.0] * len(problem.jobs), 0.0
        self.quotas: dict[str, float] = {}
        self.known = self._read()
        here = c.sides(int(c.cls[self.index]))
        self.rows, self.got = c.side_row[here], c.side_got[here]
        self.usable = c.groups[c.group_of[self.index]].usable.copy()
        self.cost = np.array([self._cost(int(row)) for row in self.rows])
        self.usable &= np.isfinite(self.cost)

    def _read(self) -> bool:
        """Take the prices over from the certificate; False where it has none that can be read."""
        leaf = self.leaf
        try:
            price = [float(value) for value in leaf["capacity"]]
            value = [float(value) for value in leaf["jobs"]]
            cap = float(leaf.get("cap", 0.0))
            quotas = {str(o): float(w) for o, w in (leaf.get("quotas") or {}).items()}
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            self.leaf = {}
            return False
        if len(price) != len(self.c.kinds) or len(value) != len(self.problem.jobs):
            return False
        self.price, self.value, self.cap, self.quotas = price, value, cap, quotas
        return True

    def order(self) -> list[int]:
        """Rows of the options the job could take, cheapest first."""
        order = np.argsort(np.where(self.usable, self.cost, np.inf), kind="stable")
        return [int(self.rows[at]) for at in order.tolist() if self.usable[at]]

    def _cost(self, row: int) -> float:
        """What the plan would cost more, about: the option and its GPUs less what the job and
        the partner who gains most from it are worth by their prices.
        """
        c, table = self.c, self.c.table
        t, m = int(table.type_id[row]), int(table.gpus[row])
        prices = [self.price[k.index] for k in c.kinds if k.gpu_type == t]
        if not prices:
            return float("inf")
        cost_w = float(c.net_w[row]) * (1 + self.cap) + m * min(prices)
        a, b = int(table.class_a[row]), int(table.class_b[row])
        mine, other = (a, b) if a == c.cls[self.index] else (b, a)
        cost_w -= self._worth(self.index, row, mine)
        if other < 0:
            return cost_w
        worth = [
            self._worth(j, row, other)
            for j in c.members.get(other, ())
            if c.consent(self.index, j) and self._enough(j, row, other)
        ]
        return cost_w - max(worth) if worth else float("inf")

    def _got(self, row: int, cls: int) -> float:
        table = self.c.table
        got = table.throughput_a if table.class_a[row] == cls else table.throughput_b
        return float(got[row])

    def _enough(self, j: int, row: int, cls: int) -> bool:
        enough = self._got(row, cls) >= need_of(self.c.required[j])
        return bool(self.c.spread[j] or enough)

    def _worth(self, j: int, row: int, cls: int) -> float:
        """A job's price, and its surplus, less what it pays for its quota."""
        job, gpus = self.problem.jobs[j], int(self.c.table.gpus[row])
        surplus = job.surplus_j_per_step * (self._got(row, cls) - job.required_throughput)
        return self.value[j] + surplus - self.quotas.get(job.owner, 0.0) * gpus

    def name(self, row: int) -> str:
        """The option in words."""
        option = self.c.table[row]
        gpus = f"{option.gpus} {option.gpu_type}"
        limit = "" if option.power_limit_w is None else f" at {option.power_limit_w:g} W"
        mine = option.classes.index(self.job.job_class)
        got = f"throughput {option.throughput[mine]:g}"
        if len(option.classes) == 1:
            return f"Alone on {gpus}{limit} ({got})"
        return f"Sharing {gpus} with {option.classes[1 - mine]}{limit} ({got})"

    def ways(self, most: int, taken: set[int]) -> list[tuple[str, float]]:
        """The cheapest options that were not taken and what the plan would cost more, about."""
        if not self.known or self.job.mode == "spread":
            return []
        cost = {int(row): float(w) for row, w in zip(self.rows, self.cost, strict=True)}
        rows = [row for row in self.order() if row not in taken][:most]
        return [(self.name(row), max(0.0, cost[row])) for row in rows]

    def binding(self) -> tuple[str, ...]:
        """What is scarce, by its price; prices of a part of the plans do not say."""
        told: list[str] = []
        if self.branched:
            return ()
        servers = self.leaf.get("whole") or []
        for kind in self.c.kinds if len(servers) == len(self.c.kinds) else ():
            saved = float(servers[kind.index])
            if saved > 1 and kind.gpu_type in self._types():
                what = f"{kind.size} {self.c.table.types[kind.gpu_type]}"
                told.append(
                    f"Servers with {what} are scarce: one more would lower the cost by about "
                    f"{saved:.0f}, {_TOGETHER}."
                )
        quota = float((self.leaf.get("quotas") or {}).get(self.job.owner, 0.0))
        if quota > 1:
            told.append(
                f"The quota of {self.job.owner!r} binds: one more GPU would lower the cost by "
                f"about {quota:.0f}, {_TOGETHER}."
            )
        if float(self.leaf.get("moves", 0.0)) > 1:
            told.append(f"The limit on moves binds: one more would lower the cost, {_TOGETHER}.")
        if float(self.leaf.get("cap", 0.0)) > 1e-6:
            told.append("The power cap binds: jobs are placed where they draw less.")
        return tuple(told)

    def _types(self) -> set[int]:
        return {int(t) for t in self.c.table.type_id[self.rows[self.usable]]}

    def changes(self) -> Iterator[str]:
        """What would have to change for a waiting job, about."""
        c, job = self.c, self.job
        fits = np.isfinite(self.cost)
        if job.mode == "gang":
            fits &= np.isin(c.table.gpus[self.rows], job.gpu_counts)
        if not self.usable.any() and fits.any():
            most = self.got[fits].max()
            yield f"a requirement of at most {most:g}, if it then is worth its watts"
        elif self.usable.any() and self.known and self.problem.waiting_penalty_w > 0:
            more = float(self.cost[self.usable].min()) / self.problem.waiting_penalty_w
            yield f"a priority above about {job.priority + max(more, 0.0):.3g}"


def _leaf(certificate: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The prices of the leaf nearest to the root, and whether the proof branched."""
    front: list[Any] = [certificate.get("root", {})]
    while front:
        after: list[Any] = []
        for node in front:
            if not isinstance(node, Mapping):
                continue
            if "split" not in node:
                return node, node is not certificate.get("root")
            after += [node.get("low"), node.get("high")]
        front = after
    return {}, False
