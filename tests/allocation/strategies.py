"""Random small problems with every optional field, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from gogh_core.allocation import Limits, Option, Problem, ProblemJob, ProblemServer
from gogh_core.domain import Slot

CLASSES = ("A", "B", "C")
watts = st.integers(0, 40).map(lambda n: 10.0 * n)


def rarely(draw, one_in: int = 8) -> bool:
    """True once in about so many draws."""
    return draw(st.integers(0, one_in - 1)) == 0


@st.composite
def problems(draw, max_jobs: int = 4, max_gpus: int = 4, spread: bool = True) -> Problem:
    """At most so many jobs and GPUs; every optional field of a problem is drawn."""
    types = draw(st.sampled_from([("t",), ("t", "u")]))
    servers = draw(_servers(types, max_gpus))
    options = draw(_options(types, max(server.gpus for server in servers)))
    known = {name for option in options for name in option.classes}
    users: dict[tuple[str, int], int] = {}
    jobs = []
    for index in range(draw(st.integers(1, max_jobs))):
        name = draw(st.sampled_from(CLASSES))
        if name in known:
            jobs.append(_job(draw, f"j{index}", name, servers, users, spread))
    return Problem(
        300.0,
        draw(st.sampled_from([100.0, 500.0, 5000.0])),
        {name: draw(st.sampled_from([10.0, 10.0, 0.0, 60.0])) for name in types},
        servers,
        jobs,
        options,
        power_cap_w=draw(st.sampled_from([None, None, None, 400.0, 800.0])),
        max_moves=draw(st.sampled_from([None, None, 0, 1])),
        quotas=draw(st.sampled_from([{}, {}, {"x": 2}, {"x": 1, "y": 2}])),
        limits=Limits(60.0, 120.0) if rarely(draw, 6) else Limits(),
    )


@st.composite
def _servers(draw, types, max_gpus: int) -> list[ProblemServer]:
    servers, left = [], max_gpus
    for index in range(draw(st.integers(1, 3))):
        size = draw(st.sampled_from([1, 2, 2, 3]))
        if servers and size > left:
            break
        left -= size
        servers.append(
            ProblemServer(
                f"s{index}",
                draw(st.sampled_from(types)),
                size,
                draw(watts),
                on=draw(st.booleans()),
                drain=rarely(draw),
                keep_on=rarely(draw),
                off_w=draw(st.sampled_from([0.0, 0.0, 10.0])),
                switch_cost_j=draw(st.sampled_from([0.0, 0.0, 9000.0])),
            )
        )
    return servers


@st.composite
def _options(draw, types, largest: int) -> list[Option]:
    """Alone and in pairs, on one or two GPUs and on two whole servers, some at two limits."""
    options = []
    for t in types:
        for m in sorted({1, 2, 2 * largest if rarely(draw, 3) else 1}):
            for a, first in enumerate(CLASSES):
                if draw(st.integers(0, 3)):
                    speed = draw(st.integers(0, 9)) * 1.0
                    options.append(Option(t, m, (first,), (speed,), draw(watts)))
                if rarely(draw, 5):
                    limited = draw(st.integers(1, 6)) * 1.0
                    options.append(Option(t, m, (first,), (limited,), draw(watts), 100.0))
                for second in CLASSES[a:]:
                    for limit in (None, 150.0) if rarely(draw, 6) else (None,):
                        if draw(st.integers(0, 2)):
                            mine = draw(st.integers(1, 8)) * 1.0
                            other = mine if first == second else draw(st.integers(1, 8)) * 1.0
                            pair = (first, second), (mine, other)
                            options.append(Option(t, m, *pair, draw(watts), limit))
    return options


def _job(draw, name, job_class, servers, users, spread) -> ProblemJob:
    mode = "spread" if spread and rarely(draw, 4) else "gang"
    largest = max(server.gpus for server in servers)
    counts = draw(st.sampled_from([(1,), (1, 2), (2,), (2 * largest,)]))
    whole = sum(1 for server in servers if server.gpus == largest) > 1
    same_type = len({s.gpu_type for s in servers if s.gpus == largest}) == 1
    if mode == "gang" and max(counts) > largest and not (whole and same_type):
        counts = (1,)
    at = _place(draw, servers, users, mode, counts)
    return ProblemJob(
        name,
        job_class,
        mode,
        counts,
        draw(st.integers(max(1, len(at)), 3)) if mode == "spread" else 1,
        required_throughput=draw(st.integers(0, 8)) * 1.0,
        priority=draw(st.sampled_from([0.5, 1.0, 2.0])),
        shareable=draw(st.sampled_from([True, True, False, "owner"])),
        at=at,
        move_cost_j=draw(st.sampled_from([0.0, 3000.0, 30000.0])),
        owner=draw(st.sampled_from(["x", "y"])),
        pinned=bool(at) and rarely(draw, 4),
        movable=not rarely(draw),
        since_s=draw(st.sampled_from([None, 30.0, 600.0])),
        moved_ago_s=draw(st.sampled_from([None, None, 30.0])),
        moves=draw(st.integers(0, 2)),
        surplus_j_per_step=draw(st.sampled_from([0.0, 0.0, 0.0, 5.0])),
    )


def _place(draw, servers, users, mode, counts) -> tuple[Slot, ...]:
    """Where a job runs now: a gang on one server, a spread job on one or two GPUs anywhere."""
    if draw(st.integers(0, 1)):
        return ()
    sizes = [draw(st.sampled_from(counts))] if mode == "gang" else [1] * draw(st.integers(1, 2))
    slots: list[Slot] = []
    for size in sizes:
        server = draw(st.sampled_from(servers))
        if not server.on or size > server.gpus:
            continue
        first = draw(st.integers(0, server.gpus - size))
        gpus = tuple(range(first, first + size))
        taken = any(users.get((server.id, gpu), 0) > 1 for gpu in gpus)
        if taken or Slot(server.id, gpus) in slots:
            continue
        for gpu in gpus:
            users[server.id, gpu] = users.get((server.id, gpu), 0) + 1
        slots.append(Slot(server.id, gpus))
    return tuple(slots)
