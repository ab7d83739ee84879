"""What breaks while a plan is carried out on a real Slurm.

Each time the end state is the plan's, or differs exactly as the journal says; no job is lost, and
none runs twice.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from gogh_core.cluster import ActionRecord, carry_out, state_to_dict
from gogh_core.cluster.actions import Kind
from gogh_core.cluster.journal import Journal
from gogh_core.cluster.slurm import SlurmManager
from gogh_core.domain import ClusterState, JobState, Plan
from gogh_core.settings import Settings
from gogh_core.store import Store, now_utc
from tests.cluster.fake import at, plan
from tests.conftest import PROJECT
from tests.e2e.slurm.lab import Lab
from tests.e2e.slurm.work import enqueue, story

pytestmark = pytest.mark.e2e


def carry(a_plan: Plan, basis: ClusterState, manager, store: Store, settings: Settings):
    return carry_out(
        a_plan,
        basis,
        manager=manager,
        store=store,
        settings=settings,
        cycle_id="20260105T090000Z-0",
        now=basis.at,
    )


def reasons(report) -> dict[str, tuple[str, str]]:
    return {record.action.id: (record.state, record.reason) for record in report.records}


def as_the_journal_says(
    records: Iterable[ActionRecord], basis: ClusterState, manager: SlurmManager
) -> None:
    """Confirmed actions are true; jobs of failed and skipped ones run where they ran or wait."""
    state = manager.state()
    for record in records:
        action = record.action
        assert record.state in ("confirmed", "failed", "skipped"), record
        if action.job is None:
            continue
        status = state.job(action.job)
        assert status is not None, f"job {action.job} is lost"
        again = any(r.action.id == f"place:{action.job}" for r in records)
        if action.kind is Kind.HOLD and not again and record.state == "confirmed":
            assert status.state is JobState.WAITING, record
        if action.kind in (Kind.PLACE, Kind.MOVE):
            nodes = {slot.server for slot in status.slots}
            wanted = {slot.server for slot in action.slots}
            if record.state == "confirmed":
                assert nodes == wanted, record
            else:
                was = basis.job(action.job)
                assert was is not None
                assert nodes in (set(), {slot.server for slot in was.slots}), record


def check_stories(lab: Lab, jobs: Iterable[str]) -> None:
    for job in jobs:
        story(lab, job).check()


def started(lab: Lab, manager: SlurmManager, where: dict[str, str]) -> None:
    """Start these jobs there and wait until they count."""
    for job, node in where.items():
        manager.place(job, at(node, 0), partner=None, power_limit_w=None, key=f"setup/{job}")
    for job in where:
        lab.wait(lambda j=job: story(lab, j).starts, f"job {job}")  # type: ignore[misc]


def saved(lab: Lab, job: str) -> None:
    """Wait until slurmctld has written its queue to disk as it is now."""
    now = time.time()
    path = lab.root / "state" / "job_state"
    # It writes when something has changed.
    lab.slurm("scontrol", "update", f"jobid={job}", "Nice=1")
    lab.wait(lambda: path.exists() and path.stat().st_mtime > now, "the saved queue")


def test_killed_after_each_single_call_it_goes_on_where_it_stopped(
    slurm: Lab, manager: SlurmManager, store: Store, settings: Settings, tmp_path: Path
) -> None:
    """Jobs go to and fro, one is stopped and started; each time another call is the last."""
    first, second, third = (enqueue(slurm, settings) for _ in range(3))
    started(slurm, manager, {first: "v100-1", second: "a100-1"})
    (tmp_path / "settings.json").write_text(_dumped(settings))
    homes = {True: ("v100-1", "a100-1"), False: ("v100-2", "a100-2")}
    kill_after, side, runs = 1, True, 0
    while True:
        (one, two), (goal, other) = homes[side], homes[not side]
        basis = manager.state()
        places = {third: at("t4-1", 0)} if side else {}
        stops = [] if side else [(third, at("t4-1", 0))]
        a_plan = plan(
            f"k{kill_after}",
            places=places,
            stops=stops,
            moves=[(first, at(one, 0), at(goal, 0)), (second, at(two, 0), at(other, 0))],
        )
        (tmp_path / "plan.json").write_text(a_plan.to_json())
        (tmp_path / "basis.json").write_text(json.dumps(state_to_dict(basis)))
        killed = run_carry(tmp_path, kill_after)
        runs += 1
        if killed.returncode == 0:
            break
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        after = run_carry(tmp_path, None)
        assert after.returncode == 0, after.stderr
        assert json.loads(after.stdout)["state"] == "done"
        records = Journal(store, a_plan.id, "c", "slurm", now_utc).records()
        assert {record.state for record in records} == {"confirmed"}, "\n".join(
            f"{r.state} {r.action.id} {r.reason}" for r in records
        )
        as_the_journal_says(records, basis, manager)
        kill_after, side = kill_after + 1, not side
    assert runs >= 8, "every call was once the last one"
    check_stories(slurm, (first, second, third))


def _dumped(settings: Settings) -> str:
    kept = settings.model_dump(mode="json", include={"home", "cluster", "slurm", "guards", "store"})
    return json.dumps(kept)


def run_carry(folder: Path, kill_after: int | None) -> subprocess.CompletedProcess[str]:
    more = [] if kill_after is None else [str(kill_after)]
    return subprocess.run(
        [sys.executable, "-m", "tests.e2e.slurm.carry", str(folder), *more],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_slurmctld_ends_in_the_middle_of_a_plan_and_comes_back(
    how: signal.Signals, slurm: Lab, manager: SlurmManager, store: Store, settings: Settings
) -> None:
    moving, staying, new, newer = (enqueue(slurm, settings) for _ in range(4))
    started(slurm, manager, {moving: "v100-1", staying: "v100-2"})
    saved(slurm, new)
    basis = manager.state()
    restart = threading.Thread(target=lambda: (time.sleep(2), slurm.start_controller()))
    place, calls = manager.place, []

    def breaking(job: str, *args, **more) -> None:
        calls.append(job)
        if len(calls) == 1:
            slurm.kill_controller(how)
            restart.start()
        place(job, *args, **more)

    manager.place = breaking  # type: ignore[method-assign]
    short = settings.model_copy(
        update={"slurm": settings.slurm.model_copy(update={"timeout_s": 3, "action_timeout_s": 60})}
    )
    manager._settings = short
    a_plan = plan(
        f"controller-{how}",
        places={staying: at("v100-2", 0), new: at("a100-1", 0), newer: at("t4-1", 0)},
        moves=[(moving, at("v100-1", 0), at("a100-2", 0))],
    )
    try:
        report = carry(a_plan, basis, manager, store, short)
        while report.state == "interrupted":
            report = carry(a_plan, basis, manager, store, short)
    finally:
        restart.join(120)
        manager.place = place  # type: ignore[method-assign]
    assert report.state == "done", report.summary()
    slurm.wait(slurm.answers, "slurmctld")
    as_the_journal_says(report.records, basis, manager)
    check_stories(slurm, (moving, staying, new, newer))


def crash(lab: Lab, node: str, job: str) -> None:
    """What a power cut does: the node's daemon, the job's shepherd and the job end at once."""
    pid = story(lab, job).starts[-1]["pid"]
    shepherd = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    lab.stop_node(node, signal.SIGKILL)
    for process in (shepherd, pid):
        os.kill(process, signal.SIGKILL)


def test_a_node_goes_down_and_its_job_goes_on_elsewhere(
    slurm: Lab, manager: SlurmManager, store: Store, settings: Settings
) -> None:
    there, new, other = (enqueue(slurm, settings) for _ in range(3))
    started(slurm, manager, {there: "t4-2"})
    basis = manager.state()
    crash(slurm, "t4-2", there)
    slurm.wait(lambda: "DOWN" in slurm.node_state("t4-2"), "Slurm to notice")
    first = plan(
        "before",
        places={there: at("t4-2", 0), new: at("t4-2", 1), other: at("a100-1", 0)},
    )
    report = carry(first, basis, manager, store, settings)
    said = reasons(report)
    assert said[f"place:{new}"] == ("skipped", "server t4-2 is down")
    assert said[f"place:{other}"][0] == "confirmed"
    as_the_journal_says(report.records, basis, manager)

    slurm.wait(lambda: slurm.job(there)["JobState"] == "PENDING", "the job back in the queue")
    basis = manager.state()
    status = basis.job(there)
    assert status is not None
    assert status.state is JobState.WAITING
    report = carry(
        plan("after", places={other: at("a100-1", 0), there: at("a100-2", 0)}),
        basis,
        manager,
        store,
        settings,
    )
    assert reasons(report)[f"place:{there}"][0] == "confirmed", reasons(report)
    slurm.wait(lambda: story(slurm, there).starts[-1]["node"] == "a100-2", "the job elsewhere")
    check_stories(slurm, (there, other))


def test_a_job_cancelled_between_plan_and_action_is_skipped(
    slurm: Lab, manager: SlurmManager, store: Store, settings: Settings
) -> None:
    gone, stays, other, more = (enqueue(slurm, settings) for _ in range(4))
    started(slurm, manager, {gone: "v100-1"})
    basis = manager.state()
    slurm.slurm("scancel", gone)
    slurm.wait(lambda: "RUNNING" not in slurm.job(gone)["JobState"], "the end of the job")
    slurm.wait(lambda: "COMPLETING" not in slurm.job(gone)["JobState"], "the end of the job")
    report = carry(
        plan(
            "cancelled",
            places={stays: at("v100-1", 0), other: at("a100-1", 0), more: at("a100-1", 1)},
            moves=[(gone, at("v100-1", 0), at("v100-2", 0))],
        ),
        basis,
        manager,
        store,
        settings,
    )
    said = reasons(report)
    assert said[f"move:{gone}"] == ("skipped", f"job {gone} has ended: cancelled")
    assert said[f"place:{stays}"][0] == "confirmed", "the GPU it left is free"
    assert report.confirmed == 3


def test_scontrol_that_hangs_fails_its_action_and_no_other(
    slurm: Lab, manager: SlurmManager, store: Store, settings: Settings, tmp_path: Path
) -> None:
    stuck, fine, also = (enqueue(slurm, settings) for _ in range(3))
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("squeue", "sinfo", "sbatch"):
        (folder / name).symlink_to(str(shutil.which(name)))
    wrapper = folder / "scontrol"
    hangs = f'case "$*" in *jobid={stuck}*) sleep 600;; esac'
    wrapper.write_text(f'#!/bin/sh\n{hangs}\nexec {shutil.which("scontrol")} "$@"\n')
    wrapper.chmod(0o755)
    slow = settings.model_copy(
        update={
            "slurm": settings.slurm.model_copy(
                update={"bin": folder, "timeout_s": 2, "action_timeout_s": 30}
            )
        }
    )
    hanging = SlurmManager(slow)
    basis = hanging.state()
    report = carry(
        plan(
            "hanging",
            places={stuck: at("v100-1", 0), fine: at("v100-2", 0), also: at("a100-1", 0)},
        ),
        basis,
        hanging,
        store,
        slow,
    )
    said = reasons(report)
    assert said[f"place:{stuck}"][0] == "failed"
    assert "gave no answer within 2 s" in said[f"place:{stuck}"][1]
    assert said[f"place:{fine}"][0] == said[f"place:{also}"][0] == "confirmed"
    as_the_journal_says(report.records, basis, manager)
    hung = [path for path in Path("/proc").glob("[0-9]*/cmdline") if _mentions(path, str(wrapper))]
    assert not hung, "what hung was ended with everything it started"


def _mentions(path: Path, text: str) -> bool:
    try:
        return text.encode() in path.read_bytes()
    except OSError:
        return False


HOSTILE = {
    "quotes": "gogh model='x\" ; DROP TABLE jobs'",
    "newline": "gogh model=x\nJobState=RUNNING",
    "shell": "gogh model=$(touch pwned)`touch pwned`",
    "control": "gogh model=x\x1b[2J\x07",
    "unknown": "gogh model=x shell=/bin/sh",
    "no model": "gogh batch_size=4",
    "negative": "gogh model=x min_throughput=-5",
    "nan": "gogh model=x min_throughput=nan",
    "long": "gogh model=" + "x" * 1000,
    "bytes": "gogh model=%ff%fe",
}


def test_hostile_comments_and_names_harm_nobody(
    slurm: Lab, manager: SlurmManager, settings: Settings
) -> None:
    good = enqueue(slurm, settings, model="模型 «β» (v2)")
    jobs = {}
    for name, comment in HOSTILE.items():
        jobs[name] = slurm.slurm(
            "sbatch", "--parsable", "--hold", "--gres=gpu:1", f"--comment={comment}",
            f"--job-name={name} '\"\n$(id) обучение", "count.py",
        ).strip()  # fmt: skip
    plain = slurm.slurm("sbatch", "--parsable", "--hold", "--gres=gpu:1", "count.py").strip()
    reading = manager.reading()
    waiting = [s.job.id for s in reading.state.jobs if s.state is JobState.WAITING]
    assert waiting == [good]
    status = reading.state.job(good)
    assert status is not None
    assert status.job.descriptors.model == "模型 «β» (v2)"
    assert set(reading.refused) == set(jobs.values())
    assert plain not in reading.refused
    assert all(len(reason) < 600 and reason.isprintable() for reason in reading.refused.values())
    assert not (slurm.work / "pwned").exists()
