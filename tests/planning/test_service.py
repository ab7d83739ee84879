"""What owners declare counts as far as the operator's classes of service go, and no further."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies
from hypothesis import settings as budget

from gogh_core.cluster import Capabilities
from gogh_core.cluster.slurm.reading import read
from gogh_core.domain import ClusterState, Cycle, JobStatus, Plan
from gogh_core.planning import Draft, Estimated, Request, allocate_step, draft_problem, run_cycle
from gogh_core.settings import ServiceClass, ServiceSettings, Settings, load
from gogh_core.simulation import SimulatedCluster
from gogh_core.store import Store
from gogh_core.telemetry import record_state, trusted
from tests.conftest import own_settings
from tests.planning.conftest import NOW, cluster, job, options, server

DAY = 86_400.0
FULL = [server("s1", gpus=2)]
ANNS = [
    job(f"a{gpu}", at=(("s1", (gpu,)),), ago_s=DAY, owner="ann", shareable=False) for gpu in (0, 1)
]


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return own_settings(tmp_path_factory.mktemp("service"))


def granting(rules: Settings, **classes: ServiceClass) -> Settings:
    return rules.model_copy(update={"service": ServiceSettings(classes=classes)})


def draft(jobs: list[JobStatus], rules: Settings) -> Draft:
    return draft_problem(cluster(FULL, jobs), options(), rules, Request(), NOW)


def planned(jobs: list[JobStatus], rules: Settings, servers=FULL) -> Plan:
    made = allocate_step(
        cluster(servers, jobs),
        Estimated(options(), "test"),
        rules,
        Request(),
        NOW,
        cycle=Cycle.at(NOW, 300),
        capabilities=Capabilities(True, True, True, True),
    )
    assert made.plan is not None
    return made.plan


def greedy(count: int = 2, owner: str = "mallory", **declared: float) -> list[JobStatus]:
    return [
        job(f"m{index}", owner=owner, shareable=False, **declared) for index in range(count)
    ]  # fmt: skip


def stopped(plan: Plan) -> set[str]:
    return {stop.job for stop in plan.stops}


@pytest.mark.parametrize(
    "declared",
    [
        {"priority": 1e6},
        {"surplus_j_per_step": 1e29},
        {"priority": 1e6, "surplus_j_per_step": 1e29, "move_cost_j": 1e29},
        {"required_throughput": 1e8, "priority": 1e6},
    ],
)
def test_no_declaration_stops_the_running_jobs_of_another_owner(rules, declared) -> None:
    plan = planned([*ANNS, *greedy(**declared)], rules)
    assert stopped(plan) == set()
    assert {p.job for p in plan.placements} == {"a0", "a1"}


def test_many_small_jobs_do_not_stop_a_gang_of_another_owner(rules) -> None:
    gang = job("gang", at=(("s1", (0, 1)),), ago_s=DAY, owner="ann", gpu_counts=(2,))
    plan = planned([gang, *greedy(30, priority=1e6)], rules)
    assert stopped(plan) == set()


@budget(deadline=None, max_examples=25)
@given(
    strategies.lists(
        strategies.fixed_dictionaries(
            {
                "priority": strategies.floats(0, 1e6),
                "surplus_j_per_step": strategies.floats(0, 1e29),
                "move_cost_j": strategies.floats(0, 1e29),
            }
        ),
        min_size=1,
        max_size=6,
    )
)
def test_whatever_an_owner_declares_nobody_elses_running_job_is_stopped(rules, claims) -> None:
    theirs = [
        job(f"m{index}", owner="mallory", shareable=False, **claim)
        for index, claim in enumerate(claims)
    ]
    assert stopped(planned([*ANNS, *theirs], rules)) == set()


def test_an_owner_may_stop_jobs_of_its_own_by_priority(rules) -> None:
    mine = [replace(status, job=replace(status.job, owner="mallory")) for status in ANNS]
    plan = planned([*mine, *greedy(1, priority=5.0)], rules)
    assert len(stopped(plan)) == 1


def test_a_higher_class_of_service_stops_jobs_of_a_lower_one(rules) -> None:
    gold = ServiceClass(owners=("mallory",), level=1, max_priority=10.0)
    plan = planned([*ANNS, *greedy(priority=10.0)], granting(rules, gold=gold))
    assert stopped(plan) == {"a0", "a1"}
    above = ServiceClass(owners=("ann",), level=2)
    plan = planned([*ANNS, *greedy(priority=10.0)], granting(rules, gold=gold, above=above))
    assert stopped(plan) == set()


def test_a_job_that_waits_long_enough_still_overtakes_a_running_equal(rules) -> None:
    waits = replace(job("old", owner="bob", shareable=False), since=NOW)
    waits = replace(waits, since=ANNS[0].since)
    assert len(stopped(planned([*ANNS, waits], rules))) == 1


def test_a_priority_beyond_the_class_counts_as_the_class_allows_and_the_plan_says_so(rules) -> None:
    made = draft([*ANNS, *greedy(1, priority=1e6), job("b", owner="bob", priority=5.0)], rules)
    assert made.problem.job_of["m0"].priority == made.problem.job_of["b"].priority == 5.0
    assert [note for note in made.notes if "priority beyond" in note and "m0" in note]
    assert not [note for note in made.notes if "beyond" in note and " b" in note.split("for")[-1]]


def test_classes_of_service_are_settings_and_inherit_what_they_do_not_say(tmp_path) -> None:
    (tmp_path / "gogh.toml").write_text(
        """
        [service]
        max_priority = 3
        [service.classes.gold]
        owners = ["ann"]
        level = 2
        max_step_worth = 9
        [service.classes.silver]
        owners = ["ann", "bob"]
        level = 1
        max_priority = 7
        """
    )
    service = load(tmp_path / "gogh.toml", home=tmp_path).service
    ann, bob, other = (service.of(name) for name in ("ann", "bob", "eve"))
    assert (ann.level, ann.max_priority, ann.max_step_worth) == (2, 3, 9)
    assert (bob.level, bob.max_priority, bob.max_step_worth) == (1, 7, 4)
    assert (other.level, other.max_priority) == (0, 3)


def test_a_step_is_worth_a_few_times_its_cheapest_energy_at_most(rules) -> None:
    made = draft(greedy(1, surplus_j_per_step=1e29), rules)
    cheapest = 200.0 / 10.0
    assert made.problem.job_of["m0"].surplus_j_per_step <= 4 * cheapest * 3
    assert any("worth of steps beyond" in note for note in made.notes)


def test_thirty_jobs_with_an_absurd_priority_do_not_hold_back_other_owners_records(
    settings: Settings,
) -> None:
    store = Store(settings)
    store.migrate()
    jobs = [*ANNS, *greedy(30, priority=1e7)]
    report = record_state(store, settings, cluster(FULL, jobs), now=NOW)
    assert report.refused == ()
    assert set(trusted(store).held_jobs) == {f"m{index}" for index in range(30)}


def test_a_slurm_comment_with_an_absurd_priority_is_refused_and_the_others_go_on(rules) -> None:
    def raw(number: int, comment: str) -> dict:
        return {
            "job_id": number,
            "job_state": "PENDING",
            "comment": comment,
            "tres_per_node": "gres:gpu:1",
            "submit_time": int(NOW.timestamp()) - 60,
        }

    jobs = [raw(1, "gogh model=x priority=2")]
    jobs += [raw(n, "gogh model=x priority=1e7") for n in range(2, 32)]
    jobs += [raw(40, "gogh model=x surplus_j_per_step=1e99")]
    reading = read(jobs, [{"name": "n1", "gres": "gpu:v100:4"}], rules, NOW)
    assert [status.job.id for status in reading.state.jobs] == ["1"]
    assert len(reading.refused) == 31
    assert "priority" in reading.refused["2"]
    assert "surplus_j_per_step" in reading.refused["40"]


def test_on_the_embedded_cluster_an_owner_that_declares_everything_stops_nobody_else(
    tmp_path: Path,
) -> None:
    settings = own_settings(tmp_path, simulation={"servers": 3, "seed": 5})
    store = Store(settings)
    store.migrate()
    manager = SimulatedCluster(
        settings.below_home(Path("cluster")), settings.simulation, spool=settings.spool
    )
    manager.advance(3600)
    assert run_cycle(settings, manager=manager, store=store).state == "emitted"
    manager.advance(2 * settings.cycle.window_s)
    path = settings.below_home(Path("cluster")) / "state.json"
    raw = json.loads(path.read_text())
    ends = raw["world"]["now_s"]
    before: ClusterState = manager.state()
    runs = {status.job.id for status in before.jobs if status.slots}
    assert len(runs) >= 3
    template = next(r for r in raw["world"]["jobs"] if r["demand"]["job"]["id"] in runs)
    for index in range(40):
        record = json.loads(json.dumps(template))
        record |= {"state": "waiting", "places": [], "partners": [], "since_s": ends}
        record |= {"started_s": None, "pending": None, "steps": 0.0, "saved": 0.0}
        told = record["demand"]["job"]
        told |= {"id": f"evil-{index}", "owner": "mallory", "priority": 1e6, "mode": "gang"}
        told |= {"surplus_j_per_step": 1e29, "gpu_counts": [1], "total_steps": 1e9}
        raw["world"]["jobs"].append(record)
    path.write_text(json.dumps(raw))
    report = run_cycle(settings, manager=manager, store=store)
    assert report.plan is not None, report.detail
    assert stopped(report.plan) == set()
    assert {p.job for p in report.plan.placements} >= runs
    assert any("priority beyond" in note for note in (*report.notes, *report.plan.notes))
