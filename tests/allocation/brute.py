"""The best plan by trying everything: for problems of up to six jobs and six GPUs.

Nothing of the planner is used: jobs are put on GPUs one after the other in every way the options
allow, and what is finished is costed by the formula of the problem. Two things are left out
because they cannot be better: GPUs that are equal to one already tried, and beginnings whose
waiting, moves and servers alone cost more than the best plan so far.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from gogh_core.allocation import Option, Problem

INF = float("inf")


def best_cost(problem: Problem, *, runs: tuple[str, Option | None] | None = None) -> float:
    """The least cost of any plan, or infinity if none keeps all pins and the cap.

    With `runs` only plans count in which that job runs, by that option if one is given.
    """
    return _Brute(problem, runs).run()


class _Brute:
    def __init__(self, problem: Problem, runs: tuple[str, Option | None] | None) -> None:
        self.p = problem
        self.runs, self.by = runs or (None, None)
        self.options: list[Option] = list(problem.table)
        self.gpus = [(s.id, g) for s in problem.servers if not s.drain for g in range(s.gpus)]
        self.held = {gpu for job in problem.jobs for gpu in job.place}
        self.best = INF
        self.earned = sum(self.most_earned(job) for job in problem.jobs)
        on = [s for s in problem.servers if s.keep_on]
        self.always = sum(s.base_w for s in on)

    def most_earned(self, job) -> float:
        """The most that a job's surplus can take off the cost."""
        reach = max(
            (
                got
                for o in self.options
                for c, got in zip(o.classes, o.throughput, strict=True)
                if c == job.job_class
            ),
            default=0.0,
        )
        return job.surplus_j_per_step * reach * (job.max_gpus if job.mode == "spread" else 1)

    def run(self) -> float:
        self.search(0, {}, {}, 0.0)
        return self.best

    def search(self, index: int, users: dict, placed: dict, spent: float) -> None:
        """users: GPU -> list of job indices; placed: job index -> list of GPU sets."""
        used = {server for server, _ in users}
        servers = [s for s in self.p.servers if s.id in used and not s.keep_on]
        if spent + self.always + sum(s.base_w for s in servers) - self.earned > self.best + 1e-6:
            return
        if index == len(self.p.jobs):
            self.best = min(self.best, self.cost(users, placed))
            return
        job = self.p.jobs[index]
        moving = job.move_cost_j / self.p.window_s if job.at else 0.0
        for groups in self.ways(index, users):
            there = frozenset(gpu for group in groups for gpu in group)
            if job.pinned and there != job.place:
                continue
            if job.at and not job.movable and there != job.place:
                continue
            new = {gpu: list(names) for gpu, names in users.items()}
            for gpu in there:
                new.setdefault(gpu, []).append(index)
            more = moving if there != job.place else 0.0
            self.search(index + 1, new, {**placed, index: groups}, spent + more)
        if not job.pinned and job.id != self.runs:
            more = moving + job.priority * self.p.waiting_penalty_w
            self.search(index + 1, users, placed, spent + more)

    def ways(self, index: int, users: dict) -> Iterator[list]:
        """GPUs for a job, in groups: one for a gang, one for each GPU of a spread job."""
        job, p = self.p.jobs[index], self.p
        room = [gpu for gpu in self.gpus if len(users.get(gpu, ())) < 2]
        if job.mode == "spread":
            for count in range(1, job.max_gpus + 1):
                for chosen in self.differing(room, count, users):
                    yield [(gpu,) for gpu in chosen]
            return
        for count in job.gpu_counts:
            for t in p.gpu_types:
                here = [gpu for gpu in room if p.server_of[gpu[0]].gpu_type == t]
                largest = p.largest.get(t, 0)
                for chosen in self.differing(here, count, users):
                    servers = {gpu[0] for gpu in chosen}
                    if count <= largest:
                        if len(servers) == 1:
                            yield [chosen]
                    elif sum(p.server_of[s].gpus for s in servers) == count:
                        yield [chosen]

    def differing(self, room: list, count: int, users: dict) -> Iterator[tuple]:
        """Combinations of GPUs; of those that nobody has or had on a server, the first ones."""
        fresh = {gpu for gpu in room if gpu not in users and gpu not in self.held}
        for chosen in combinations(room, count):
            taken = set(chosen)
            lower = [(s, i) for s, g in taken & fresh for i in range(g)]
            if all(gpu in taken or gpu not in fresh for gpu in lower):
                yield chosen

    def cost(self, users: dict, placed: dict) -> float:
        p = self.p
        total, power = 0.0, 0.0
        got = dict.fromkeys(placed, 0.0)
        used: dict[str, set[int]] = {}
        for server, gpu in users:
            used.setdefault(server, set()).add(gpu)
        for server in p.servers:
            on = server.keep_on or server.id in used
            if on:
                idle = server.gpus - len(used.get(server.id, ()))
                power += server.base_w + idle * p.gpu_types[server.gpu_type]
            else:
                power += server.off_w
            total += (on != server.on) * server.switch_cost_j / p.window_s
        held: dict[str, int] = {}
        moved = 0
        units: dict[frozenset, list[int]] = {}
        for index, groups in placed.items():
            job = p.jobs[index]
            held[job.owner] = held.get(job.owner, 0) + sum(len(group) for group in groups)
            there = frozenset(gpu for group in groups for gpu in group)
            if job.at and there != job.place:
                moved += 1
                total += job.move_cost_j / p.window_s
            for group in groups:
                units.setdefault(frozenset(group), []).append(index)
        for index, job in enumerate(p.jobs):
            if index not in placed:
                total += job.priority * p.waiting_penalty_w
                total += bool(job.at) * job.move_cost_j / p.window_s
        if p.max_moves is not None and moved > p.max_moves:
            return INF
        if any(held.get(owner, 0) > quota for owner, quota in p.quotas.items()):
            return INF
        choices = []
        for gpus, names in units.items():
            if any(len(users[gpu]) != len(names) for gpu in gpus):
                return INF  # shares only some of its GPUs
            found = self.running(gpus, names)
            if not found:
                return INF
            choices.append(found)
        return total + self.choose(choices, 0, got, power)

    def running(self, gpus: frozenset, names: list[int]):
        """Ways to run these jobs on these GPUs: (watts, {job: throughput})."""
        p = self.p
        jobs = [p.jobs[name] for name in names]
        if len(jobs) > 2 or (len(jobs) == 2 and names[0] == names[1]):
            return []
        if len(jobs) == 2:
            a, b = jobs
            if a.shareable is False or b.shareable is False:
                return []
            if "owner" in (a.shareable, b.shareable) and a.owner != b.owner:
                return []
        t = p.server_of[next(iter(gpus))[0]].gpu_type
        found = []
        for option in self.options:
            if option.gpu_type != t or option.gpus != len(gpus):
                continue
            if self.by not in (None, option) and self.runs in [job.id for job in jobs]:
                continue
            if sorted(option.classes) != sorted(job.job_class for job in jobs):
                continue
            reached = {}
            for name, job in zip(names, jobs, strict=True):
                reached[name] = option.throughput[option.classes.index(job.job_class)]
            if all(
                job.mode == "spread" or reached[name] >= job.required_throughput - 1e-9
                for name, job in zip(names, jobs, strict=True)
            ):
                found.append((option.power_w, reached))
        return found

    def choose(self, choices: list, at: int, got: dict, power: float) -> float:
        p = self.p
        if at == len(choices):
            if p.power_cap_w is not None and power > p.power_cap_w + 1e-9:
                return INF
            total = power
            for index, reached in got.items():
                job = p.jobs[index]
                if reached < job.required_throughput - 1e-9:
                    return INF
                total -= job.surplus_j_per_step * (reached - job.required_throughput)
            return total
        best = INF
        for watts, reached in choices[at]:
            new = dict(got)
            for index, value in reached.items():
                new[index] += value
            best = min(best, self.choose(choices, at + 1, new, power + watts))
        return best
