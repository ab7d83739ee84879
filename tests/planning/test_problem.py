"""From cluster state and options to a problem: each rule on its own, and the plan they lead to."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from gogh_core.allocation import plan
from gogh_core.cluster import Capabilities, carry_out
from gogh_core.domain import ClusterState, Cycle, JobState, PowerState
from gogh_core.errors import InvalidInput
from gogh_core.planning import (
    FOREIGN,
    Allocated,
    Draft,
    Estimated,
    Request,
    allocate_step,
    draft_problem,
)
from gogh_core.planning.promises import waiting_priority
from gogh_core.settings import Settings, load
from gogh_core.store import Store
from tests.cluster.fake import Fake
from tests.planning.conftest import NOW, cluster, job, options, server

ALL = Capabilities(True, True, True, True)
DONE = ("move", "confirmed")


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return load(home=tmp_path_factory.mktemp("problem"))


def draft(
    state: ClusterState, rules: Settings, request: Request | None = None, **how: object
) -> Draft:
    table = how.pop("options", options())
    return draft_problem(state, table, rules, request or Request(), NOW, **how)  # type: ignore[arg-type]


def allocated(
    state: ClusterState, rules: Settings, request: Request | None = None, **how: object
) -> Allocated:
    table = how.pop("options", options())
    return allocate_step(
        state,
        Estimated(table, "test"),  # type: ignore[arg-type]
        rules,
        request or Request(),
        NOW,
        cycle=Cycle.at(NOW, 300),
        capabilities=ALL,
        **how,  # type: ignore[arg-type]
    )


def one(state: ClusterState, rules: Settings, **how: object) -> object:
    return draft(state, rules, **how).problem.job_of["j"]


def wide(table: pa.Table) -> pa.Table:
    """The same options, on average half as much again as they surely give."""
    means = [rate * 1.5 for rate in table["throughput_a"].to_pylist()]
    return table.set_column(table.column_names.index("mean_a"), "mean_a", [means])


def test_waiting_jobs_gain_priority_and_running_ones_hold_twice_theirs(rules: Settings) -> None:
    assert waiting_priority(job("j", ago_s=0), rules, NOW) == 1.0
    assert waiting_priority(job("j", ago_s=3600), rules, NOW) == 2.0
    assert waiting_priority(job("j", ago_s=7200, priority=3.0), rules, NOW) == 12.0
    assert waiting_priority(job("j", ago_s=1e9), rules, NOW) == 1024.0
    assert waiting_priority(job("j", at=(("s", (0,)),), ago_s=1e5), rules, NOW) == 2.0


def test_nobody_starves_on_a_full_cluster(rules: Settings) -> None:
    """A job that waited over an hour takes the place of an equal one."""
    full = [job(f"r{i}", at=(("s", (i,)),), ago_s=7200, shareable=False) for i in range(4)]
    for ago_s, runs in ((60, False), (5400, True)):
        state = cluster([server("s")], [*full, job("j", ago_s=ago_s, shareable=False)])
        made = plan(draft(state, rules).problem)
        assert ("j" in {p.job for p in made.placements}) is runs


def test_a_deadline_asks_for_what_is_left_over_the_time_that_is_left(rules: Settings) -> None:
    state = cluster(
        [server("s")],
        [
            job(
                "j",
                total_steps=10_000.0,
                steps_done=4_000.0,
                deadline_at=NOW + timedelta(seconds=1000),
            )
        ],
    )
    assert one(state, rules).required_throughput == pytest.approx(6.0 * 1.05 * 1.2)  # type: ignore[attr-defined]


def test_the_larger_of_promise_and_deadline_counts(rules: Settings) -> None:
    due = NOW + timedelta(seconds=1000)
    for required, left, expected in ((8.0, 1000.0, 9.6), (2.0, 6000.0, 6.3 * 1.2)):
        state = cluster(
            [server("s")],
            [job("j", required_throughput=required, total_steps=left, deadline_at=due)],
        )
        assert one(state, rules).required_throughput == pytest.approx(expected)  # type: ignore[attr-defined]


@pytest.mark.parametrize("left_s", [10, -10])
def test_a_hopeless_deadline_becomes_best_effort_and_says_so(rules: Settings, left_s: int) -> None:
    due = NOW + timedelta(seconds=left_s)
    state = cluster([server("s")], [job("j", total_steps=1e6, deadline_at=due)])
    made = draft(state, rules)
    assert made.problem.job_of["j"].required_throughput == 0
    assert made.notes == ("the deadline cannot be met, best effort, for j",)
    assert {p.job for p in plan(made.problem).placements} == {"j"}


def test_a_promise_is_planned_with_a_margin_where_a_place_gives_it(rules: Settings) -> None:
    state = cluster([server("k", "k80"), server("v")], [job("j", required_throughput=1.9)])
    made = draft(state, rules)
    assert made.problem.job_of["j"].required_throughput == pytest.approx(1.9 * 1.2)
    assert made.kinds == {"j": "sure"}
    assert plan(made.problem).placements[0].slots[0].server == "v", "the k80's 2.0 are too tight"


def test_a_promise_without_room_for_the_margin_is_planned_as_it_is(rules: Settings) -> None:
    state = cluster([server("k", "k80"), server("v")], [job("j", required_throughput=9.0)])
    made = draft(state, rules)
    assert made.problem.job_of["j"].required_throughput == pytest.approx(9.0)
    assert made.notes == ("no free place keeps the promise with its margin, of j",)


def test_plans_are_made_with_the_mean_not_with_the_low_end(rules: Settings) -> None:
    state = cluster([server("v")], [job("j", required_throughput=9.0)])
    made = draft(state, rules, options=wide(options()))
    alone = [o for o in made.problem.table if o.classes == ("ResNet-50",) and o.gpus == 1]
    assert [option.throughput for option in alone] == [(15.0,)]


def test_where_nothing_keeps_the_promise_a_job_gets_nearly_the_best(rules: Settings) -> None:
    state = cluster([server("k", "k80"), server("v")], [job("j", required_throughput=99.0)])
    made = draft(state, rules)
    assert made.problem.job_of["j"].required_throughput == pytest.approx(8.0)
    assert "no place keeps the promise" in made.notes[0]
    assert plan(made.problem).placements[0].slots[0].server == "v"


def test_a_job_is_not_moved_for_the_margin_alone(rules: Settings) -> None:
    state = cluster(
        [server("v"), server("k", "k80")],
        [job("j", required_throughput=1.9, at=(("k", (0,)),), ago_s=9999)],
    )
    made = draft(state, rules)
    assert made.kinds == {"j": "tight"}
    assert made.problem.job_of["j"].required_throughput == pytest.approx(2.0)


def test_jobs_that_find_no_place_with_the_margin_take_one_without(rules: Settings) -> None:
    """Five jobs would have a whole v100 each; the k80 keeps the promise of one, barely."""
    jobs = [job(f"j{i}", required_throughput=1.9, shareable=False) for i in range(5)]
    state = cluster([server("v"), server("k", "k80")], jobs)
    made = allocated(state, rules)
    assert {p.job for p in made.plan.placements} == {f"j{i}" for i in range(5)}
    assert sorted(made.draft.kinds.values()) == [*["sure"] * 4, "tight"]


def test_a_slow_place_is_better_than_none(rules: Settings) -> None:
    """The only v100 is taken by a job that stays; the k80 gives a fifth of the promise."""
    jobs = [
        job("stays", required_throughput=9.0, at=(("v", (0,)),), movable=False, shareable=False)
    ]
    jobs.append(job("late", required_throughput=9.0, shareable=False))
    state = cluster([server("v", gpus=1), server("k", "k80")], jobs)
    made = allocated(state, rules)
    assert {p.job: p.slots[0].server for p in made.plan.placements} == {"stays": "v", "late": "k"}
    assert made.draft.kinds["late"] == "short"


def test_promised_training_is_worth_more_than_its_promise(rules: Settings) -> None:
    """What is done now need not be done later: the v100, though the k80 keeps the promise."""
    state = cluster(
        [server("k", "k80"), server("v")], [job("j", required_throughput=1.0, total_steps=1e6)]
    )
    made = draft(state, rules)
    assert made.problem.job_of["j"].surplus_j_per_step > 0
    assert plan(made.problem).placements[0].slots[0].server == "v"


def test_an_increment_leaves_running_jobs_where_they_are(rules: Settings) -> None:
    jobs = [job("runs", at=(("k", (0,)),), ago_s=9999), job("waits", required_throughput=1.0)]
    state = cluster([server("v"), server("k", "k80")], jobs)
    moved = plan(draft(state, rules).problem)
    assert [move.job for move in moved.moves] == ["runs"], "a whole cycle would move it"
    made = plan(draft(state, rules, Request(reason="arrival", increment=True)).problem)
    assert not made.moves
    assert {p.job for p in made.placements} == {"runs", "waits"}


def test_best_effort_runs_where_a_step_costs_least(rules: Settings) -> None:
    """Not on the k80, which draws half the watts and does a fifth of the steps."""
    state = cluster([server("k", "k80"), server("v")], [job("j")])
    made = draft(state, rules)
    # 200 W and 50 W of its server over 10 steps/s, half as much again: the k80 takes far more.
    assert made.problem.job_of["j"].surplus_j_per_step == pytest.approx(1.5 * 25.0)
    assert plan(made.problem).placements[0].slots[0].server == "v"


def test_best_effort_runs_rather_than_waits(rules: Settings) -> None:
    state = cluster([server("k", "k80", power=PowerState.OFF)], [job("j")])
    made = plan(draft(state, rules).problem)
    assert [p.job for p in made.placements] == ["j"]
    assert [s.action for s in made.servers] == ["on"]


def test_gpus_that_are_not_ours_stay_untouched(rules: Settings) -> None:
    state = cluster(
        [server("s", foreign_gpus=(0, 2))], [job(f"j{i}", shareable=False) for i in range(3)]
    )
    made = plan(draft(state, rules).problem)
    used = {
        g for p in made.placements for s in p.slots for g in s.gpus if not p.job.startswith(FOREIGN)
    }
    assert used == {1, 3}
    assert len(made.waiting) == 1


def test_a_server_with_foreign_work_is_never_switched_off(rules: Settings) -> None:
    state = cluster([server("s", foreign_gpus=(0,)), server("t", foreign_gpus=(0, 1, 2, 3))], [])
    assert plan(draft(state, rules).problem).servers == ()


def test_a_drained_server_with_foreign_work_can_still_be_emptied(rules: Settings) -> None:
    state = cluster(
        [server("s", foreign_gpus=(0,)), server("t")],
        [job("j", at=(("s", (1,)),), ago_s=9999)],
    )
    made = plan(draft(state, rules, Request(reason="heat", drain=("s",))).problem)
    assert made.status != "infeasible"
    assert [m.job for m in made.moves] == ["j"]


def test_a_held_record_is_left_alone_with_whoever_shares_its_gpu(rules: Settings) -> None:
    state = cluster(
        [server("s")],
        [
            job("bad", at=(("s", (0,)),)),
            job("mate", "LM", at=(("s", (0,)),)),
            job("worse"),
            job("good"),
        ],
    )
    made = draft(state, rules, held={"bad", "worse"})
    names = set(made.problem.job_of)
    assert names == {"good", f"{FOREIGN}s"}
    assert [w.job for w in made.waiting] == ["worse"]
    assert [note.split(":")[0] for note in made.notes] == [
        "job bad is left alone",
        "job mate is left alone",
    ]
    assert plan(made.problem).placements


def test_an_unknown_class_waits_and_a_gang_too_large_too(rules: Settings) -> None:
    state = cluster([server("s")], [job("new", "GPT-9"), job("big", gpu_counts=(64,)), job("j")])
    made = draft(state, rules)
    assert {w.job: w.reason.split(" ")[0] for w in made.waiting} == {"new": "nothing", "big": "no"}


def test_a_job_on_a_lost_server_is_started_again(rules: Settings) -> None:
    state = cluster(
        [server("s", power=PowerState.DOWN), server("t")], [job("j", at=(("s", (0,)),))]
    )
    made = draft(state, rules)
    assert made.problem.job_of["j"].at == ()
    assert [s.id for s in made.problem.servers] == ["t"]


def test_finished_jobs_are_no_part_of_it(rules: Settings) -> None:
    state = cluster([server("s")], [job("j"), job("old", state=JobState.FINISHED)])
    assert set(draft(state, rules).problem.job_of) == {"j"}


def test_what_the_manager_cannot_do_is_not_planned(rules: Settings) -> None:
    limited = {
        "gpu_type": "v100",
        "gpus": 1,
        "class_a": "LM",
        "throughput_a": 15.0,
        "power_w": 100.0,
        "power_limit_w": 100.0,
    }
    state = cluster([server("s"), server("off", power=PowerState.OFF)], [job("j"), job("lm", "LM")])
    poor = Capabilities(False, False, False, False)
    made = draft(state, rules, options=options(limited), capabilities=poor).problem
    assert all(len(option.classes) == 1 for option in made.table)
    assert all(option.power_limit_w is None for option in made.table)
    assert [(s.id, s.keep_on) for s in made.servers] == [("s", True)]
    rich = draft(state, rules, options=options(limited), capabilities=ALL).problem
    assert len(rich.table) == 5
    assert len(rich.servers) == 2


def test_options_that_hardly_run_at_all_are_not_planned(rules: Settings) -> None:
    risky = {
        "gpu_type": "v100",
        "gpus": 4,
        "class_a": "ResNet-50",
        "throughput_a": 99.0,
        "power_w": 1.0,
        "feasible_probability": 0.4,
    }
    state = cluster([server("s")], [job("j", gpu_counts=(1, 4))])
    made = draft(state, rules, options=options(risky)).problem
    assert {option.gpus for option in made.table} == {1, 2}


@pytest.mark.parametrize(("best", "runs"), [(0.78, True), (0.1, False)])
def test_a_class_that_may_fit_nowhere_is_tried_where_it_is_likeliest(
    rules: Settings, best: float, runs: bool
) -> None:
    """Otherwise it would wait for ever: nobody learns of a job that never runs."""
    ways = [
        {
            "gpu_type": kind,
            "gpus": 1,
            "class_a": "GPT",
            "throughput_a": 5.0,
            "power_w": 100.0,
            "feasible_probability": chance,
        }
        for kind, chance in (("v100", best), ("k80", 0.05))
    ]
    state = cluster([server("s"), server("k", "k80")], [job("j", "GPT"), job("r")])
    made = draft(state, rules, options=options(*ways))
    if not runs:
        assert [w.job for w in made.waiting] == ["j"]
        return
    assert {o.gpu_type for o in made.problem.table if "GPT" in o.classes} == {"v100"}
    assert "job j is tried where it is likeliest to fit (78%)" in made.notes
    assert {p.job for p in plan(made.problem).placements} == {"j", "r"}


def test_guards_limit_the_moves(rules: Settings) -> None:
    state = cluster([server("s")], [job("j", at=(("s", (0,)),), ago_s=30, moved_ago_s=30)])
    made = draft(state, rules, Request(reason="x", max_moves=3)).problem
    assert made.max_moves == 3
    assert made.limits.min_runtime_s == rules.guards.min_runtime_s
    assert (made.job_of["j"].since_s, made.job_of["j"].moved_ago_s) == (30.0, 30.0)
    assert not made.job_of["j"].movable


def test_a_moving_job_is_not_moved_again(rules: Settings) -> None:
    state = cluster([server("s")], [job("j", at=(("s", (0,)),), state=JobState.MOVING)])
    assert not draft(state, rules).problem.job_of["j"].movable


def test_pins_and_drains_are_kept_and_wrong_ones_refused(rules: Settings) -> None:
    state = cluster(
        [server("s1"), server("s2")], [job("j", at=(("s1", (0,)),), ago_s=9999), job("w")]
    )
    made = draft(state, rules, Request(reason="x", pin=("j",), drain=("s2",))).problem
    assert made.job_of["j"].pinned
    assert made.server_of["s2"].drain
    for wrong, text in (
        ({"pin": ("k",)}, "not on the cluster"),
        ({"pin": ("w",)}, "not running"),
        ({"drain": ("s3",)}, "did you mean 's"),
    ):
        with pytest.raises(InvalidInput, match=text):
            draft(state, rules, Request(reason="x", **wrong))  # type: ignore[arg-type]


def test_a_request_that_makes_no_sense_is_refused() -> None:
    for wrong in (
        {"gap": 2.0},
        {"reason": " "},
        {"time_limit_s": 0.0},
        {"power_cap_w": -1.0},
        {"max_moves": -1},
        {"solver": "cplex"},
        {"objective": "fun"},
    ):
        with pytest.raises(InvalidInput):
            Request(**wrong)  # type: ignore[arg-type]


def test_the_same_state_gives_the_same_problem(rules: Settings) -> None:
    jobs = [job("b", "LM"), job("a"), job("c", at=(("s", (0,)),))]
    servers = [server("s"), server("k", "k80")]
    first = draft(cluster(servers, jobs), rules).problem
    second = draft(cluster(servers[::-1], jobs[::-1]), rules).problem
    assert first.sha256 == second.sha256


def test_a_drain_moves_jobs_however_young_they_are_or_lately_they_moved(
    rules: Settings, tmp_path: Path
) -> None:
    """Five jobs that just started or moved leave the server for idle GPUs; none is stopped."""
    ages = [(10, None), (300, None), (599, None), (9999, 10), (9999, 1199)]
    jobs = [
        job(f"j{i}", at=(("s", (i,)),), ago_s=ago_s, moved_ago_s=moved_s, shareable=False)
        for i, (ago_s, moved_s) in enumerate(ages)
    ]
    state = cluster([server("s", gpus=5), server("t", gpus=8)], jobs)
    made = allocated(state, rules, Request(reason="heat", drain=("s",)))
    assert (len(made.plan.moves), made.plan.stops) == (5, ())
    mine = load(home=tmp_path)
    store = Store(mine)
    store.migrate()
    fake = Fake.of(list(state.servers), list(state.jobs))
    report = carry_out(
        made.plan, state, manager=fake, store=store, settings=mine, cycle_id="c", now=NOW
    )
    moved = {r.action.job for r in report.records if (r.action.kind, r.state) == DONE}
    assert moved == {f"j{i}" for i in range(5)}


@pytest.mark.parametrize(("likely", "moves"), [(1.5, 1), (2.84, 1), (2.86, 0)])
def test_a_guard_never_outranks_a_promise(rules: Settings, likely: float, moves: int) -> None:
    """A young job below 95 % of its promise moves to a place that keeps it; others stay."""
    slow = {"gpu_type": "k80", "gpus": 1, "class_a": "GPT", "power_w": 100.0}
    fast = {"gpu_type": "v100", "gpus": 1, "class_a": "GPT", "power_w": 300.0}
    table = options({**slow, "throughput_a": likely}, {**fast, "throughput_a": 9.0})
    young = job("j", "GPT", at=(("k", (0,)),), ago_s=30, required_throughput=3.0)
    made = allocated(cluster([server("k", "k80"), server("v")], [young]), rules, options=table)
    assert (len(made.plan.moves), made.plan.stops) == (moves, ())


def test_a_young_job_below_its_promise_stays_where_no_better_place_is_free(
    rules: Settings,
) -> None:
    """Every v100 is taken by jobs that may not move: half of the promise is better than none."""
    full = [
        job(f"r{i}", at=(("v", (i,)),), ago_s=30, shareable=False, required_throughput=9.0)
        for i in range(4)
    ]
    for ago_s in (30, 9999):
        slow = job("j", at=(("k", (0,)),), ago_s=ago_s, required_throughput=4.0, shareable=False)
        made = allocated(cluster([server("k", "k80"), server("v")], [*full, slow]), rules)
        assert (made.plan.moves, made.plan.stops, made.plan.waiting) == ((), (), ())
        assert made.draft.promised["j"] == 4.0


def test_a_job_that_gets_the_best_there_is_does_not_wander(rules: Settings) -> None:
    """Below its promise everywhere: the guards hold, because no place is better."""
    state = cluster(
        [server("v"), server("w", power=PowerState.OFF)],
        [job("j", at=(("v", (0,)),), ago_s=30, required_throughput=99.0)],
    )
    assert not draft(state, rules).problem.job_of["j"].movable


def test_a_late_job_is_relaxed_like_others(rules: Settings) -> None:
    """Its deadline is lost and every v100 is taken: the k80 likely keeps its promise."""
    full = [job(f"r{i}", at=(("v", (i,)),), ago_s=30, shareable=False) for i in range(4)]
    late = job(
        "j",
        required_throughput=2.5,
        total_steps=1e9,
        deadline_at=NOW + timedelta(seconds=60),
        shareable=False,
    )
    state = cluster([server("k", "k80"), server("v")], [*full, late])
    made = allocated(state, rules, options=wide(options()))
    assert made.plan.waiting == ()
    assert made.draft.kinds["j"] == "late"


def test_a_job_that_was_disturbed_often_enough_is_neither_moved_nor_stopped(
    rules: Settings,
) -> None:
    """An equal that waited for hours takes another job's place, and a cap stops another one."""
    full = [job(f"r{i}", at=(("s", (i,)),), ago_s=9999, shareable=False) for i in range(4)]
    state = cluster([server("s")], [*full, job("j", ago_s=99999, shareable=False)])
    spent = ("r0", "r1", "r2")
    made = allocated(state, rules, spent=spent)
    assert [stop.job for stop in made.plan.stops] == ["r3"]
    assert "left where they are, disturbed 6 times within a day: r0, r1, r2" in made.plan.notes
    capped = allocated(state, rules, Request(reason="x", power_cap_w=900.0), spent=spent)
    assert {p.job for p in capped.plan.placements} == {*spent}


def test_a_disturbed_job_still_leaves_a_drained_server(rules: Settings) -> None:
    state = cluster([server("s"), server("t")], [job("j", at=(("s", (0,)),), ago_s=9999)])
    made = allocated(state, rules, Request(reason="x", drain=("s",)), spent=("j",))
    assert [move.job for move in made.plan.moves] == ["j"]


def test_orders_that_cannot_be_kept_otherwise_disturb_a_job_once_more_and_say_so(
    rules: Settings,
) -> None:
    full = [job(f"r{i}", at=(("s", (i,)),), ago_s=9999, shareable=False) for i in range(4)]
    names = tuple(f"r{i}" for i in range(4))
    cap = Request(reason="x", power_cap_w=700.0)
    made = allocated(cluster([server("s")], full), rules, cap, spent=names)
    assert made.plan.status != "infeasible"
    assert len(made.plan.stops) == 2
    assert made.degraded == ("r0, r1, r2, r3 disturbed too often in a day: no plan without that",)
