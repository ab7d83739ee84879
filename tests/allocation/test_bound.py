"""The bound is near the cost where it can be, and no certificate proves too much."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gogh_core.allocation import Limits, Option, Problem, ProblemJob, ProblemServer, plan, verify
from gogh_core.allocation.verify_bound import bound_of
from gogh_core.domain import Slot
from tests.allocation.brute import best_cost
from tests.allocation.certificates import random_certificate, tampered
from tests.allocation.strategies import problems
from tests.allocation.test_random_problems import QUIET


def staying(limits: Limits, movable: bool) -> Problem:
    """A spread job on three GPUs, one shared with a gang, and one job that waits."""
    serving = ProblemJob(
        "serving",
        "S",
        "spread",
        max_gpus=3,
        required_throughput=14.0,
        at=tuple(Slot("s1", (gpu,)) for gpu in (0, 1, 2)),
        move_cost_j=30000.0,
        movable=movable,
        since_s=10.0,
    )
    training = ProblemJob(
        "training",
        "T",
        required_throughput=3.0,
        at=(Slot("s1", (2,)),),
        move_cost_j=30000.0,
        movable=movable,
        since_s=10.0,
    )
    waiting = ProblemJob("waiting", "T", required_throughput=4.0)
    return Problem(
        300.0,
        10000.0,
        {"t": 10.0},
        [ProblemServer("s1", "t", 4, 100.0, on=True), ProblemServer("s2", "t", 4, 100.0, on=False)],
        [serving, training, waiting],
        [
            Option("t", 1, ("S",), (6.0,), 80.0),
            Option("t", 1, ("T",), (5.0,), 90.0),
            Option("t", 1, ("S", "T"), (4.0, 3.5), 120.0),
        ],
        limits=limits,
    )


@pytest.mark.parametrize("limits", [Limits(), Limits(600.0, 600.0)])
@pytest.mark.parametrize("movable", [False, True])
def test_who_stays_on_shared_gpus_gives_a_close_bound(limits, movable):
    problem = staying(limits, movable)
    made = plan(problem, gap=0.0, time_limit_s=20)
    assert verify(problem, made) == []
    assert made.moves == made.stops == made.waiting == ()
    assert made.gap < 0.03


def test_wild_prices_prove_no_less_than_no_prices():
    problem = staying(Limits(), False)
    wild = {"root": {"jobs": [1e6, 1e6, 1e6], "capacity": [1e6, 1e6]}}
    assert bound_of(problem, wild) >= bound_of(problem, {})


def never_too_high(problem: Problem, seed: int) -> tuple[int, int]:
    """(certificates, those that prove more than no prices do); none may prove too much."""
    best = best_cost(problem)
    if best == float("inf"):
        return 0, 0
    draw = random.Random(seed)
    nothing = bound_of(problem, {})
    certificates = [
        random_certificate(draw, problem, by) for by in ("likeness", "server") for _ in range(3)
    ]
    real = plan(problem, gap=0.0, time_limit_s=30).certificate
    certificates += [tampered(draw, real) for _ in range(4)]
    proofs = [bound_of(problem, certificate) for certificate in certificates]
    assert max(proofs) <= best + 1e-6 * (1 + abs(best))
    return len(proofs), sum(proof > nothing + 1e-6 for proof in proofs)


def tried(examples: int) -> tuple[int, ...]:
    totals = [0, 0]

    @settings(max_examples=examples, **QUIET)
    @given(problems(), st.integers(0, 10**9))
    def run(problem: Problem, seed: int) -> None:
        for at, count in enumerate(never_too_high(problem, seed)):
            totals[at] += count

    run()
    return tuple(totals)


def test_no_certificate_proves_more_than_the_best_plan_costs():
    certificates, telling = tried(12)
    assert certificates >= 60
    assert telling >= 5, "certificates that prove nothing show nothing"


@pytest.mark.soak
def test_ten_thousand_certificates_prove_no_more_than_the_best_plan_costs():
    certificates, telling = tried(1500)
    assert certificates >= 10_000
    assert telling >= 2_000
