"""Events: each thing is told once, when it begins."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from gogh_core.domain import PowerState, Slot
from gogh_core.settings import load
from gogh_core.watch import Seen, look
from tests.flows.examples import STATE, job, server


def kinds(events):
    return [(event.kind, event.target) for event in events]


def test_the_first_look_tells_nothing(settings):
    _, events = look(None, STATE, missed=["stays"], settings=settings)
    assert events == []


def test_a_lost_server_is_told_once_and_its_gpus_not_beside_it(settings):
    before, _ = look(None, STATE, missed=(), settings=settings)
    lost = replace(STATE, servers=(server("s1", PowerState.DOWN, (0, 1)), server("s2")))
    now, events = look(before, lost, missed=(), settings=settings)
    assert kinds(events) == [("server_lost", "s1")]
    assert events[0].name == "gogh.event.server_lost"
    _, again = look(now, lost, missed=(), settings=settings)
    assert again == []


def test_a_lost_gpu_an_urgent_job_and_a_missed_promise_are_told(settings):
    before, _ = look(None, STATE, missed=(), settings=settings)
    jobs = (*STATE.jobs, job("urgent", priority=9.0), job("runs", Slot("s1", (2,)), priority=9.0))
    later = replace(STATE, servers=(server("s1", lost=(2,)), server("s2")), jobs=jobs)
    _, events = look(before, later, missed=("stays",), settings=settings)
    assert kinds(events) == [
        ("gpu_lost", "s1:2"),
        ("urgent_job", "urgent"),
        ("slo_missed", "stays"),
        ("queue_changed", "queue"),
    ]
    assert "10 minutes" in events[-2].reason


def test_jobs_that_come_and_jobs_that_leave_are_one_event_for_an_increment(settings):
    before, _ = look(None, STATE, missed=(), settings=settings)
    some = [status for status in STATE.jobs if not status.slots]
    later = replace(STATE, jobs=(*some, *(job(f"new{i}") for i in range(6))))
    _, (event,) = look(before, later, missed=(), settings=settings)
    assert event.name == "gogh.queue.changed", "no event.*: a replan does not answer it"
    assert event.reason.startswith("new0, new1, new2, new3 and 2 more came, ")
    assert event.reason.endswith(" left")


def test_a_job_that_gets_its_place_changes_no_queue(settings):
    waiting = replace(STATE, jobs=(*STATE.jobs, job("new")))
    before, _ = look(None, waiting, missed=(), settings=settings)
    placed = replace(STATE, jobs=(*STATE.jobs, job("new", Slot("s1", (3,)))))
    assert look(before, placed, missed=(), settings=settings)[1] == []


def test_a_job_that_no_increment_could_place_is_a_reason_to_replan_once(settings):
    new = replace(STATE, jobs=(*STATE.jobs, job("new")))
    before, _ = look(None, new, missed=(), settings=settings)
    later = replace(new, at=new.at + timedelta(seconds=31))
    seen, events = look(before, later, missed=(), settings=settings)
    assert "new" in seen.stuck
    assert kinds(events) == [("still_waiting", "queue")]
    assert look(seen, later, missed=(), settings=settings)[1] == []


def test_a_power_cap_that_changes_is_told(settings, tmp_path):
    before, _ = look(None, STATE, missed=(), settings=settings)
    capped = load(home=tmp_path, allocation={"power_cap_w": 5000})
    _, events = look(before, STATE, missed=(), settings=capped)
    assert events[0].reason == "the power cap is now 5,000 W"


def test_what_was_seen_survives_and_a_broken_file_is_a_first_look(settings, tmp_path):
    seen, _ = look(None, STATE, missed=("a",), settings=settings)
    seen.save(tmp_path / "run" / "seen.json")
    assert Seen.load(tmp_path / "run" / "seen.json") == seen
    (tmp_path / "broken").write_text("{")
    assert Seen.load(tmp_path / "broken") is None
    assert Seen.load(tmp_path / "missing") is None
