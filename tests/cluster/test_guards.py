"""What a plan may not do, and who said so."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from gogh_core.cluster import (
    approval_of,
    asked,
    basis_of,
    carry_out,
    decide,
    effective_mode,
    executions,
    pause,
    paused,
    resume,
)
from gogh_core.domain import PowerState
from gogh_core.errors import InvalidInput
from gogh_core.settings import ClusterSettings, GuardSettings, Settings
from tests.cluster.fake import NOW, Fake, at, plan, running, server, waiting


def with_guards(settings: Settings, **guards) -> Settings:
    return settings.model_copy(update={"guards": GuardSettings(**guards)})


def carry(a_plan, fake, settings, store, now=NOW, basis=None):
    return carry_out(
        a_plan,
        basis or fake.state(),
        manager=fake,
        store=store,
        settings=settings,
        cycle_id="c1",
        now=now,
        sleep=lambda _: None,
    )


def skipped(report) -> dict[str, str]:
    return {r.action.id: r.reason for r in report.records if r.state == "skipped"}


@pytest.fixture
def fake() -> Fake:
    names = ("a", "b", "c", "d")
    jobs = [running(name, at("s1", gpu)) for gpu, name in enumerate(names)]
    return Fake.of([server("s1"), server("s2"), server("s3", power=PowerState.OFF)], jobs)


@pytest.fixture
def moving():
    """Every job of s1 goes to s2."""
    jobs = enumerate(("a", "b", "c", "d"))
    return plan(moves=[(job, at("s1", gpu), at("s2", gpu)) for gpu, job in jobs])


def test_not_more_moves_than_allowed(fake, moving, settings, store) -> None:
    report = carry(moving, fake, with_guards(settings, max_moves=2), store)
    assert fake.sent == ["move:a", "move:b"]
    assert set(skipped(report)) == {"move:c", "move:d"}
    assert "guard: 2 moves and stops per cycle" in skipped(report)["move:c"]


def test_not_more_servers_switched_than_allowed(fake, settings, store) -> None:
    fake.servers["s4"] = server("s4", power=PowerState.OFF)
    switches = plan(
        places={j: at("s1", g) for g, j in enumerate("abcd")}, servers={"s3": "on", "s4": "on"}
    )
    report = carry(switches, fake, with_guards(settings, max_switches=1), store)
    assert fake.sent == ["on:s3"]
    assert "1 servers switched" in skipped(report)["on:s4"]


def test_whether_a_job_may_move_is_the_plans_decision(fake, moving, settings, store) -> None:
    """The plan leaves young jobs alone unless they must leave; the executor knows no better."""
    fake.jobs["a"] = replace(fake.jobs["a"], since=NOW - timedelta(seconds=30))
    fake.jobs["b"] = replace(fake.jobs["b"], moved_at=NOW - timedelta(seconds=700))
    report = carry(moving, fake, settings, store)
    assert skipped(report) == {}
    assert fake.sent == ["move:a", "move:b", "move:c", "move:d"]


def test_stops_count_as_moves_do_and_moves_come_first(fake, settings, store) -> None:
    both = plan(
        moves=[("c", at("s1", 2), at("s2", 2)), ("d", at("s1", 3), at("s2", 3))],
        stops=[("a", at("s1", 0)), ("b", at("s1", 1))],
    )
    report = carry(both, fake, with_guards(settings, max_moves=3), store)
    assert sorted(fake.sent) == ["hold:a", "move:c", "move:d"]
    assert skipped(report) == {"hold:b": "guard: 3 moves and stops per cycle"}


def test_stops_count_in_an_owners_share(fake, settings, store) -> None:
    stops = plan(stops=[("a", at("s1", 0)), ("b", at("s1", 1)), ("c", at("s1", 2))])
    free = with_guards(settings, max_owner_share=0.5, approve_stop_share=1.0)
    report = carry(stops, fake, free, store)
    assert fake.sent == ["hold:a", "hold:b"]
    assert "50% of ann's jobs move or stop" in skipped(report)["hold:c"]


def test_never_more_than_a_share_of_an_owners_jobs(fake, moving, settings, store) -> None:
    fake.jobs["d"] = running("d", at("s1", 3), owner="bob")
    report = carry(moving, fake, with_guards(settings, max_owner_share=0.5), store)
    assert fake.sent == ["move:a"], "one of ann's three, none of bob's single one"
    assert "50% of ann's jobs" in skipped(report)["move:b"]
    assert "50% of bob's jobs" in skipped(report)["move:d"]


def test_a_dry_run_sends_nothing(fake, moving, settings, store) -> None:
    report = carry(moving, fake, with_guards(settings, dry_run=True), store)
    assert report.state == "dry_run"
    assert fake.sent == []
    assert carry(moving, fake, settings, store).state == "done", "the same plan may go out later"


def test_a_real_cluster_is_only_advised_unless_told_otherwise(
    fake, moving, settings, store
) -> None:
    fake.real = True
    assert effective_mode(settings, fake) == "advise"
    basis = fake.state()
    assert carry(moving, fake, settings, store).state == "advised"
    assert fake.sent == []
    assert basis_of(store, "p1") == basis
    bold = settings.model_copy(update={"cluster": ClusterSettings(mode="act")})
    assert carry(moving, fake, bold, store).state == "done"


def assert_brake(stops, jobs, state, real, settings, store) -> None:
    """What becomes of a plan that stops so many of so many running jobs."""
    names = [f"j{n}" for n in range(jobs)]
    fake = Fake.of(
        [server("s1", jobs)], [running(name, at("s1", n)) for n, name in enumerate(names)]
    )
    fake.real = real
    bold = settings.model_copy(update={"cluster": ClusterSettings(mode="act")})
    stopping = plan(stops=[(name, at("s1", n)) for n, name in enumerate(names[:stops])])
    report = carry(stopping, fake, bold, store)
    assert report.state == state
    assert len(fake.sent) == (stops if state == "done" else 0)


class TestApproval:
    """Plans over a threshold wait for a person."""

    @pytest.fixture
    def careful(self, settings):
        return with_guards(settings, approve_moves=2, approval_timeout_s=900)

    def test_it_waits_until_somebody_agrees(self, fake, moving, careful, store) -> None:
        basis = fake.state()
        assert carry(moving, fake, careful, store).state == "waiting"
        assert carry(moving, fake, careful, store).state == "waiting"
        assert fake.sent == []
        assert [row["plan_id"] for row in asked(store)] == ["p1"]
        assert "4 moves, more than 2" in asked(store)[0]["why"]
        word = decide(store, "p1", approve=True, who="ann", why="night is quiet", now=NOW)
        assert word.decision == "approved"
        assert carry(moving, fake, careful, store, basis=basis).state == "done"
        assert len(fake.sent) == 4
        kept = approval_of(store, "p1")
        assert kept is not None
        assert (kept.who, kept.why, kept.at) == ("ann", "night is quiet", NOW)
        assert asked(store) == []

    def test_a_rejected_plan_is_never_sent(self, fake, moving, careful, store) -> None:
        carry(moving, fake, careful, store)
        decide(store, "p1", approve=False, who="ann", why="demo today", now=NOW)
        report = carry(moving, fake, careful, store)
        assert report.state == "rejected"
        assert "rejected by ann: demo today" in report.detail
        with pytest.raises(InvalidInput, match="was already rejected by ann"):
            decide(store, "p1", approve=True, who="bob", why="", now=NOW)
        assert fake.sent == []

    def test_nobody_answers_and_it_expires(self, fake, moving, careful, store) -> None:
        carry(moving, fake, careful, store)
        report = carry(moving, fake, careful, store, now=NOW + timedelta(seconds=1000))
        assert report.state == "rejected"
        assert "nobody answered within 900 s" in report.detail

    def test_plans_nobody_was_asked_about_cannot_be_approved(self, store) -> None:
        with pytest.raises(InvalidInput, match="no approval was asked for"):
            decide(store, "p9", approve=True, who="ann", why="", now=NOW)

    def test_small_plans_need_nobody(self, fake, careful, store) -> None:
        small = plan(moves=[("a", at("s1", 0), at("s2", 0))])
        assert carry(small, fake, careful, store).state == "done"

    @pytest.mark.parametrize(("stops", "jobs", "state"), [(2, 4, "done"), (3, 4, "waiting")])
    @pytest.mark.parametrize("real", [False, True])
    def test_by_default_a_few_stops_need_nobody_and_more_wait_on_every_manager(
        self, stops, jobs, state, real, settings, store
    ) -> None:
        assert_brake(stops, jobs, state, real, settings, store)

    @pytest.mark.parametrize(("stops", "jobs", "state"), [(4, 40, "done"), (5, 40, "waiting")])
    def test_on_a_large_cluster_a_tenth_of_the_running_jobs_are_a_few(
        self, stops, jobs, state, settings, store
    ) -> None:
        assert_brake(stops, jobs, state, False, settings, store)

    def test_stops_count_as_well(self, fake, settings, store) -> None:
        stopping = plan(stops=[("a", at("s1", 0))])
        report = carry(stopping, fake, with_guards(settings, approve_stops=0), store)
        assert report.state == "waiting"


def test_the_switch_works_without_a_database_and_says_who(settings) -> None:
    assert paused(settings) is None
    pause(settings, None, who="ann", why="fire", now=NOW)
    word = paused(settings)
    assert word is not None
    assert (word.who, word.why) == ("ann", "fire")
    assert resume(settings, None, who="bob", why="out", now=NOW)
    assert not resume(settings, None, who="bob", why="out", now=NOW)


def test_a_switch_that_cannot_be_read_counts_as_on(settings) -> None:
    settings.home.mkdir(parents=True)
    (settings.home / "paused.json").write_text("{")
    assert paused(settings) is not None


def test_an_infeasible_plan_is_rejected(fake, settings, store) -> None:
    bad = replace(plan(), status="infeasible", notes=("the cap cannot be kept",))
    report = carry(bad, fake, settings, store)
    assert report.state == "rejected"
    assert executions(store)[0]["detail"].endswith("the cap cannot be kept")


def test_waiting_jobs_are_no_moves(settings, store) -> None:
    fake = Fake.of([server("s1")], [waiting("a")])
    report = carry(plan(places={"a": at("s1", 0)}), fake, with_guards(settings, max_moves=0), store)
    assert report.confirmed == 1
