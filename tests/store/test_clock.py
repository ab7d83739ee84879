"""Nothing expires by a clock that jumped, and what a wrong clock hid comes back."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gogh_core.settings import load
from gogh_core.store import Store, clock
from tests.store.test_ageing import NOON, powers, samples

DAY = timedelta(days=1)
DAY_S = 86_400.0


class Machine:
    """The seconds since the start of a machine, which a test lets pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.boot, self.boot_s = "first", 1000.0
        monkeypatch.setattr(clock, "_boot", lambda: (self.boot, self.boot_s))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture
def real(store: Store, machine: Machine) -> Store:
    """A store with a real cluster's clock, three days of samples, and one ageing behind it."""
    store = Store(load(home=store.path.parent, cluster={"manager": "files"}))
    store.append("gpu_samples", samples(NOON - 3 * DAY, 72, period_s=600))
    store.age(NOON)
    return store


def expire(store: Store, machine: Machine, at: datetime, *, days: float = 1.0) -> Any:
    """Age with a short retention; the real time goes on by an hour before it."""
    machine.boot_s += 3600
    short = load(
        home=store.path.parent, cluster={"manager": "files"}, store={"retention_days": days}
    )
    return Store(short).age(at)


def parquet(store: Store) -> set[Path]:
    return set(store.samples.rglob("*.parquet"))


def test_a_clock_ahead_by_104_days_hides_nothing(real: Store, machine: Machine) -> None:
    report = expire(real, machine, NOON + 104 * DAY, days=90)
    assert report.files_expired == 0
    assert "104.0 days further" in report.doubt
    assert len(powers(real)) == 864


def test_a_clock_ahead_with_its_samples_hides_nothing_for_a_day(
    real: Store, machine: Machine
) -> None:
    """Where the machine's own agent writes samples, these have the wrong time as well."""
    wrong = NOON + 104 * DAY
    real.append("gpu_samples", samples(wrong - timedelta(hours=1), 1, period_s=600))
    for _ in range(5):
        report = expire(real, machine, wrong, days=90)
        wrong += timedelta(hours=1)
        assert report.doubt
        assert report.files_expired == 0
    assert len(powers(real)) == 864 + 12


def test_a_clock_without_new_samples_hides_nothing(real: Store, machine: Machine) -> None:
    """A first ageing has nothing else to compare with."""
    with real.write() as connection:
        connection.execute("DELETE FROM store_facts WHERE name = 'ageing'")
    report = expire(real, machine, NOON + 104 * DAY, days=90)
    assert "the newest sample is of 2026-01-05" in report.doubt
    assert len(powers(real)) == 864


def test_what_was_hidden_comes_back_with_the_next_run(real: Store, machine: Machine) -> None:
    assert expire(real, machine, NOON + timedelta(hours=1)).files_expired > 0
    assert len(powers(real)) < 864
    there = parquet(real)
    report = expire(real, machine, NOON + timedelta(hours=2), days=90)
    assert report.files_returned > 0
    assert len(powers(real)) == 864
    assert parquet(real) >= there


def test_files_are_removed_when_a_later_run_agrees_after_a_day_of_real_time(
    real: Store, machine: Machine
) -> None:
    assert expire(real, machine, NOON + timedelta(hours=1)).files_expired > 0
    real.publish()
    with real.write() as connection:  # as if readers had finished long ago
        connection.execute("UPDATE sample_files SET retired_at = 1 WHERE expired_s IS NOT NULL")
        found = connection.sql("SELECT file FROM sample_files WHERE expired_s IS NOT NULL")
        hidden = {real.samples / name for (name,) in found.fetchall()}
    expire(real, machine, NOON + timedelta(hours=2))
    assert hidden <= parquet(real)
    machine.boot_s += DAY_S
    real.append("gpu_samples", samples(NOON + DAY, 2, period_s=600))
    report = expire(real, machine, NOON + DAY + timedelta(hours=3))
    assert not report.doubt
    assert not hidden & parquet(real)


def test_a_clock_that_jumped_and_stays_is_believed_after_a_day(
    real: Store, machine: Machine
) -> None:
    """As after a long stop of the machine: a second run agrees, some real time later."""
    machine.boot, machine.boot_s = "second", 60.0
    later = NOON + 104 * DAY
    assert expire(real, machine, later, days=90).doubt
    machine.boot_s += DAY_S
    later += DAY + timedelta(hours=1)
    real.append("gpu_samples", samples(later - timedelta(hours=1), 1, period_s=600))
    report = expire(real, machine, later, days=90)
    assert not report.doubt
    assert report.files_expired > 0


def test_a_clock_set_back_is_doubted_and_loses_nothing(real: Store, machine: Machine) -> None:
    report = expire(real, machine, NOON - 2 * DAY)
    assert "behind" in report.doubt
    assert len(powers(real)) == 864


def test_the_clock_of_an_embedded_cluster_may_run_fast(store: Store, machine: Machine) -> None:
    store.append("gpu_samples", samples(NOON - 3 * DAY, 72, period_s=600))
    store.age(NOON - 2 * DAY)
    fast = Store(load(home=store.path.parent, store={"retention_days": 1}))
    report = fast.age(NOON)
    assert not report.doubt
    assert report.files_expired > 0


@given(
    st.lists(
        st.tuples(
            st.floats(0, 40 * DAY_S),  # real time between two looks
            st.floats(-400 * DAY_S, 400 * DAY_S),  # what the clock is wrong by
            st.booleans(),  # started anew
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_steady_clock_never_runs_ahead_and_a_jump_is_always_doubted(
    steps: list[tuple[float, float, bool]],
) -> None:
    boot, boot_s, real_s, noted, wrong_before = 0, 0.0, 0.0, None, 0.0
    for passed_s, wrong_s, anew in steps:
        real_s += passed_s
        boot, boot_s = (boot + 1, min(passed_s, 60.0)) if anew else (boot, boot_s + passed_s)
        now = NOON + timedelta(seconds=real_s + wrong_s)
        found = clock.look(now, now, noted, boot=(str(boot), boot_s))
        assert found.steady_s <= real_s + 1e-3
        if noted is not None and wrong_s - wrong_before > DAY_S + 1:
            assert found.doubt
        assert json.loads(found.noted())["steady_s"] == found.steady_s
        noted, wrong_before = found.noted(), wrong_s
