"""Random small problems with every optional field, for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from gogh_core.allocation import Option, Problem, ProblemJob, ProblemServer
from gogh_core.domain import Slot

CLASSES = ("A", "B", "C")
watts = st.integers(0, 40).map(lambda n: 10.0 * n)


@st.composite
def problems(draw, max_jobs: int = 4, max_gpus: int = 4, spread: bool = True) -> Problem:
    types = draw(st.sampled_from([("t",), ("t", "u")]))
    servers, left = [], max_gpus
    for index in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 2))
        if size > left:
            break
        left -= size
        servers.append(
            ProblemServer(
                f"s{index}",
                draw(st.sampled_from(types)),
                size,
                draw(watts),
                on=draw(st.booleans()),
                drain=draw(st.integers(0, 7)) == 0,
                keep_on=draw(st.integers(0, 7)) == 0,
                off_w=draw(st.sampled_from([0.0, 0.0, 10.0])),
                switch_cost_j=draw(st.sampled_from([0.0, 0.0, 9000.0])),
            )
        )
    options = []
    for t in types:
        for m in (1, 2):
            for a, first in enumerate(CLASSES):
                if draw(st.integers(0, 3)):
                    options.append(
                        Option(t, m, (first,), (draw(st.integers(1, 9)) * 1.0,), draw(watts))
                    )
                if m == 1 and draw(st.integers(0, 4)) == 0:
                    limited = draw(st.integers(1, 6)) * 1.0
                    options.append(Option(t, m, (first,), (limited,), draw(watts), 100.0))
                for second in CLASSES[a:]:
                    if draw(st.integers(0, 2)):
                        mine = draw(st.integers(1, 8)) * 1.0
                        other = mine if first == second else draw(st.integers(1, 8)) * 1.0
                        options.append(Option(t, m, (first, second), (mine, other), draw(watts)))
    known = {name for option in options for name in option.classes}
    users: dict[tuple[str, int], int] = {}
    jobs = []
    for index in range(draw(st.integers(1, max_jobs))):
        name = draw(st.sampled_from(CLASSES))
        if name not in known or not servers:
            continue
        mode = "spread" if spread and draw(st.integers(0, 3)) == 0 else "gang"
        sizes = {server.gpus for server in servers}
        counts = draw(st.sampled_from([(1,), (1, 2), (2,)]))
        if mode == "gang" and max(counts) > max(sizes):
            counts = (1,)
        at = _place(draw, servers, users, mode, counts)
        jobs.append(
            ProblemJob(
                f"j{index}",
                name,
                mode,
                counts,
                draw(st.integers(max(1, len(at)), 2)) if mode == "spread" else 1,
                required_throughput=draw(st.integers(0, 8)) * 1.0,
                priority=draw(st.sampled_from([0.5, 1.0, 2.0])),
                shareable=draw(st.sampled_from([True, True, False, "owner"])),
                at=at,
                move_cost_j=draw(st.sampled_from([0.0, 3000.0, 30000.0])),
                owner=draw(st.sampled_from(["x", "y"])),
                pinned=bool(at) and draw(st.integers(0, 9)) == 0,
                movable=draw(st.integers(0, 7)) != 0,
                surplus_j_per_step=draw(st.sampled_from([0.0, 0.0, 0.0, 5.0])),
            )
        )
    return Problem(
        300.0,
        draw(st.sampled_from([100.0, 500.0, 5000.0])),
        dict.fromkeys(types, 10.0),
        servers,
        jobs,
        options,
        power_cap_w=draw(st.sampled_from([None, None, None, 800.0])),
        max_moves=draw(st.sampled_from([None, None, 0, 1])),
        quotas=draw(st.sampled_from([{}, {}, {"x": 2}])),
    )


def _place(draw, servers, users, mode, counts) -> tuple[Slot, ...]:
    if draw(st.integers(0, 1)):
        return ()
    server = draw(st.sampled_from(servers))
    if not server.on:
        return ()
    size = draw(st.sampled_from(counts)) if mode == "gang" else 1
    if size > server.gpus:
        return ()
    first = draw(st.integers(0, server.gpus - size))
    gpus = tuple(range(first, first + size))
    if any(users.get((server.id, gpu), 0) > 1 for gpu in gpus):
        return ()
    for gpu in gpus:
        users[server.id, gpu] = users.get((server.id, gpu), 0) + 1
    return (Slot(server.id, gpus),)
