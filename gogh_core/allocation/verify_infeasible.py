"""Whether a problem really has no plan: any job that is not pinned may wait, so only pins,
drains, quotas and the cap can rule every plan out.

Each proof below is sound: where it speaks, no plan exists. A plan that says `infeasible` without
one of them is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from gogh_core.allocation.options import Option
from gogh_core.allocation.problem import Gpu, Problem, ProblemJob
from gogh_core.allocation.verify_view import View

__all__ = ["infeasible_is_proven"]

INF = float("inf")


def infeasible_is_proven(view: View) -> Iterable[str]:
    """A plan that says `infeasible` changes nothing, gives its reasons, and there is a proof."""
    plan = view.plan
    if plan.placements or plan.moves or plan.stops or plan.servers or plan.waiting:
        yield "an infeasible plan must not place, move, stop, switch or leave anything waiting"
    if not plan.notes:
        yield "an infeasible plan must give its reasons"
    if not any(_proofs(_Pins(view.problem))):
        yield "the plan says infeasible, but pins, drains, quotas and the cap rule nothing out"


class _Pins:
    """The pinned jobs, who shares their GPUs, and the ways each GPU of theirs can be used."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.jobs = [job for job in problem.jobs if job.pinned]
        self.of_class: dict[str, list[ProblemJob]] = {}
        for job in problem.jobs:
            self.of_class.setdefault(job.job_class, []).append(job)
        self.fastest: dict[str, float] = {}
        """The most that one slot gives a spread job of a class."""
        for option in problem.table:
            if option.gpus == 1:
                for name, got in zip(option.classes, option.throughput, strict=True):
                    self.fastest[name] = max(self.fastest.get(name, 0.0), got)
        self.gpus = sum(server.gpus for server in problem.servers if not server.drain)
        self.on_gpu: dict[Gpu, list[ProblemJob]] = {}
        for job in self.jobs:
            for gpu in job.place:
                self.on_gpu.setdefault(gpu, []).append(job)

    def mates(self, job: ProblemJob) -> list[ProblemJob]:
        """Other pinned jobs on its GPUs."""
        found = {m.id: m for gpu in job.place for m in self.on_gpu[gpu] if m.id != job.id}
        return [found[name] for name in sorted(found)]

    def ways(self, job: ProblemJob, gpus: frozenset[Gpu]) -> Iterator[tuple[float, float]]:
        """(throughput, watts) of every option for the job there, alone or with whom it may."""
        problem = self.problem
        (gpu_type,) = {problem.server_of[server].gpu_type for server, _ in gpus}
        mates = {m.id: m for gpu in gpus for m in self.on_gpu[gpu] if m.id != job.id}
        for option in problem.table:
            if option.gpu_type != gpu_type or option.gpus != len(gpus):
                continue
            for mine, got in enumerate(option.throughput):
                if option.classes[mine] != job.job_class or not self.enough(job, got):
                    continue
                if len(option.classes) == 1:
                    if not mates:
                        yield got, option.power_w
                    continue
                other, theirs = option.classes[1 - mine], option.throughput[1 - mine]
                for mate in mates.values() if mates else problem.jobs:
                    if (
                        mate.id == job.id
                        or mate.job_class != other
                        or not self.enough(mate, theirs)
                    ):
                        continue
                    if _consent(job, mate) and self._comes(mate, gpus, pinned=bool(mates)):
                        yield got, option.power_w

    def enough(self, job: ProblemJob, got: float) -> bool:
        """Whether the job can reach what it requires when one of its slots gives so much."""
        need = job.required_throughput
        if job.mode == "spread":
            most = min(job.max_gpus, self.gpus)
            got += (most - 1) * self.fastest.get(job.job_class, 0.0)
        return got >= need - 1e-9 * (1 + need)

    def usable(self, option: Option) -> bool:
        """Whether some job, or two that consent, could run by the option."""
        sides = []
        for name, got in zip(option.classes, option.throughput, strict=True):
            sides.append(
                [
                    job
                    for job in self.of_class.get(name, ())
                    if (option.gpus == 1 if job.mode == "spread" else option.gpus in job.gpu_counts)
                    and self.enough(job, got)
                ]
            )
        if len(sides) == 1:
            return bool(sides[0])
        return any(a.id != b.id and _consent(a, b) for a in sides[0] for b in sides[1])

    def _comes(self, mate: ProblemJob, gpus: frozenset[Gpu], *, pinned: bool) -> bool:
        """Whether the mate can be on exactly these GPUs, and its owner's quota allows it."""
        held = sum(len(job.place) for job in self.jobs if job.owner == mate.owner)
        if not mate.pinned and held + len(gpus) > self.problem.quotas.get(mate.owner, INF):
            return False
        moves = mate.movable and self.problem.max_moves != 0
        stays = mate.pinned or pinned or (bool(mate.at) and not moves)
        if mate.mode == "gang":
            return len(gpus) in mate.gpu_counts and (not stays or mate.place == gpus)
        return len(gpus) == 1 and (not stays or gpus <= mate.place)


def _consent(a: ProblemJob, b: ProblemJob) -> bool:
    if a.shareable is False or b.shareable is False:
        return False
    return a.owner == b.owner or (a.shareable is True and b.shareable is True)


def _proofs(pins: _Pins) -> Iterator[str]:
    for job in pins.jobs:
        yield from _cannot_stay(pins, job)
    yield from _quotas(pins)
    yield from _cap(pins)


def _cannot_stay(pins: _Pins, job: ProblemJob) -> Iterator[str]:
    """A pinned job that nothing lets run where it is."""
    problem = pins.problem
    servers = {problem.server_of[server] for server, _ in job.place}
    if any(server.drain for server in servers):
        yield f"{job.id} is pinned to a server that is to be drained"
    if job.mode == "spread":
        if len(job.place) > job.max_gpus:
            yield f"{job.id} has more GPUs than it may"
        each = [pins.ways(job, frozenset([gpu])) for gpu in job.place]
        best = [max((got for got, _ in ways), default=-INF) for ways in each]
        if sum(best) < job.required_throughput - 1e-9 * (1 + job.required_throughput):
            yield f"{job.id} does not reach what it requires where it is"
        return
    count, largest = len(job.place), problem.largest[next(iter(servers)).gpu_type]
    whole = len(servers) == 1 if count <= largest else sum(s.gpus for s in servers) == count
    if count not in job.gpu_counts or not whole:
        yield f"{job.id} is where no gang of its kind may be"
    elif not any(True for _ in pins.ways(job, job.place)):
        yield f"{job.id} has no option where it is"


def _quotas(pins: _Pins) -> Iterator[str]:
    """An owner whose pinned jobs alone hold more than the quota."""
    held: Counter[str] = Counter()
    for job in pins.jobs:
        held[job.owner] += len(job.place)
    for owner, quota in pins.problem.quotas.items():
        if held[owner] > quota:
            yield f"{owner} holds more than the quota by pinned jobs alone"


def _cap(pins: _Pins) -> Iterator[str]:
    """What has to be on draws more than the cap, in two ways to say what it draws at least."""
    cap_w = pins.problem.power_cap_w
    if cap_w is None:
        return
    idle = pins.problem.gpu_types
    total = _pinned_w(pins) + max(
        _servers_w(pins, _least_w(pins)),
        _servers_w(pins, idle) - sum(_saves_w(pins, job) for job in pins.problem.jobs),
    )
    if total > cap_w * (1 + 1e-9) + 1e-9:
        yield f"what has to be on draws {total:.1f} W"


def _least_w(pins: _Pins) -> dict[str, float]:
    """The least that a GPU of each type draws, idle or used."""
    least = dict(pins.problem.gpu_types)
    for option in pins.problem.table:
        each = option.power_w / option.gpus
        if each < least.get(option.gpu_type, INF) and pins.usable(option):
            least[option.gpu_type] = each
    return least


def _saves_w(pins: _Pins, job: ProblemJob) -> float:
    """The most by which the job draws less than idle GPUs; of a pair each has its half."""
    if job.pinned:
        return 0.0
    best = 0.0
    for option in pins.problem.table:
        fits = option.gpus == 1 if job.mode == "spread" else option.gpus in job.gpu_counts
        less = option.gpus * pins.problem.gpu_types.get(option.gpu_type, 0.0) - option.power_w
        less /= len(option.classes)
        if fits and less > best and job.job_class in option.classes:
            mine = [
                got
                for name, got in zip(option.classes, option.throughput, strict=True)
                if name == job.job_class
            ]
            if pins.enough(job, max(mine)) and pins.usable(option):
                best = less
    return best * (min(job.max_gpus, pins.gpus) if job.mode == "spread" else 1)


def _servers_w(pins: _Pins, least: Mapping[str, float]) -> float:
    """What servers draw at least, their free GPUs each so much; off where they may be."""
    total, pinned = 0.0, {gpu[0] for gpu in pins.on_gpu}
    for server in pins.problem.servers:
        idle = pins.problem.gpu_types[server.gpu_type]
        each = idle if server.drain else least[server.gpu_type]
        free = sum((server.id, gpu) not in pins.on_gpu for gpu in range(server.gpus))
        used_w = server.base_w + free * each
        if server.keep_on or server.id in pinned:
            total += used_w
        else:
            total += server.off_w if server.drain else min(server.off_w, used_w)
    return total


def _pinned_w(pins: _Pins) -> float:
    """What pinned jobs draw at least where they are."""
    total = 0.0
    counted: set[Gpu] = set()
    for job in pins.jobs:
        for gpus in [job.place] if job.mode == "gang" else [frozenset([gpu]) for gpu in job.place]:
            if not gpus & counted:
                total += min((watts for _, watts in pins.ways(job, gpus)), default=0.0)
                counted |= gpus
    return total
