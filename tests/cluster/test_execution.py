"""A plan becomes true, or the journal says how far it got."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gogh_core.cluster import Capabilities, carry_out, disruptions, executions, pause, resume
from gogh_core.domain import JobState, PowerState
from gogh_core.errors import ActionFailed, ClusterUnavailable
from gogh_core.settings import GuardSettings, Settings
from gogh_core.store import Store
from tests.cluster.fake import NOW, Fake, at, plan, running, server, waiting


def carry(a_plan, fake, settings, store, basis=None, **more):
    return carry_out(
        a_plan,
        basis or fake.state(),
        manager=fake,
        store=store,
        settings=settings,
        cycle_id="20260105T090000Z-0",
        now=NOW,
        sleep=lambda _: None,
        **more,
    )


def states(report) -> dict[str, str]:
    return {record.action.id: record.state for record in report.records}


def reasons(report) -> dict[str, str]:
    return {record.action.id: record.reason for record in report.records}


@pytest.fixture
def fake() -> Fake:
    return Fake.of(
        [server("s1"), server("s2"), server("s3", power=PowerState.OFF)],
        [running("a", at("s1", 0)), running("b", at("s1", 1)), waiting("c"), waiting("d")],
    )


@pytest.fixture
def whole():
    """Move a, stop b, place c where b was, wake s3 for d."""
    return plan(
        places={"c": at("s1", 1), "d": at("s3", 0, 1)},
        moves=[("a", at("s1", 0), at("s2", 3))],
        stops=[("b", at("s1", 1))],
        servers={"s3": "on"},
    )


def test_every_part_of_a_plan_comes_true(fake, whole, settings: Settings, store: Store) -> None:
    report = carry(whole, fake, settings, store)
    assert report.state == "done"
    assert set(states(report).values()) == {"confirmed"}
    assert fake.jobs["a"].slots == at("s2", 3)
    assert fake.jobs["b"].state is JobState.WAITING
    assert fake.jobs["c"].slots == at("s1", 1)
    assert fake.jobs["d"].slots == at("s3", 0, 1)
    order = fake.sent
    assert order.index("hold:b") < order.index("place:c")
    assert order.index("on:s3") < order.index("place:d")
    for record in report.records:
        assert record.intended_at is not None
        assert record.sent_at is not None
        assert record.settled_at is not None
        assert record.intended_at <= record.sent_at <= record.settled_at


def test_a_plan_that_was_carried_out_is_not_sent_again(fake, whole, settings, store) -> None:
    basis = fake.state()
    carry(whole, fake, settings, store)
    sent = list(fake.sent)
    again = carry(whole, fake, settings, store, basis)
    assert again.state == "done"
    assert fake.sent == sent


class Crash(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("crash_after", range(1, 6))
@pytest.mark.parametrize("arrived", [True, False])
def test_a_crash_after_any_action_goes_on_where_it_stopped(
    crash_after, arrived, fake, whole, settings, store
) -> None:
    basis = fake.state()
    count = 0

    def crash(key: str) -> None:
        nonlocal count
        count += 1
        if count == crash_after:
            raise Crash

    if arrived:
        fake.after = crash
    else:
        fake.before = crash
    with pytest.raises(Crash):
        carry(whole, fake, settings, store, basis)
    fake.before = fake.after = lambda key: None
    report = carry(whole, fake, settings, store, basis)
    assert report.state == "done"
    assert set(states(report).values()) == {"confirmed"}
    assert sorted(fake.sent) == sorted(set(fake.sent)), "an action arrived twice"
    assert fake.jobs["d"].slots == at("s3", 0, 1)


@pytest.mark.parametrize(("held", "other"), [("a", "b"), ("b", "a")])
def test_two_full_servers_swap_their_jobs_and_the_plan_says_which_is_held(
    held, other, settings, store
) -> None:
    fake = Fake.of(
        [server("s1", 1), server("s2", 1)], [running("a", at("s1", 0)), running("b", at("s2", 0))]
    )
    swap = plan(
        moves=[("a", at("s1", 0), at("s2", 0)), ("b", at("s2", 0), at("s1", 0))], held=(held,)
    )
    report = carry(swap, fake, settings, store)
    assert set(states(report).values()) == {"confirmed"}
    assert fake.sent == [f"hold:{held}", f"move:{other}", f"place:{held}"]
    assert fake.jobs["a"].slots == at("s2", 0)
    assert fake.jobs["b"].slots == at("s1", 0)


def test_a_swap_that_the_plan_does_not_open_is_abandoned_and_nothing_is_sent(
    settings, store
) -> None:
    fake = Fake.of(
        [server("s1", 1), server("s2", 1)], [running("a", at("s1", 0)), running("b", at("s2", 0))]
    )
    swap = plan(moves=[("a", at("s1", 0), at("s2", 0)), ("b", at("s2", 0), at("s1", 0))])
    report = carry(swap, fake, settings, store)
    assert (report.state, report.replan, fake.sent) == ("abandoned", True, [])
    assert "a, b wait for each other, and the plan holds none of them" in report.detail


def test_a_failed_action_stops_only_those_that_need_it(fake, whole, settings, store) -> None:
    def refuse(key: str) -> None:
        if key.endswith("hold:b"):
            raise ActionFailed("b is pinned by its owner")

    fake.before = refuse
    report = carry(whole, fake, settings, store)
    found = states(report)
    assert found["hold:b"] == "failed"
    assert found["place:c"] == "skipped"
    assert "hold:b was failed: b is pinned by its owner" in reasons(report)["place:c"]
    assert found["move:a"] == found["place:d"] == "confirmed"


def test_a_job_that_ended_by_itself_frees_its_gpu_for_the_next(
    fake, whole, settings, store
) -> None:
    basis = fake.state()
    fake.jobs["b"] = replace(fake.jobs["b"], state=JobState.FINISHED, slots=())
    report = carry(whole, fake, settings, store, basis)
    assert states(report)["hold:b"] == "skipped"
    assert "ended: finished" in reasons(report)["hold:b"]
    assert states(report)["place:c"] == "confirmed"


def test_what_no_longer_fits_is_skipped_with_the_reason(fake, whole, settings, store) -> None:
    basis = fake.state()
    del fake.jobs["c"]
    fake.servers["s2"] = replace(fake.servers["s2"], power=PowerState.DOWN)
    report = carry(whole, fake, settings, store, basis)
    assert report.state == "done"
    assert reasons(report)["place:c"] == "job c is not there any more"
    assert reasons(report)["move:a"] == "server s2 is down"
    assert fake.jobs["a"].slots == at("s1", 0)


def test_a_plan_of_which_too_much_no_longer_fits_is_abandoned(fake, whole, settings, store) -> None:
    basis = fake.state()
    fake.jobs.clear()
    report = carry(whole, fake, settings, store, basis)
    assert report.state == "abandoned"
    assert report.replan
    assert fake.sent == []
    assert set(states(report).values()) == {"skipped"}
    assert carry(whole, fake, settings, store, basis).state == "abandoned"


def test_a_manager_that_gives_no_answer_for_a_while_is_tried_again(
    fake, whole, settings, store
) -> None:
    silent = iter([True, True, False])

    def no_answer(key: str) -> None:
        if key.endswith("move:a") and next(silent, False):
            raise ClusterUnavailable("the controller is restarting")

    fake.before = no_answer
    report = carry(whole, fake, settings, store)
    assert set(states(report).values()) == {"confirmed"}


def test_a_manager_that_is_gone_leaves_the_rest_for_later(
    fake, whole, settings, store, monkeypatch
) -> None:
    monkeypatch.setattr("gogh_core.cluster.running._LEAST_PATIENCE_S", 0.2)
    basis = fake.state()
    real_state = fake.state

    def gone(*_: object) -> None:
        raise ClusterUnavailable("no controller")

    def dies(key: str) -> None:
        if key.endswith("hold:b"):
            fake.state = gone
            gone()

    fake.before = dies
    report = carry(whole, fake, settings, store, basis)
    assert report.state == "interrupted"
    assert states(report)["hold:b"] == "sent"
    assert states(report)["place:c"] == "intended"
    fake.before, fake.state = lambda key: None, real_state
    report = carry(whole, fake, settings, store, basis)
    assert set(states(report).values()) == {"confirmed"}


def test_the_switch_stops_before_the_next_action(fake, whole, settings, store) -> None:
    basis = fake.state()

    def pull(key: str) -> None:
        if len(fake.sent) == 2:
            pause(settings, store, who="ann", why="smoke", now=NOW)

    fake.after = pull
    report = carry(whole, fake, settings, store, basis)
    assert report.state == "paused"
    assert "smoke" in report.detail
    assert len(fake.sent) == 2
    assert carry(whole, fake, settings, store, basis).state == "paused"
    assert len(fake.sent) == 2
    fake.after = lambda key: None
    assert resume(settings, store, who="ann", why="it was toast", now=NOW)
    report = carry(whole, fake, settings, store, basis)
    assert set(states(report).values()) == {"confirmed"}


def test_a_newer_plan_ends_an_older_one_that_was_not_finished(fake, whole, settings, store) -> None:
    basis = fake.state()

    def crash(key: str) -> None:
        raise Crash

    fake.after = crash
    with pytest.raises(Crash):
        carry(whole, fake, settings, store, basis)
    fake.after = lambda key: None
    newer = plan("p2", places={"c": at("s2", 0)})
    assert carry(newer, fake, settings, store).state == "done"
    old = carry(whole, fake, settings, store, basis)
    assert old.state == "superseded"
    assert "p2 took its place" in reasons(old)["place:d"]
    assert {row["plan_id"]: row["state"] for row in executions(store)} == {
        "p1": "superseded",
        "p2": "done",
    }


def test_what_comes_true_elsewhere_later_is_a_failure_that_says_so(settings, store) -> None:
    """A manager that accepts and never acts: the action fails, the job is put back to wait."""
    fake = Fake.of([server("s1")], [waiting("a")])
    fake.place = lambda *args, **more: None
    report = carry(plan(places={"a": at("s1", 0)}), fake, settings, store)
    assert states(report) == {"place:a": "failed"}
    assert "put back to wait" in reasons(report)["place:a"]


def test_managers_that_cannot_pair_start_a_job_again_to_share_its_gpu(settings, store) -> None:
    fake = Fake.of([server("s1")], [running("a", at("s1", 0)), waiting("b")])
    fake.capabilities = Capabilities(False, False, False, False, action_timeout_s=0)
    pair = plan(
        places={"a": at("s1", 0), "b": at("s1", 0)},
        partners={"a": "b", "b": "a"},
        servers={"s9": "off"},
    )
    report = carry(pair, fake, settings, store)
    assert fake.sent[0] == "hold:a"
    assert set(fake.sent[1:]) == {"place:a", "place:b"}
    assert set(states(report).values()) == {"confirmed"}
    assert any("switches no servers" in said for said in report.not_capable)


def test_a_server_is_switched_off_only_when_it_is_empty(settings, store) -> None:
    fake = Fake.of(
        [server("s1"), server("s2"), server("s4", foreign_gpus=(1,))],
        [running("a", at("s1", 0)), running("x", at("s2", 0))],
    )
    report = carry(
        plan(
            places={"x": at("s2", 0)},
            moves=[("a", at("s1", 0), at("s2", 1))],
            servers={"s1": "off", "s4": "off"},
        ),
        fake,
        settings,
        store,
    )
    assert fake.sent == ["move:a", "off:s1"]
    assert "used by others" in reasons(report)["off:s4"]
    assert fake.servers["s4"].power is PowerState.ON


def test_jobs_and_servers_of_any_name_are_kept_as_they_are(settings, store) -> None:
    name = "обучение '; DROP TABLE actions; --\n$(reboot) \U0001f600"
    fake = Fake.of([server("s1")], [waiting(name)])
    report = carry(plan(places={name: at("s1", 0)}), fake, settings, store)
    assert report.records[0].action.job == name
    assert report.records[0].state == "confirmed"


def test_servers_that_are_not_in_the_cluster_are_skipped(settings, store) -> None:
    fake = Fake.of([server("s1")], [waiting("a"), waiting("b"), waiting("c")])
    wanted = {"a": at("s1", 0), "b": at("nowhere", 0), "c": at("s1", 1)}
    report = carry(plan(places=wanted), fake, settings, store)
    assert reasons(report)["place:b"] == "server nowhere is not known to the cluster"
    assert report.confirmed == 2


def test_what_the_journal_says_is_what_the_store_says(fake, whole, settings, store) -> None:
    report = carry(whole, fake, settings, store)
    again = carry(whole, fake, settings, store)
    assert again.records == report.records


def test_a_plan_that_stops_twice_for_the_same_reason_says_so_twice(
    fake, whole, settings, store
) -> None:
    """Between both it ran, so its newest word is not that it runs."""
    basis = fake.state()
    pause(settings, store, who="ann", why="smoke", now=NOW)
    assert carry(whole, fake, settings, store, basis).state == "paused"
    resume(settings, store, who="ann", why="", now=NOW)
    fake.after = lambda key: pause(settings, store, who="ann", why="smoke", now=NOW)
    assert carry(whole, fake, settings, store, basis).state == "paused"
    assert executions(store)[0]["state"] == "paused"


def test_the_journal_counts_how_often_each_job_was_moved_and_stopped(settings, store) -> None:
    """A job that is held and placed again counts once; what was not sent, or is older, never."""
    jobs = [running(name, at("s1", gpu)) for gpu, name in enumerate("abc")]
    fake = Fake.of([server("s1"), server("s2")], jobs)
    swap = plan(
        moves=[("a", at("s1", 0), at("s1", 1)), ("b", at("s1", 1), at("s1", 0))],
        stops=[("c", at("s1", 2))],
        held=("a",),
    )
    carry(swap, fake, settings, store)
    back = plan("p2", places={"c": at("s1", 2)}, moves=[("b", at("s1", 0), at("s2", 0))])
    carry(back, fake, settings, store)
    only_two = settings.model_copy(update={"guards": GuardSettings(max_moves=0)})
    carry(plan("p3", stops=[("c", at("s1", 2))]), fake, only_two, store)
    assert disruptions(store, since=NOW - timedelta(days=1)) == {"a": 1, "b": 2, "c": 1}
    assert disruptions(store, since=NOW + timedelta(hours=1)) == {}
