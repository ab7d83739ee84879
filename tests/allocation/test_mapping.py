"""Mapping counts to servers: rounding may count a job twice, and it is seated once."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from gogh_core.allocation import Option, Problem, ProblemJob, ProblemServer
from gogh_core.allocation.compiled import Compiled
from gogh_core.allocation.mapping import map_counts
from gogh_core.domain import Slot

AT = (Slot("s", (0,)),)


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    """A gang and a replica that share a GPU, beside a free one."""
    return Compiled(
        Problem(
            window_s=300,
            waiting_penalty_w=10_000,
            gpu_types={"v100": 40.0},
            servers=[ProblemServer("s", "v100", 2, 200.0)],
            jobs=[
                ProblemJob("gang", "A", at=AT),
                ProblemJob("spread", "B", mode="spread", required_throughput=5.0, at=AT),
            ],
            options=[
                Option("v100", 1, ("A",), (4.0,), 150.0),
                Option("v100", 1, ("B",), (6.0,), 160.0),
                Option("v100", 1, ("A", "B"), (3.0, 5.0), 220.0),
            ],
        )
    )


def columns(c: Compiled) -> list[tuple[Any, ...]]:
    """Every way in which the two may be named: alone, together, and by their groups."""
    pair = next(r for r in range(len(c.pair)) if c.pair[r])
    gang, spread = int(c.group_of[0]), int(c.group_of[1])
    return [
        ("keep", 0, ((pair, 0, "s", 0, -2),)),
        ("keep", 1, ((pair, 1, "s", 0, -2),)),
        ("both", 0, 1, pair),
        ("host", 0, pair, 0, 0),
        ("stay", 0, int(c.lone[0][pair])),
        ("bundle", spread, ((pair, 1, -1, 0),)),
        ("alone", gang, int(c.lone[0][pair])),
    ]


def test_no_job_is_seated_twice_whatever_the_counts_say(compiled: Compiled) -> None:
    for chosen in permutations(columns(compiled), 4):
        program: Any = SimpleNamespace(columns=[SimpleNamespace(what=what) for what in chosen])
        for fill in (False, True):
            seats = map_counts(compiled, program, dict.fromkeys(range(4), 1), fill=fill)
            assert all(len(mine) <= 1 for mine in seats.values()), chosen
            for job, mine in seats.items():
                for seat in mine:
                    mates = [m.partner for m in seats.get(seat.partner, ())]
                    assert seat.partner < 0 or mates == [job], chosen
