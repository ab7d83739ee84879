"""The planner's own plans on a real Slurm, and how long a large plan takes there."""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path

import pytest

from gogh_core.allocation import plan as make_plan
from gogh_core.allocation import problem_from_dict, verify
from gogh_core.cluster import carry_out, status_of
from gogh_core.cluster.slurm import SlurmManager
from gogh_core.domain import ClusterState, JobState, Plan, PowerState
from gogh_core.planning import run_cycle
from gogh_core.settings import Settings
from gogh_core.store import Store
from tests.cluster.fake import at, plan
from tests.e2e.slurm.lab import Lab
from tests.e2e.slurm.work import enqueue, prepare, story

IDLE_W = {"v100": 40.0, "a100": 52.0, "t4": 10.0}
# Steps/s and watts of one GPU alone, and of two jobs that share it.
ALONE = {"v100": (7.0, 220.0), "a100": (14.0, 300.0), "t4": (3.0, 65.0)}
SHARED = {"v100": (4.5, 250.0), "a100": (9.0, 340.0), "t4": (1.5, 69.0)}


def problem(state: ClusterState):
    """The problem of this state; every job is of one class that is known everywhere."""
    options = []
    for gpu_type, (steps, watts) in ALONE.items():
        name = "resnet50"
        options += [
            {
                "gpu_type": gpu_type,
                "gpus": n,
                "classes": [name],
                "throughput": [steps * n],
                "power_w": watts * n,
            }
            for n in (1, 2, 4)
        ]
        each, both_w = SHARED[gpu_type]
        options.append(
            {
                "gpu_type": gpu_type,
                "gpus": 1,
                "classes": [name, name],
                "throughput": [each, each],
                "power_w": both_w,
            }
        )
    return problem_from_dict(
        {
            "schema": "gogh.problem/1",
            "window_s": 300,
            "waiting_penalty_w": 10000,
            "gpu_types": {name: {"idle_w": watts} for name, watts in IDLE_W.items()},
            "servers": [
                {
                    "id": status.server.id,
                    "gpu_type": status.server.gpu_type,
                    "gpus": status.server.gpus,
                    "base_w": status.server.base_w,
                    "on": status.power is PowerState.ON,
                    "drain": status.drain,
                }
                for status in state.servers
            ],
            "jobs": [
                {
                    "id": status.job.id,
                    "class": status.job.job_class,
                    "gpu_counts": list(status.job.gpu_counts),
                    "required_throughput": status.job.required_throughput,
                    "shareable": status.job.shareable,
                    "at": [slot.to_dict() for slot in status.slots],
                    "move_cost_j": 1000.0,
                }
                for status in state.jobs
                if status.state in (JobState.WAITING, JobState.RUNNING)
            ],
            "options": options,
        }
    )


def planned(manager: SlurmManager, store: Store, settings: Settings, name: str) -> Plan:
    """Read, plan, verify and carry out, as a cycle does."""
    basis = manager.state()
    asked = problem(basis)
    made = make_plan(asked, time_limit_s=60)
    assert verify(asked, made) == []
    report = carry_out(
        made,
        basis,
        manager=manager,
        store=store,
        settings=settings,
        cycle_id=name,
        now=basis.at,
    )
    problems = [(r.action.id, r.state, r.reason) for r in report.records if r.state != "confirmed"]
    assert not problems, problems
    return made


def check(made: Plan, manager: SlurmManager) -> None:
    """Every placed job runs on its node with its number of GPUs."""
    state = manager.state()
    for placement in made.placements:
        status = state.job(placement.job)
        assert status is not None
        has = {slot.server: len(slot.gpus) for slot in status.slots}
        assert has == {slot.server: len(slot.gpus) for slot in placement.slots}


@pytest.mark.e2e
def test_what_the_planner_decides_comes_true(
    slurm: Lab, manager: SlurmManager, store: Store, settings: Settings
) -> None:
    pair = [enqueue(slurm, settings, shareable=True, min_throughput=4) for _ in range(2)]
    enqueue(slurm, settings, gpus="1,2", min_throughput=10)
    enqueue(slurm, settings, min_throughput=2)
    first = planned(manager, store, settings, "20260105T090000Z-0")
    assert len(first.placements) == 4
    partners = {placement.job: placement.partner for placement in first.placements}
    assert partners[pair[0]] == pair[1], "two that fit on one GPU share it"
    check(first, manager)
    off = [switch.id for switch in first.servers if switch.action == "off"]
    assert off, "empty servers are switched off"
    for node in off:
        slurm.wait(lambda n=node: "POWERED_DOWN" in slurm.node_state(n), f"{node} off")  # type: ignore[misc]

    for _ in range(6):
        enqueue(slurm, settings, gpus=4, min_throughput=12)
    second = planned(manager, store, settings, "20260105T090500Z-0")
    woken = {switch.id for switch in second.servers if switch.action == "on"}
    assert woken & set(off), "a server is switched on again when it is needed"
    check(second, manager)
    for placement in second.placements:
        job = placement.job
        slurm.wait(lambda j=job: story(slurm, j).starts, f"job {job}")  # type: ignore[misc]
        story(slurm, job).check()


@pytest.mark.e2e
def test_a_whole_cycle_reads_estimates_plans_and_acts(
    slurm: Lab, manager: SlurmManager, store: Store, settings: Settings
) -> None:
    """The cycle that the schedule runs, with Slurm as its cluster."""
    jobs = [
        enqueue(slurm, settings, model="ResNet-50", batch_size=64, shareable=True) for _ in range(3)
    ]
    jobs.append(enqueue(slurm, settings, model="ResNet-18", batch_size=32, gpus="1,2"))
    stranger = slurm.slurm("sbatch", "--parsable", "--gres=gpu:1", "-w", "t4-1", "count.py").strip()
    slurm.wait(lambda: slurm.job(stranger)["JobState"] == "RUNNING", "the stranger")
    report = run_cycle(settings, manager=manager, store=store)
    assert report.outcome == "emitted", report.detail
    found = status_of(settings, store, manager)
    assert found.execution is not None
    assert found.execution.state == "done"
    assert found.differences == ()
    assert found.plan is not None
    placed = {placement.job for placement in found.plan.placements}
    assert placed == set(jobs)
    for job in jobs:
        slurm.wait(lambda j=job: story(slurm, j).starts, f"job {job}")  # type: ignore[misc]
    assert len(story(slurm, stranger).starts) == 1
    assert "AdminComment" not in slurm.job(stranger)


@pytest.mark.soak
def test_how_long_a_hundred_placements_and_twenty_moves_take(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a Slurm of 6 nodes with 32 GPUs each; prints what docs/slurm.md tells."""
    from gogh_core.settings import ClusterSettings, GuardSettings, SlurmSettings, load

    short = Path(tempfile.mkdtemp(prefix="gogh-", dir="/tmp"))
    lab = Lab(short / "slurm", gpus=32)
    try:
        lab.start()
        prepare(lab)
        settings = load(
            home=tmp_path / "home",
            cluster=ClusterSettings(manager="slurm", mode="act"),
            slurm=SlurmSettings(conf=lab.conf, action_timeout_s=300),
            guards=GuardSettings(min_runtime_s=0, cooldown_s=0),
        )
        store = Store(settings)
        store.migrate()
        manager = SlurmManager(settings)
        jobs = [enqueue(lab, settings) for _ in range(120)]
        movers, starters = jobs[:20], jobs[20:]
        run = {job: at("v100-1", n) for n, job in enumerate(movers)}
        basis = manager.state()

        def carry(a_plan: Plan, made_for: ClusterState):
            return carry_out(
                a_plan,
                made_for,
                manager=manager,
                store=store,
                settings=settings,
                cycle_id=a_plan.id,
                now=made_for.at,
            )

        assert carry(plan("first", places=run), basis).confirmed == 20
        basis = manager.state()
        nodes = ("a100-1", "a100-2", "t4-1", "t4-2")
        report = carry(
            plan(
                "large",
                places={job: at(nodes[n // 25], n % 25) for n, job in enumerate(starters)},
                moves=[(job, run[job], at("v100-2", n)) for n, job in enumerate(movers)],
            ),
            basis,
        )
        assert report.confirmed == 120, report.summary()
        with capsys.disabled():
            print(f"\n100 placements and 20 moves: {report.seconds:.1f} s")
            for kind in ("place", "move"):
                took = [
                    (r.settled_at - r.sent_at).total_seconds()
                    for r in report.records
                    if r.action.kind == kind and r.settled_at and r.sent_at
                ]
                print(f"{kind}: median {statistics.median(took):.2f} s, longest {max(took):.2f} s")
    finally:
        lab.stop()
        shutil.rmtree(short, ignore_errors=True)
