"""Plans become true on a real Slurm."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gogh_core.cluster import carry_out
from gogh_core.cluster.slurm import SlurmManager
from gogh_core.domain import JobState, Plan, PowerState
from gogh_core.settings import Settings
from gogh_core.store import Store
from tests.cluster.contract import ManagerContract, Site
from tests.cluster.fake import at, plan
from tests.e2e.slurm.lab import Lab
from tests.e2e.slurm.work import enqueue, story

pytestmark = pytest.mark.e2e


def carry(a_plan: Plan, manager: SlurmManager, store: Store, settings: Settings):
    basis = manager.state()
    report = carry_out(
        a_plan,
        basis,
        manager=manager,
        store=store,
        settings=settings,
        cycle_id="20260105T090000Z-0",
        now=basis.at,
    )
    problems = [(r.action.id, r.state, r.reason) for r in report.records if r.state != "confirmed"]
    assert not problems, problems
    assert report.state == "done", report.summary()
    return report


def test_a_mixed_queue_starts_moves_shares_and_wakes_servers(
    slurm: Lab, manager: SlurmManager, store: Store, settings: Settings
) -> None:
    first, second = (enqueue(slurm, settings, shareable=True) for _ in range(2))
    gang = enqueue(slurm, settings, gpus="1,2")
    large = enqueue(slurm, settings, gpus=4)
    late = enqueue(slurm, settings)
    stranger = slurm.slurm(
        "sbatch", "--parsable", "--gres=gpu:1", "-w", "t4-1", "--partition=other", "count.py"
    ).strip()
    slurm.wait(lambda: slurm.job(stranger)["JobState"] == "RUNNING", "the stranger")
    strangers = slurm.job(stranger)

    carry(
        plan(
            "p1",
            places={
                first: at("v100-1", 0),
                second: at("v100-1", 0),
                gang: at("v100-2", 0, 1),
                large: at("a100-1", 0, 1, 2, 3),
            },
            partners={first: second, second: first},
            servers={"t4-2": "off"},
        ),
        manager,
        store,
        settings,
    )
    for job, node, gpus in ((first, "v100-1", 1), (gang, "v100-2", 2), (large, "a100-1", 4)):
        slurm.wait(lambda j=job: story(slurm, j).starts, f"job {job}")
        start = story(slurm, job).starts[-1]
        assert start["node"] == node
        assert len(start["gpus"].split(",")) == gpus
    slurm.wait(lambda: story(slurm, second).starts, "the partner")
    assert story(slurm, first).starts[-1]["gpus"] == story(slurm, second).starts[-1]["gpus"]
    slurm.wait(lambda: "POWERED_DOWN" in slurm.node_state("t4-2"), "t4-2 off")
    assert slurm.node_pid("t4-2") is None
    slurm.wait(lambda: story(slurm, gang).lines[-1]["steps"] >= 20, "some steps")

    carry(
        plan(
            "p2",
            places={
                first: at("v100-1", 0),
                second: at("v100-1", 0),
                large: at("a100-1", 0, 1, 2, 3),
                late: at("t4-2", 0),
            },
            partners={first: second, second: first},
            moves=[(gang, at("v100-2", 0, 1), at("a100-2", 0))],
            servers={"t4-2": "on"},
        ),
        manager,
        store,
        settings,
    )
    slurm.wait(lambda: len(story(slurm, gang).starts) == 2, "the moved job")
    slurm.wait(lambda: story(slurm, late).starts, "the late job")
    moved = story(slurm, gang)
    moved.check()
    assert moved.checkpoints[-1]["steps"] >= 20
    assert moved.starts[-1]["node"] == "a100-2"
    assert len(moved.starts[-1]["gpus"].split(",")) == 1
    assert story(slurm, late).starts[-1]["node"] == "t4-2"
    for job in (first, second, large):
        assert len(story(slurm, job).starts) == 1, "who stays is not touched"

    after = slurm.job(stranger)
    for fact in ("JobState", "StartTime", "NodeList", "Restarts"):
        assert after[fact] == strangers[fact]
    assert "AdminComment" not in after
    state = manager.state()
    assert state.job(stranger) is None
    server = state.server("t4-1")
    assert server is not None
    assert len(server.foreign_gpus) == 1
    assert server.keep_on


def test_the_default_mode_only_advises(
    slurm: Lab, manager: SlurmManager, store: Store, settings: Settings
) -> None:
    job = enqueue(slurm, settings)
    careful = settings.model_copy(
        update={"cluster": settings.cluster.model_copy(update={"mode": "auto"})}
    )
    report = carry_out(
        plan("advised", places={job: at("v100-1", 0)}),
        manager.state(),
        manager=manager,
        store=store,
        settings=careful,
        cycle_id="c",
        now=manager.state().at,
    )
    assert report.state == "advised"
    assert slurm.job(job)["JobState"] == "PENDING"
    assert "AdminComment" not in slurm.job(job)


def test_a_job_that_runs_alone_starts_again_to_share(
    slurm: Lab, manager: SlurmManager, store: Store, settings: Settings
) -> None:
    alone, other = (enqueue(slurm, settings, shareable=True) for _ in range(2))
    carry(plan("s1", places={alone: at("t4-1", 0)}), manager, store, settings)
    slurm.wait(lambda: story(slurm, alone).starts, "the first job")
    state = manager.state().job(alone)
    assert state is not None
    where = state.slots
    carry(
        plan("s2", places={alone: where, other: where}, partners={alone: other, other: alone}),
        manager,
        store,
        settings,
    )
    slurm.wait(lambda: len(story(slurm, alone).starts) == 2, "the first job again")
    slurm.wait(lambda: story(slurm, other).starts, "the other job")
    story(slurm, alone).check()
    assert story(slurm, alone).starts[-1]["gpus"] == story(slurm, other).starts[-1]["gpus"]


def test_drained_down_and_reserved_nodes_are_respected(
    slurm: Lab, manager: SlurmManager, settings: Settings
) -> None:
    slurm.slurm("scontrol", "update", "nodename=t4-1", "state=drain", "reason=test")
    slurm.slurm(
        "scontrol", "create", "reservation", "reservationname=r1", "starttime=now",
        "duration=10", "users=nobody", "nodes=a100-2",
    )  # fmt: skip
    try:
        slurm.wait(lambda: "RESERVED" in slurm.node_state("a100-2"), "the reservation")

        def seen() -> tuple[object, ...]:
            # A node that registers comes back by itself (ReturnToService=2): down once more.
            slurm.slurm("scontrol", "update", "nodename=t4-2", "state=down", "reason=test")
            servers = {status.server.id: status for status in manager.state().servers}
            return (
                servers["t4-1"].drain,
                servers["t4-2"].power,
                servers["a100-2"].drain,
                servers["v100-1"].drain,
            )

        # Nodes may still be on their way up from what was before.
        wanted = (True, PowerState.DOWN, True, False)
        slurm.wait(lambda: seen() == wanted, "drained, down and reserved nodes")
    finally:
        slurm.slurm("scontrol", "delete", "reservationname=r1")
        slurm.wait(lambda: "RESERVED" not in slurm.node_state("a100-2"), "no reservation")


def test_a_slurm_without_json_says_the_same_in_text(
    slurm: Lab, manager: SlurmManager, settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("squeue", "sinfo"):
        refusal = f"echo \"{name}: unrecognized option '--json'\" >&2; exit 1"
        wrapper = folder / name
        wrapper.write_text(
            f'#!/bin/sh\n[ "$1" = --json ] && {{ {refusal}; }}\nexec {shutil.which(name)} "$@"\n'
        )
        wrapper.chmod(0o755)
    (folder / "scontrol").symlink_to(str(shutil.which("scontrol")))
    old = SlurmManager(
        settings.model_copy(update={"slurm": settings.slurm.model_copy(update={"bin": folder})})
    )
    pair = [enqueue(slurm, settings, shareable=True, model="a | b c") for _ in range(2)]
    gang, waits = enqueue(slurm, settings, gpus="1,2"), enqueue(slurm, settings)
    for job, partner in (pair, pair[::-1]):
        old.place(job, at("v100-1", 0), partner=partner, power_limit_w=None, key=f"t/{job}")
    old.place(gang, at("a100-1", 0, 1), partner=None, power_limit_w=None, key="t/g")
    site = Site(manager, (*pair, gang), ("v100-1", "a100-1"), patience_s=120)
    for job, node, gpus in ((pair[0], "v100-1", 1), (pair[1], "v100-1", 1), (gang, "a100-1", 2)):
        site.until(site.running(job, node, gpus))
    by_json = {s.job.id: s for s in manager.state().jobs}
    by_text = {s.job.id: s for s in old.state().jobs}
    for job in (*pair, gang, waits):
        assert by_text[job] == by_json[job]
    assert old.state().servers == manager.state().servers


class TestContract(ManagerContract):
    """The promises of every manager, on Slurm."""

    @pytest.fixture
    def site(self, slurm: Lab, manager: SlurmManager, settings: Settings) -> Site:
        jobs = [enqueue(slurm, settings, shareable=True)]
        jobs.append(enqueue(slurm, settings, gpus="1,2"))
        jobs.append(enqueue(slurm, settings, shareable=True))
        manager.state()
        return Site(manager, tuple(jobs), ("v100-1", "a100-1", "t4-2"), patience_s=120)

    def test_two_jobs_share_a_gpu(self, site: Site) -> None:
        first, _, second = site.jobs
        super().test_two_jobs_share_a_gpu(Site(site.manager, (first, second), site.servers, 120))


def test_states_are_jobs_of_ours_only(
    slurm: Lab, manager: SlurmManager, settings: Settings
) -> None:
    job = enqueue(slurm, settings, min_throughput=5.2, batch_size=64, unit="images/s")
    status = manager.state().job(job)
    assert status is not None
    assert status.state is JobState.WAITING
    assert status.job.required_throughput == 5.2
    assert status.job.descriptors.batch_size == 64
    assert status.job.unit == "images/s"
    assert status.job.owner == "root"
