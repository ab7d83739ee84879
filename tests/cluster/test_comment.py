"""Comments of Slurm jobs, honest and otherwise."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings, strategies

from gogh_core.cluster.slurm import read_comment, write_comment
from gogh_core.cluster.slurm.comment import opts_in
from gogh_core.cluster.slurm.reading import parsed, read
from gogh_core.cluster.slurm.submit import arguments
from gogh_core.cluster.slurm.text import Marks, expand_hosts, jobs_from_text, nodes_from_text
from gogh_core.domain import JobKind, JobState, PowerState
from gogh_core.errors import ClusterUnavailable, InvalidInput
from gogh_core.settings import Settings, SlurmSettings

NOW = datetime(2026, 1, 5, tzinfo=UTC)


def test_descriptors_and_promise_are_read() -> None:
    promise = read_comment(
        "gogh model=resnet50 batch_size=64 min_throughput=5.2 shareable gpus=1,2 kind=inference "
        "unit=requests/s priority=2 move_cost_j=3e4 deadline=2026-01-05T12:00:00+00:00 fixed"
    )
    assert promise.descriptors.job_class == "resnet50 (batch size 64)"
    assert promise.descriptors.kind is JobKind.INFERENCE
    assert promise.required_throughput == 5.2
    assert promise.shareable is True
    assert promise.gpu_counts == (1, 2)
    assert promise.unit == "requests/s"
    assert not promise.movable
    assert promise.move_cost_j == 30000
    assert promise.deadline_at == datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "comment",
    [
        "gogh",
        "gogh batch_size=64",
        "gogh model=",
        "gogh model=x model=y",
        "gogh model=x colour=red",
        "gogh model=x batch_size=0",
        "gogh model=x batch_size=1e9",
        "gogh model=x batch_size=-1",
        "gogh model=x min_throughput=nan",
        "gogh model=x min_throughput=inf",
        "gogh model=x min_throughput=1e999",
        "gogh model=x min_throughput=٣",
        "gogh model=x shareable=perhaps",
        "gogh model=x fixed=1",
        "gogh model=x kind=mining",
        "gogh model=x gpus=1,,2",
        "gogh model=x deadline=tomorrow",
        "gogh model=x deadline=2026-01-05T12:00:00",
        "gogh model='x'",
        'gogh model="x"',
        "gogh model=$(reboot)",
        "gogh model=`reboot`",
        "gogh model=x;reboot",
        "gogh model=x\nmodel=y",
        "gogh model=x\x00",
        "gogh model=%00",
        "gogh model=%ff",
        "gogh model=%0a",
        "gogh\tmodel=x",
        "gogh model=" + "x" * 300,
        "gogh model=" + "x" * 1_000_000,
        "GOGH model=x",
        "gogher model=x",
    ],
)
def test_what_is_not_exactly_of_the_form_is_refused(comment: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_comment(comment)
    assert len(str(caught.value)) < 500
    assert str(caught.value).isprintable()


@given(strategies.text(max_size=200))
@settings(derandomize=True, deadline=None, max_examples=100)
def test_any_text_is_read_or_refused(text: str) -> None:
    for comment in (text, "gogh " + text, "gogh model=" + text):
        try:
            promise = read_comment(comment)
        except InvalidInput:
            continue
        assert promise.descriptors.model
        assert opts_in(comment)


@given(strategies.text(min_size=1, max_size=50).filter(lambda t: t.strip() and t.isprintable()))
@settings(derandomize=True, deadline=None, max_examples=60)
def test_what_is_written_is_read_again_in_any_script(model: str) -> None:
    assert (
        read_comment(write_comment({"model": model, "shareable": True})).descriptors.model == model
    )


def test_submit_writes_what_slurm_needs() -> None:
    words = {"model": "resnet50", "batch_size": 64, "shareable": True, "fixed": False}
    assert arguments(words, ["train.sh", "--lr", "$(id)"], "gpu") == [
        "--parsable",
        "--hold",
        "--requeue",
        "--gres=shard:1",
        "--comment=gogh model=resnet50 batch_size=64 shareable",
        "--partition=gpu",
        "train.sh",
        "--lr",
        "$(id)",
    ]
    assert "--gres=gpu:2" in arguments({"model": "x", "gpus": "2,4"}, ["a.sh"], None)
    with pytest.raises(InvalidInput, match="cannot share"):
        arguments({"model": "x", "gpus": "2", "shareable": True}, ["a.sh"], None)
    with pytest.raises(InvalidInput, match="no script"):
        arguments({"model": "x"}, [], None)


def record(number: int, **more) -> dict:
    """One job as squeue --json writes it."""
    return {
        "job_id": number,
        "job_state": "PENDING",
        "comment": "gogh model=x",
        "tres_per_node": "gres:gpu:1",
        "requeue": True,
        "submit_time": 1_790_000_000,
        "user_name": "ann",
        "name": "job",
        "partition": "gpu",
        **more,
    }


def node(name: str, **more) -> dict:
    """One node as sinfo --json writes it."""
    gres = {"gres": "gpu:v100:4,shard:v100:8", "partitions": ["gpu"]}
    return {"name": name, "state": "idle", "state_flags": [], **gres, **more}


def reading(jobs: list[dict], nodes: list[dict], settings: Settings):
    return read(jobs, nodes, settings, NOW)


def there(name: str, detail: str) -> dict:
    return {
        "job_state": "RUNNING",
        "start_time": 1_790_000_100,
        "job_resources": {"allocated_nodes": [{"nodename": name}]},
        "gres_detail": [detail],
    }


class TestReading:
    def test_gpus_of_others_are_not_ours(self, settings: Settings) -> None:
        found = reading(
            [
                record(1, **there("n1", "gpu:v100:2(IDX:0-1)")),
                record(2, comment="", **there("n1", "gpu:v100:1(IDX:3)")),
                record(3, comment="gogh nonsense", **there("n2", "shard:1(IDX:2)")),
            ],
            [node("n1"), node("n2"), node("cpu", gres="")],
            settings,
        )
        assert [status.job.id for status in found.state.jobs] == ["1"]
        assert found.state.jobs[0].slots[0].gpus == (0, 1)
        servers = {status.server.id: status for status in found.state.servers}
        assert set(servers) == {"n1", "n2"}
        assert servers["n1"].foreign_gpus == (3,)
        assert servers["n2"].foreign_gpus == (2,)
        assert list(found.refused) == ["3"]

    @pytest.mark.parametrize(
        ("more", "why"),
        [
            ({"tres_per_node": "gres:gpu:v100:1"}, "GPU type"),
            ({"tres_per_node": ""}, "no GPUs"),
            ({"array_job_id": 7}, "arrays"),
            ({"het_job_id": 7}, "heterogeneous"),
        ],
    )
    def test_jobs_that_cannot_be_planned_say_why(self, more, why, settings) -> None:
        found = reading([record(1, **more)], [node("n1")], settings)
        assert why in found.refused["1"]
        assert not found.state.jobs

    def test_a_partition_opts_in_as_well(self, settings: Settings) -> None:
        ours = settings.model_copy(update={"slurm": SlurmSettings(partition="gpu")})
        found = reading(
            [record(1, comment="", name="训练"), record(2, comment="", partition="other")],
            [node("n1"), node("n2", partitions=["other"])],
            ours,
        )
        assert [status.job.descriptors.model for status in found.state.jobs] == ["训练"]
        assert [status.server.id for status in found.state.servers] == ["n1"]

    @pytest.mark.parametrize(
        ("state", "flags", "power"),
        [
            ("idle", [], PowerState.ON),
            ("idle", ["POWERED_DOWN"], PowerState.OFF),
            ("idle", ["POWERING_DOWN"], PowerState.SWITCHING_OFF),
            ("idle", ["POWER_UP", "POWERED_DOWN"], PowerState.SWITCHING_ON),
            ("down", [], PowerState.DOWN),
            ("idle", ["NOT_RESPONDING"], PowerState.DOWN),
        ],
    )
    def test_states_of_nodes(self, state, flags, power, settings) -> None:
        found = reading([], [node("n1", state=state, state_flags=flags)], settings)
        assert found.state.servers[0].power is power

    @pytest.mark.parametrize("flag", ["DRAIN", "RESERVED", "MAINTENANCE"])
    def test_nodes_that_are_to_be_left_alone(self, flag, settings) -> None:
        assert reading([], [node("n1", state_flags=[flag])], settings).state.servers[0].drain

    @pytest.mark.parametrize(
        ("state", "ours"),
        [
            ("COMPLETED", JobState.FINISHED),
            ("CANCELLED", JobState.CANCELLED),
            ("TIMEOUT", JobState.FAILED),
            ("NODE_FAIL", JobState.FAILED),
            ("CONFIGURING", JobState.MOVING),
            ("REQUEUE_HOLD", JobState.WAITING),
        ],
    )
    def test_states_of_jobs(self, state, ours, settings) -> None:
        found = reading([record(1, job_state=state)], [], settings)
        assert found.state.jobs[0].state is ours

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"jobs": 3}', "[" * 10**6])
    def test_nonsense_of_slurm_is_no_answer(self, text) -> None:
        with pytest.raises(ClusterUnavailable):
            parsed(text, "jobs", "squeue --json")


class TestText:
    """Slurms whose programs know no JSON."""

    def test_lists_of_nodes(self) -> None:
        assert list(expand_hosts("a,gpu[01-03,7]-x,b2")) == [
            "a",
            "gpu01-x",
            "gpu02-x",
            "gpu03-x",
            "gpu7-x",
            "b2",
        ]
        assert list(expand_hosts("")) == []
        with pytest.raises(ClusterUnavailable, match="too long"):
            list(expand_hosts("n[0-99999999]"))

    def test_what_was_not_asked_for_is_no_answer(self) -> None:
        with pytest.raises(ClusterUnavailable):
            jobs_from_text("a|b#", Marks("|", "#"))

    def test_names_and_comments_cannot_forge_fields(self, settings) -> None:
        fields = [
            "7", "7", "RUNNING", "ann", "gpu", "gres:gpu:2", "n1", "n1", "1790000000",
            "1790000100", "12", "x\ny | z", "gogh model=a",
        ]  # fmt: skip
        jobs = jobs_from_text("<>".join(fields) + "##\n", Marks("<>", "##"))
        lines = ("n1<>gpu<>mixed<>gpu:v100:4##", "n2<>gpu<>down*<>gpu:v100:4##", "")
        nodes = nodes_from_text("\n".join(lines), Marks("<>", "##"))
        found = reading(jobs, nodes, settings)
        assert found.state.jobs[0].slots[0].gpus == (0, 1)
        assert found.state.jobs[0].job.name == "x\ny | z"
        assert [s.power for s in found.state.servers] == [PowerState.ON, PowerState.DOWN]
