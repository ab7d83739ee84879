"""Whatever one record does, that record is refused with a reason and the others go on."""

from __future__ import annotations

import json
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, strategies
from hypothesis import settings as budget

from gogh_core.cluster import state_from_dict, state_to_dict
from gogh_core.cluster.boundary import check_job, check_server
from gogh_core.cluster.files import FilesManager
from gogh_core.cluster.slurm.comment import read_comment
from gogh_core.cluster.slurm.reading import Reading, parsed, read
from gogh_core.cluster.slurm.text import Marks, jobs_from_text, nodes_from_text
from gogh_core.cluster.statefile import read_state
from gogh_core.domain import ClusterState
from gogh_core.errors import InvalidInput
from gogh_core.settings import Settings, SimulationSettings
from gogh_core.simulation import SimulatedCluster
from gogh_core.store import Store
from gogh_core.telemetry import record_state
from tests.cluster.fake import NOW, Fake, at, running, server, waiting

EARLY = "0001-01-01T00:00:00+23:59"
HUGE = "x" * 262_144
QUICK = budget(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300
)

odd = strategies.recursive(
    strategies.one_of(
        strategies.none(),
        strategies.booleans(),
        strategies.integers(),
        strategies.sampled_from([2**31, 2**63, -1, 10**400, 0, 1e308, 1e31, -0.0]),
        strategies.floats(),
        strategies.text(max_size=12),
        strategies.sampled_from(
            [HUGE, "", "\ud800", "a\0b", "\x1b[2J", "²", "٣", "模型", EARLY, "9999-12-31T23:59:59Z",
             "gogh model=x", "gpu:v100:" + "9" * 5000, "gpu:2(IDX:0-999999999)", "NaN"]
        ),
    ),
    lambda inner: strategies.lists(inner, max_size=3)
    | strategies.dictionaries(strategies.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


def slurm_job(number: int, comment: str = "gogh model=x", **more: object) -> dict:
    return {
        "job_id": number,
        "job_state": "RUNNING",
        "partition": "gpu",
        "user_name": "ann",
        "name": "train",
        "comment": comment,
        "tres_per_node": "gres:gpu:1",
        "submit_time": 1_767_600_000,
        "start_time": 1_767_600_100,
        "priority": 10,
        "requeue": True,
        "restart_cnt": 0,
        "job_resources": {"allocated_nodes": [{"nodename": "n1"}]},
        "gres_detail": [f"gpu:1(IDX:{number % 4})"],
        **more,
    }


def slurm_node(name: str, **more: object) -> dict:
    return {"name": name, "partitions": ["gpu"], "gres": "gpu:v100:4", "state": "idle", **more}


def looked(jobs: list, nodes: list | None = None) -> Reading:
    nodes = [slurm_node("n1"), slurm_node("n2")] if nodes is None else nodes
    jobs = parsed(json.dumps({"jobs": jobs}), "jobs", "squeue")
    return read(jobs, nodes, Settings(), NOW)


def names(state: ClusterState) -> set[str]:
    return {status.job.id for status in state.jobs}


def sound(state: ClusterState, refused: dict[str, str]) -> None:
    """Everything in the state can be kept and planned with, every reason can be printed."""
    for status in state.jobs:
        check_job(status)
    for status in state.servers:
        check_server(status)
    assert state_from_dict(json.loads(json.dumps(state_to_dict(state)))) == state
    assert all(0 < len(why) <= 300 and why.isprintable() for why in refused.values())
    assert all(name.isprintable() for name in refused)


class TestSlurm:
    def test_a_job_with_an_absurd_deadline_is_refused_and_the_others_go_on(self) -> None:
        reading = looked([slurm_job(1), slurm_job(2, f"gogh model=x deadline={EARLY}")])
        assert names(reading.state) == {"1"}
        assert set(reading.refused) == {"2"}
        assert "out of range" in reading.refused["2"]

    def test_the_comment_itself_refuses_the_absurd_deadline(self) -> None:
        with pytest.raises(InvalidInput, match="out of range"):
            read_comment(f"gogh model=x deadline={EARLY}")

    @pytest.mark.parametrize("year", ["0500", "1969", "2200", "9999"])
    def test_a_deadline_far_from_our_time_is_refused(self, year: str) -> None:
        far = f"gogh model=x deadline={year}-06-01T00:00:00Z"
        reading = looked([slurm_job(1), slurm_job(2, far)])
        assert names(reading.state) == {"1"}
        assert "deadline_at" in reading.refused["2"]

    def test_the_gpus_of_a_refused_job_that_runs_are_not_ours(self) -> None:
        reading = looked([slurm_job(1), slurm_job(2, f"gogh model=x deadline={EARLY}")])
        n1, n2 = reading.state.servers
        assert n1.foreign_gpus == (2,)
        assert n1.keep_on
        assert not n2.keep_on

    def test_servers_stay_on_while_a_record_does_not_say_where_its_job_runs(self) -> None:
        reading = looked([slurm_job(1), slurm_job(2, job_resources=7)])
        assert names(reading.state) == {"1"}
        assert set(reading.refused) == {"2"}
        assert all(status.keep_on for status in reading.state.servers)

    def test_a_record_that_is_no_object_is_refused_by_its_place(self) -> None:
        reading = looked([3, slurm_job(1), None, [slurm_job(5)]])
        assert names(reading.state) == {"1"}
        assert set(reading.refused) == {f"record {index} of squeue" for index in (0, 2, 3)}

    def test_a_job_that_is_reported_twice_is_refused_and_its_gpus_are_not_ours(self) -> None:
        again = slurm_job(2, gres_detail=["gpu:1(IDX:3)"])
        reading = looked([slurm_job(1), slurm_job(2), again])
        assert names(reading.state) == {"1"}
        assert reading.refused["2"] == "is reported more than once"
        assert reading.state.servers[0].foreign_gpus == (2, 3)

    def test_a_bad_node_is_left_out_with_the_reason(self) -> None:
        bad = slurm_node("n3", reason_changed_at=1e300)
        reading = looked([slurm_job(1)], [slurm_node("n1"), bad, 5])
        assert [status.server.id for status in reading.state.servers] == ["n1"]
        assert set(reading.refused) == {"node n3", "node record 2 of sinfo"}
        assert names(reading.state) == {"1"}

    @QUICK
    @given(strategies.text(max_size=80) | strategies.sampled_from([HUGE, "model=x " * 200]))
    @example("model=x deadline=" + EARLY)
    @example("model=x total_steps=" + "9" * 400)
    @example("model=%ed%a0%80")
    def test_no_comment_stops_the_others(self, words: str) -> None:
        reading = looked([slurm_job(1), slurm_job(2, f"gogh {words}")])
        assert "1" in names(reading.state)
        assert "2" in {*names(reading.state), *reading.refused}
        sound(reading.state, reading.refused)

    @QUICK
    @given(
        strategies.sampled_from(sorted(slurm_job(2))),
        odd,
        strategies.sampled_from([*sorted(slurm_node("n2")), "state_flags", "reason_changed_at"]),
        odd,
    )
    def test_no_record_of_a_job_or_node_stops_the_others(self, key, value, at_node, value_there):
        jobs = [slurm_job(1), {**slurm_job(2), key: value}, {**slurm_job(3), key: value}]
        del jobs[2][key]
        nodes = [slurm_node("n1"), {**slurm_node("n2"), at_node: value_there}, slurm_node("n3")]
        reading = looked(jobs, nodes)
        assert "1" in {*names(reading.state), *reading.refused}
        if key != "job_id":
            assert "1" in names(reading.state)
        kept = {status.server.id for status in reading.state.servers}
        assert "n3" in kept or value_there == "n3"
        sound(reading.state, reading.refused)

    def test_a_row_of_text_with_odd_digits_is_refused_and_the_others_go_on(self) -> None:
        mark = Marks("|", ";")

        def row(number: str, nodes: str = "n1", gres: str = "gres:gpu:1") -> str:
            fields = [number, number, "RUNNING", "ann", "gpu", gres, nodes, "",
                      "1767600000", "1767600000", "5", "train", "gogh model=x"]  # fmt: skip
            return "|".join(fields) + ";\n"

        text = row("1") + row("²") + row("3", "n[1-999999999]") + "nonsense;\n"
        text += row("4", gres="gres:gpu:" + "9" * 5000)
        reading = read(jobs_from_text(text, mark), [slurm_node("n1")], Settings(), NOW)
        assert names(reading.state) == {"1"}
        assert set(reading.refused) == {"²", "3", "record 3 of squeue", "4"}

    def test_a_bad_row_of_nodes_leaves_that_node_out(self) -> None:
        mark = Marks("|", ";")
        nodes = nodes_from_text("n1|gpu|idle|gpu:v100:4;\nn2|gpu;\n", mark)
        reading = read([], nodes, Settings(), NOW)
        assert [status.server.id for status in reading.state.servers] == ["n1"]
        assert set(reading.refused) == {"node record 1 of sinfo"}


class TestFiles:
    @pytest.fixture
    def raw(self) -> dict:
        fake = Fake.of([server("s1"), server("s2")], [running("a", at("s1", 0)), waiting("b")])
        return state_to_dict(fake.state())

    def test_a_site_with_one_bad_job_is_planned_without_it(self, settings, raw) -> None:
        raw["jobs"][0]["job"]["deadline_at"] = EARLY
        settings.plans.mkdir(parents=True)
        (settings.plans / "state.json").write_text(json.dumps(raw))
        manager = FilesManager(settings)
        state = manager.state()
        assert names(state) == {"b"}
        assert set(manager.refused()) == {"a"}
        assert state.servers[0].foreign_gpus == (0,)
        assert state.servers[0].keep_on

    def test_a_site_with_one_bad_server_is_planned_without_it(self, raw) -> None:
        raw["servers"][1]["server"]["gpus"] = 10**9
        state, refused = read_state(raw)
        assert [status.server.id for status in state.servers] == ["s1"]
        assert set(refused) == {"server s2"}

    def test_a_kept_state_with_a_bad_record_is_not_half_read(self, raw) -> None:
        raw["jobs"][0]["state"] = "dancing"
        with pytest.raises(InvalidInput, match="dancing"):
            state_from_dict(raw)

    @QUICK
    @given(
        strategies.sampled_from(["job", "state", "slots", "since", "moves", "partners", "no such"]),
        strategies.sampled_from(
            ["id", "descriptors", "submitted_at", "priority", "gpu_counts", "owner", "movable",
             "shareable", "deadline_at", "total_steps", "name", "mode"]
        ),
        odd,
    )  # fmt: skip
    def test_no_record_of_a_site_stops_the_others(self, outer, inner, value) -> None:
        fake = Fake.of([server("s1"), server("s2")], [running("a", at("s1", 0)), waiting("b")])
        for keys in (["jobs", outer], ["jobs", "job", inner], ["servers", outer]):
            raw = deepcopy(state_to_dict(fake.state()))
            entry = raw[keys[0]][0]
            if len(keys) == 3:
                entry = entry["job"]
            entry[keys[-1]] = value
            state, refused = read_state(raw)
            assert "b" in {*names(state), *refused}
            assert state.server("s2") is not None
            sound(state, refused)


class TestEmbedded:
    @pytest.fixture
    def home(self, tmp_path: Path) -> Path:
        cluster = SimulatedCluster(tmp_path, SimulationSettings(servers=4, seed=3))
        cluster.advance(3600)
        return tmp_path

    def opened(self, home: Path) -> SimulatedCluster:
        return SimulatedCluster(home, SimulationSettings(servers=4, seed=3))

    def test_a_bad_job_record_is_refused_and_the_cluster_goes_on(self, home: Path) -> None:
        path = home / "state.json"
        raw = json.loads(path.read_text())
        record = raw["world"]["jobs"][0]
        name = record["demand"]["job"]["id"]
        record["demand"]["job"]["deadline_at"] = EARLY
        path.write_text(json.dumps(raw))
        cluster = self.opened(home)
        others = names(cluster.state())
        assert name not in others
        assert set(cluster.refused()) == {name}
        cluster.advance(60)
        assert name in self.opened(home).refused()
        kept = [r["demand"]["job"]["id"] for r in json.loads(path.read_text())["world"]["jobs"]]
        assert name in kept

    def test_a_bad_server_record_leaves_that_server_out(self, home: Path) -> None:
        path = home / "state.json"
        raw = json.loads(path.read_text())
        name = raw["world"]["servers"][0]["server"]["id"]
        raw["world"]["servers"][0]["energy_j"] = ["much"]
        path.write_text(json.dumps(raw))
        cluster = self.opened(home)
        assert cluster.state().server(name) is None
        assert f"server {name}" in cluster.refused()
        cluster.advance(60)

    @budget(QUICK, max_examples=50)
    @given(strategies.data(), odd)
    def test_no_record_on_disk_stops_the_cluster(self, tmp_path_factory, data, value) -> None:
        home = tmp_path_factory.mktemp("cluster")
        cluster = SimulatedCluster(home, SimulationSettings(servers=2, seed=3))
        cluster.advance(1800)
        raw = json.loads((home / "state.json").read_text())
        kind = data.draw(strategies.sampled_from(["jobs", "servers"]))
        entry = raw["world"][kind][0]
        while True:
            key = data.draw(strategies.sampled_from(sorted(entry)))
            if (
                not isinstance(entry[key], dict)
                or not entry[key]
                or data.draw(strategies.booleans())
            ):
                break
            entry = entry[key]
        entry[key] = value
        (home / "state.json").write_text(json.dumps(raw))
        cluster = SimulatedCluster(home, SimulationSettings(servers=2, seed=3))
        cluster.advance(60)
        sound(cluster.state(), dict(cluster.refused()))


def test_records_that_pass_the_boundary_can_be_kept(settings: Settings, store: Store) -> None:
    long = slurm_job(2, "gogh model=" + "x" * 200, name="模" * 300 + "\n\t", user_name="ä" * 50)
    late = slurm_job(3, "gogh model=x deadline=2199-12-31T00:00:00Z total_steps=1e29 priority=0")
    reading = looked([slurm_job(1), long, late])
    assert names(reading.state) == {"1", "2", "3"}
    now = datetime(2026, 1, 5, 12, tzinfo=UTC)
    report = record_state(store, settings, reading.state, now=now)
    assert report.refused == ()
