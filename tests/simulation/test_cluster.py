"""The embedded cluster keeps the promises of a cluster manager, on a clock of its own."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gogh_core.cluster import ClusterManager, open_manager
from gogh_core.domain import JobState, Mode, PowerState, Slot
from gogh_core.errors import ActionFailed, ClusterError, InvalidInput
from gogh_core.settings import Settings, SimulationSettings
from gogh_core.simulation import SimulatedCluster, open_cluster

CALM = SimulationSettings(servers=6, garbage_rate=0, gap_rate=0, late_rate=0, seed=3)


def gang(cluster: SimulatedCluster, index: int = 0) -> str:
    """A movable one-GPU training job that is waiting."""
    found = [
        status.job.id
        for status in cluster.state().jobs
        if status.state is JobState.WAITING
        and status.job.mode is Mode.GANG
        and 1 in status.job.gpu_counts
        and status.job.movable
        and status.job.shareable is True
    ]
    return found[index]


def put(cluster: SimulatedCluster, job: str, *slots: Slot, key: str = "") -> None:
    cluster.place(job, slots, partner=None, power_limit_w=None, key=key or f"place {job}")


def shift(cluster: SimulatedCluster, job: str, *slots: Slot, key: str = "") -> None:
    cluster.move(job, slots, partner=None, power_limit_w=None, key=key or f"move {job}")


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    return SimulatedCluster(tmp_path, CALM)


def status(cluster: SimulatedCluster, job: str):
    found = cluster.state().job(job)
    assert found is not None
    return found


def on_disk(home: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}


A100 = Slot("a100-01", (0,))
H100 = Slot("h100-01", (1,))


def test_it_is_a_cluster_manager_and_begins_where_the_settings_say(cluster) -> None:
    assert isinstance(cluster, ClusterManager)
    assert not cluster.real
    assert cluster.now == CALM.start
    state = cluster.state()
    assert len(state.servers) == 6
    assert state.jobs
    assert all(found.state is JobState.WAITING for found in state.jobs)


def test_it_is_opened_by_the_settings_and_writes_to_their_spool(settings: Settings) -> None:
    manager = open_cluster(settings)
    manager.advance(60)
    assert list((settings.spool / "gpu").iterdir())
    assert open_manager.__module__  # the cluster room opens it by this name
    assert open_cluster(settings).now == manager.now


def test_a_placed_job_is_on_its_slots_at_once_and_runs_after_the_start(cluster) -> None:
    job = gang(cluster)
    put(cluster, job, A100)
    assert status(cluster, job).slots == (A100,)
    assert status(cluster, job).state is JobState.MOVING
    cluster.advance(60)
    assert status(cluster, job).state is JobState.RUNNING
    assert status(cluster, job).steps_done > 0


def test_a_move_takes_time_and_shows_its_target_at_once(cluster) -> None:
    job = gang(cluster)
    put(cluster, job, A100)
    cluster.advance(120)
    done = status(cluster, job).steps_done
    shift(cluster, job, H100)
    moving = status(cluster, job)
    assert (moving.state, moving.slots, moving.moves) == (JobState.MOVING, (H100,), 1)
    assert moving.steps_done <= done
    cluster.advance(30)
    assert status(cluster, job).state is JobState.MOVING
    cluster.advance(60)
    assert status(cluster, job).state is JobState.RUNNING


def test_some_jobs_lose_what_they_did_since_their_checkpoint(tmp_path: Path) -> None:
    lost = 0
    cluster = SimulatedCluster(tmp_path, CALM.model_copy(update={"servers": 12}))
    jobs = [gang(cluster, index) for index in range(6)]
    slots = [Slot("a100-02", (index,)) for index in range(6)]
    for job, slot in zip(jobs, slots, strict=True):
        put(cluster, job, slot)
    cluster.advance(200)
    before = {job: status(cluster, job) for job in jobs}
    for job in jobs:
        if before[job].state is JobState.RUNNING:
            cluster.hold(job, key=f"hold {job}")
            held = status(cluster, job)
            assert (held.state, held.slots) == (JobState.WAITING, ())
            lost += held.steps_done < before[job].steps_done
    assert 0 < lost < 6


def test_the_same_key_twice_is_harmless(cluster) -> None:
    job = gang(cluster)
    put(cluster, job, A100, key="once")
    put(cluster, job, A100, key="once")
    cluster.advance(60)
    shift(cluster, job, H100, key="move once")
    shift(cluster, job, H100, key="move once")
    assert status(cluster, job).moves == 1


def test_a_refused_action_changes_nothing(cluster, tmp_path: Path) -> None:
    job = gang(cluster)
    before = on_disk(tmp_path)
    for slots in (
        (Slot("nowhere", (0,)),),
        (Slot("a100-01", (9,)),),
        (Slot("a100-01", (0, 1, 2)),),
        (),
    ):
        with pytest.raises(ActionFailed):
            put(cluster, job, *slots)
    with pytest.raises(ActionFailed):
        shift(cluster, job, A100)
    with pytest.raises(ActionFailed):
        cluster.hold("j99999", key="x")
    with pytest.raises(ActionFailed):
        cluster.set_power_limit("a100-01", 0, 5.0, key="y")
    assert on_disk(tmp_path) == before
    assert status(cluster, job).state is JobState.WAITING


def test_two_jobs_share_a_gpu_and_a_third_does_not(cluster) -> None:
    jobs = [gang(cluster, index) for index in range(3)]
    put(cluster, jobs[0], H100)
    cluster.advance(60)
    alone = cluster.state()
    put(cluster, jobs[1], H100)
    assert status(cluster, jobs[0]).partners == (jobs[1],)
    with pytest.raises(ActionFailed, match="taken"):
        put(cluster, jobs[2], H100)
    assert alone.job(jobs[0]).partners == ()


def test_a_server_takes_its_time_to_switch_and_an_occupied_one_stays_on(cluster) -> None:
    job = gang(cluster)
    put(cluster, job, A100)
    with pytest.raises(ActionFailed, match="runs there"):
        cluster.switch("a100-01", on=False, key="a")
    cluster.switch("h100-01", on=False, key="b")
    assert cluster.state().server("h100-01").power is PowerState.SWITCHING_OFF
    cluster.advance(60)
    assert cluster.state().server("h100-01").power is PowerState.OFF
    other = gang(cluster)
    with pytest.raises(ActionFailed, match="off"):
        put(cluster, other, H100)
    cluster.switch("h100-01", on=True, key="c")
    put(cluster, other, H100, key="again")
    cluster.advance(60)
    assert cluster.state().server("h100-01").power is PowerState.SWITCHING_ON
    assert status(cluster, other).state is JobState.MOVING
    cluster.advance(90)
    assert status(cluster, other).state is JobState.RUNNING


def test_off_servers_save_energy_and_limits_slow_jobs_down(tmp_path: Path) -> None:
    watts = {}
    for name in ("on", "off"):
        cluster = SimulatedCluster(tmp_path / name, CALM)
        if name == "off":
            cluster.switch("k80-01", on=False, key="off")
        cluster.advance(600)
        watts[name] = cluster.metrics().mean_watts
    assert watts["off"] < watts["on"] - 100


def test_a_released_job_is_placed_by_the_cluster_itself(cluster) -> None:
    job = gang(cluster)
    cluster.release(job, key="r")
    cluster.advance(60)
    assert status(cluster, job).state is JobState.RUNNING


def test_faults_strike(cluster) -> None:
    jobs = [gang(cluster, index) for index in range(3)]
    put(cluster, jobs[0], A100)
    put(cluster, jobs[1], H100)
    put(cluster, jobs[2], Slot("v100-01", (0,)))
    cluster.advance(60)
    cluster.fault("gpu_dies", "a100-01/0")
    cluster.fault("server_vanishes", "h100-01")
    cluster.fault("job_crashes", jobs[2])
    state = cluster.state()
    assert state.server("a100-01").foreign_gpus == (0,)
    assert state.server("h100-01").power is PowerState.DOWN
    assert [state.job(job).state for job in jobs] == [
        JobState.WAITING,
        JobState.WAITING,
        JobState.FAILED,
    ]
    with pytest.raises(ActionFailed):
        put(cluster, jobs[0], A100, key="again")
    with pytest.raises(InvalidInput, match="known"):
        cluster.fault("earthquake", "room")
    with pytest.raises(InvalidInput):
        cluster.fault("gpu_dies", "a100-01/99")
    cluster.fault("server_returns", "h100-01")
    cluster.advance(120)
    assert cluster.state().server("h100-01").power is PowerState.ON


def test_telemetry_of_a_silent_server_does_not_come(cluster, tmp_path: Path) -> None:
    cluster.fault("telemetry_stops", "k80-01")
    cluster.advance(60)
    servers = Counter(row.split(",")[1] for row in samples(tmp_path)[1:])
    assert "k80-01" not in servers
    assert servers["a100-01"] == 6 * 4


def samples(home: Path) -> list[str]:
    files = sorted((home / "spool" / "gpu").iterdir())
    return [row for path in files for row in gzip.decompress(path.read_bytes()).decode().split()]


def test_bad_telemetry_comes_at_the_rate_that_is_set(tmp_path: Path) -> None:
    bad = CALM.model_copy(update={"garbage_rate": 0.1, "gap_rate": 0.1, "late_rate": 0.1})
    SimulatedCluster(tmp_path / "calm", CALM).advance(300)
    cluster = SimulatedCluster(tmp_path / "bad", bad)
    cluster.advance(300)
    expected = len(samples(tmp_path / "calm")) - 1
    now = len(samples(tmp_path / "bad")) - 1
    assert 0.75 * expected < now < 0.9 * expected  # lost, and still on their way
    cluster.advance(1200)
    first = [row for row in samples(tmp_path / "bad") if row.startswith("2026-01-05T09:0")]
    assert first
    late = gzip.decompress(sorted((tmp_path / "bad/spool/gpu").iterdir())[-1].read_bytes()).decode()
    assert any(row.startswith("2026-01-05T09:0") for row in late.splitlines()[1:])
    assert any(
        "[N/A]" in row or "-87.0" in row or "not-a-time" in row
        for row in first + samples(tmp_path / "bad")
    )


def test_how_the_time_is_cut_does_not_matter(tmp_path: Path) -> None:
    worlds = []
    for name, cuts in (("whole", (600,)), ("cut", (100, 50, 50, 400))):
        cluster = SimulatedCluster(tmp_path / name, CALM)
        put(cluster, gang(cluster), A100)
        for seconds in cuts:
            cluster.advance(seconds)
        worlds.append(json.loads((tmp_path / name / "state.json").read_text())["world"])
    assert worlds[0] == worlds[1]


def test_it_goes_on_where_another_process_left_it(tmp_path: Path) -> None:
    first = SimulatedCluster(tmp_path, CALM)
    second = SimulatedCluster(tmp_path, CALM)
    first.advance(60)
    assert second.now == CALM.start + timedelta(seconds=60)
    job = gang(second)
    put(second, job, A100)
    assert status(first, job).slots == (A100,)


def test_actions_read_again_leave_the_same_world_and_a_half_written_one_counts_for_nothing(
    tmp_path: Path,
) -> None:
    cluster = SimulatedCluster(tmp_path, CALM)
    put(cluster, gang(cluster), A100)
    put(cluster, gang(cluster), H100)
    cluster.switch("t4-01", on=False, key="off")
    cluster.fault("job_crashes", gang(cluster), key="crash")
    (log,) = tmp_path.glob("actions-*.jsonl")
    with log.open("ab") as handle:
        handle.write(b'{"do": "fault", "told": {"kind": "server_va')
    again = SimulatedCluster(tmp_path, CALM)
    assert again.state() == cluster.state()
    again.switch("t4-01", on=True, key="on")
    assert again.state() == cluster.state()
    again.advance(60)
    (empty,) = tmp_path.glob("actions-*.jsonl")
    assert empty.name != log.name
    assert not empty.read_bytes()
    assert SimulatedCluster(tmp_path, CALM).state() == cluster.state()


def test_a_home_of_other_settings_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    SimulatedCluster(tmp_path, CALM)
    with pytest.raises(ClusterError, match="other simulation settings"):
        SimulatedCluster(tmp_path, CALM.model_copy(update={"seed": 4}))
    SimulatedCluster(tmp_path, CALM.model_copy(update={"garbage_rate": 0.5}))
    for damaged in (*tmp_path.glob("actions-*.jsonl"), tmp_path / "state.json"):
        damaged.write_text("{\n")
        with pytest.raises(ClusterError, match=f"{damaged.name}.* JSON"):
            SimulatedCluster(tmp_path, CALM)


def test_inference_follows_the_day_and_spreads(tmp_path: Path) -> None:
    cluster = SimulatedCluster(tmp_path, CALM.model_copy(update={"servers": 12}))
    service = next(s.job for s in cluster.state().jobs if s.job.mode is Mode.SPREAD)
    put(cluster, service.id, Slot("a100-01", (0,)), Slot("t4-01", (1,)))
    cluster.advance(120)
    found = status(cluster, service.id)
    assert found.state is JobState.RUNNING
    first = found.steps_done
    shift(cluster, service.id, Slot("a100-01", (0,)), Slot("v100-01", (2,)))
    still = status(cluster, service.id)
    assert still.state is JobState.RUNNING  # the replica that stays is not disturbed
    assert still.steps_done == first
    cluster.advance(3600)
    later = status(cluster, service.id).job
    assert replace(later, required_throughput=0) == replace(service, required_throughput=0)
    assert later.required_throughput != service.required_throughput


def test_jobs_end_and_are_shown_for_an_hour(tmp_path: Path) -> None:
    cluster = SimulatedCluster(tmp_path, CALM.model_copy(update={"servers": 12}))
    for found in cluster.state().jobs:
        cluster.release(found.job.id, key=f"release {found.job.id}")
    cluster.advance(2 * 3600)
    metrics = cluster.metrics()
    assert metrics.finished > 3
    shown = cluster.state().jobs
    over = [s for s in shown if s.state in (JobState.FINISHED, JobState.FAILED)]
    ended = (tmp_path / "ended.jsonl").read_text().splitlines()
    assert metrics.submitted == len(shown) - len(over) + len(ended)
    assert all(s.since > cluster.now - timedelta(hours=1, seconds=1) for s in over)
    halves = [
        cluster.metrics(CALM.start, CALM.start + timedelta(hours=1)),
        cluster.metrics(CALM.start + timedelta(hours=1), cluster.now),
    ]
    assert sum(half.energy_j for half in halves) == pytest.approx(metrics.energy_j)
    assert 0 < metrics.slo_attainment <= 1


def test_the_spool_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gogh_core.simulation.cluster.SPOOL_S", 3600)
    small = CALM.model_copy(update={"servers": 1, "jobs_per_hour": 0.1})
    cluster = SimulatedCluster(tmp_path, small)
    cluster.advance(3600)
    strange = tmp_path / "spool" / "gpu" / "other-1.csv"
    strange.write_text("not ours")
    first = {path.name for path in (tmp_path / "spool" / "gpu").iterdir()}
    cluster.advance(2 * 3600)
    kept = {path.name for path in (tmp_path / "spool" / "gpu").iterdir()}
    assert first & kept == {"other-1.csv"}
    assert len(kept) == 2 + 1
