"""What plans draw, and what the same jobs would draw under best fit: the one place for watts.

The whole draw of a plan is the plan's own figure (`spent["power_w"]`, which the verifier adds up
again). Here are the draw of what runs now (`draw_now`), the part of each job (`watts_by_job`), and
the reference every saving is told against (`reference`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gogh_core import hardware
from gogh_core.allocation import Problem, ProblemJob, greedy
from gogh_core.domain import Plan
from gogh_core.errors import GoghError

__all__ = ["REFERENCE", "Limits", "Reference", "draw_now", "planned_w", "reference", "watts_by_job"]

REFERENCE = "best fit"
"""The name of what every saving is told against: best fit by energy on the same estimates."""

Way = tuple[str, int, tuple[str, ...], float | None]
"""How an option is looked up: GPU type, GPUs, classes in order, power limit."""
Limits = Mapping[tuple[str, int], float | None]
"""Power limits in force by server and GPU; a GPU that is missing has its default limit."""


def planned_w(plan: Plan) -> float:
    """What the cluster draws under the plan; penalties and worth of steps are no watts."""
    return float(plan.spent.get("power_w", 0.0))


def watts_by_job(problem: Problem, plan: Plan) -> dict[str, float]:
    """Watts of each placed job's GPUs; two jobs that share count half each."""
    ways: list[tuple[str, Way, int]] = []
    for placement in plan.placements:
        jobs = [placement.job, *([placement.partner] if placement.partner else [])]
        kind = problem.server_of[placement.slots[0].server].gpu_type
        gpus = sum(len(slot.gpus) for slot in placement.slots)
        classes = tuple(sorted(problem.job_of[job].job_class for job in jobs))
        ways.append((placement.job, (kind, gpus, classes, placement.power_limit_w), len(jobs)))
    power = _power(problem, (way for _, way, _ in ways))
    watts: dict[str, float] = {}
    for job, way, sharing in ways:
        watts[job] = watts.get(job, 0.0) + power[way] / sharing
    return watts


def draw_now(problem: Problem, limits: Limits | None = None) -> float:
    """What the present arrangement draws, by the problem's own options and these power limits."""
    limits = limits or {}
    users: dict[tuple[str, int], list[ProblemJob]] = {}
    for job in problem.jobs:
        for place in job.place:
            users.setdefault(place, []).append(job)
    ways: dict[frozenset[tuple[str, int]], Way] = {}
    for job in problem.jobs:
        # A gang draws as one option over all its GPUs, a replica on each of its own.
        parts = [job.place] if job.mode == "gang" and job.at else [{p} for p in job.place]
        for cells in map(frozenset, parts):
            name, gpu = next(iter(cells))
            sharing = sorted({user.job_class for cell in cells for user in users[cell]})
            if len(sharing) == 1 and any(len(users[cell]) > 1 for cell in cells):
                sharing *= 2  # two jobs of one class
            kind = problem.server_of[name].gpu_type
            ways[cells] = (kind, len(cells), tuple(sharing), limits.get((name, gpu)))
    power = _power(problem, ways.values())
    total = sum(power[way] for way in ways.values())
    for server in problem.servers:
        total += server.base_w if server.on else server.off_w
        if server.on:
            idle = sum((server.id, gpu) not in users for gpu in range(server.gpus))
            total += idle * problem.gpu_types[server.gpu_type]
    return float(total)


def _power(problem: Problem, ways: Iterable[Way]) -> dict[Way, float]:
    """Watts of each way; where no option is known, what its GPUs draw at most."""
    wanted = set(ways)
    table = problem.table
    names = {name for way in wanted for name in way[2]}
    codes = {code for code, name in enumerate(table.classes) if name in names} | {-1}
    found: dict[Way, float] = {}
    for row, (a, b) in enumerate(zip(table.class_a.tolist(), table.class_b.tolist(), strict=True)):
        if a in codes and b in codes:
            option = table[row]
            way = (option.gpu_type, option.gpus, option.classes, option.power_limit_w)
            if way in wanted:
                found[way] = option.power_w
    for way in wanted - found.keys():
        kind, gpus, classes, limit = way
        most = limit or hardware.get(kind).max_w
        usual = None if limit is None else _power(problem, [(kind, gpus, classes, None)])
        found[way] = gpus * most if usual is None else min(gpus * most, *usual.values())
    return found


@dataclass(frozen=True, slots=True)
class Reference:
    """What best fit by energy would draw for the jobs that a plan runs, at the same service.

    Best fit takes the same jobs, promises, options and servers, and gives each job in turn the
    place that adds the least, alone or sharing. It may place everybody afresh, pays for no move and
    no switch, and has no cap to keep. Steps beyond a promise count for both sides at what a step is
    worth in the problem, so that less work is no saving.
    """

    draw_w: float
    saved_w: float
    """Watts the plan saves on it; negative when the plan draws more."""
    left_out: int = 0
    """Jobs of the plan that best fit finds no place for; then the two are not comparable."""

    @property
    def share(self) -> float | None:
        """What is saved, as a share of what best fit draws; None where it cannot be told."""
        return self.saved_w / self.draw_w if self.draw_w > 0 and not self.left_out else None

    def __str__(self) -> str:
        """Such as `saves 690 W (12 %) on best fit`."""
        if self.left_out:
            return f"{REFERENCE} leaves {self.left_out} of them waiting"
        share = "" if self.share is None else f" ({abs(self.share) * 100:.0f} %)"
        if self.saved_w >= 0:
            return f"saves {self.saved_w:,.0f} W{share} on {REFERENCE}"
        return f"draws {-self.saved_w:,.0f} W{share} more than {REFERENCE}"

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "name": REFERENCE,
            "draw_w": self.draw_w,
            "saved_w": None if self.left_out else self.saved_w,
            "share": self.share,
            "left_out": self.left_out,
        }


def reference(problem: Problem, plan: Plan) -> Reference | None:
    """The reference of a plan; None when the plan runs nothing, or best fit gives no plan."""
    placed = {placement.job for placement in plan.placements}
    if not placed:
        return None
    jobs = [
        job if job.pinned else replace(job, at=(), movable=True, since_s=None, moved_ago_s=None)
        for job in problem.jobs
        if job.id in placed or job.pinned
    ]
    servers = [replace(server, switch_cost_j=0.0) for server in problem.servers]
    afresh = replace(
        problem, jobs=jobs, servers=servers, power_cap_w=None, max_moves=None, quotas={}
    )
    try:
        other = greedy(afresh)
    except GoghError:
        return None
    if other.status == "infeasible":
        return None
    worth_w = float(plan.spent["surplus_w"]) - float(other.spent["surplus_w"])
    saved_w = planned_w(other) - planned_w(plan) + worth_w
    return Reference(planned_w(other), saved_w, len(other.waiting))
