"""Standing orders: given, kept, lifted and over; and what they mean for one plan."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings as how
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gogh_core.allocation import plan
from gogh_core.domain import ClusterState, JobState
from gogh_core.errors import InvalidInput
from gogh_core.planning import Draft, Order, Request, draft_problem, give, lift, list_orders, moment
from gogh_core.settings import AllocationSettings, Settings, load
from gogh_core.store import Store, run_query
from tests.planning.conftest import NOW, cluster, job, options, server

HOUR = timedelta(hours=1)


@pytest.fixture
def rules(tmp_path: Path) -> Settings:
    return load(home=tmp_path)


@pytest.fixture
def store(rules: Settings) -> Store:
    made = Store(rules)
    made.migrate()
    return made


def order(kind: Any, subject: str = "", *, since: datetime = NOW, **more: Any) -> Order:
    return Order(kind, subject, begins_at=since, **{"who": "ann", "given_at": NOW, "id": 3} | more)


def draft(state: ClusterState, rules: Settings, *orders: Order, **more: Any) -> Draft:
    request = more.pop("request", Request())
    return draft_problem(state, options(), rules, request, NOW, orders=orders, **more)


STATE = cluster(
    [server("s1"), server("s2")], [job("j", at=(("s1", (0,)),), ago_s=9999), job("w", owner="bob")]
)


def test_orders_in_force_are_in_every_problem(rules: Settings) -> None:
    made = draft(
        STATE, rules, order("drain", "s2"), order("pin", "j"), order("quota", "bob", gpus=2)
    ).problem
    assert (made.server_of["s1"].drain, made.server_of["s2"].drain) == (False, True)
    assert made.job_of["j"].pinned
    assert made.quotas == {"bob": 2}


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        ({"ends_at": NOW}, "over"),
        ({"lifted_at": NOW, "lifted_by": "ann"}, "lifted"),
    ],
)
def test_orders_that_are_over_or_lifted_are_in_none(
    rules: Settings, gone: dict[str, Any], why: str
) -> None:
    past = order("drain", "s2", since=NOW - HOUR, **gone)
    assert past.state(NOW) == why
    made = draft(STATE, rules, past)
    assert not made.problem.server_of["s2"].drain
    assert made.notes == ()


def test_of_several_caps_and_quotas_the_lowest_counts(rules: Settings) -> None:
    limits = AllocationSettings(power_cap_w=900.0, quotas={"bob": 1, "eve": 5})
    rules = rules.model_copy(update={"allocation": limits})
    caps = [
        order("cap", power_w=2000.0),
        order("cap", power_w=700.0),
        order("quota", "bob", gpus=4),
    ]
    asked = Request(reason="x", power_cap_w=800.0)
    assert draft(STATE, rules, request=asked).problem.power_cap_w == 800.0
    made = draft(STATE, rules, *caps, order("quota", "eve", gpus=0), request=asked).problem
    assert made.power_cap_w == 700.0
    assert made.quotas == {"bob": 1, "eve": 0}
    assert draft(STATE, rules, caps[0]).problem.power_cap_w == 900.0


def test_a_cap_that_begins_within_the_window_counts_for_it(rules: Settings) -> None:
    soon = order("cap", power_w=700.0, since=NOW + timedelta(seconds=100))
    assert draft(STATE, rules, soon).problem.power_cap_w == 700.0
    assert draft(STATE, rules, soon, window_s=100.0).problem.power_cap_w is None


def test_orders_on_what_is_gone_are_named_and_ignored(rules: Settings) -> None:
    state = replace(STATE, jobs=(*STATE.jobs, job("old", state=JobState.FINISHED)))
    made = draft(state, rules, order("drain", "s9"), order("pin", "old"), order("pin", "w"))
    assert not any(s.drain for s in made.problem.servers)
    assert not any(j.pinned for j in made.problem.jobs)
    assert "order 3 has no effect: s9 is not there; `gogh undrain s9` lifts it" in made.notes
    assert "order 3 has no effect: old has ended; `gogh unpin old` lifts it" in made.notes


def test_a_drain_outranks_a_pin(rules: Settings) -> None:
    """Otherwise one pin on a server that breaks would leave the whole cluster without plans."""
    made = draft(STATE, rules, order("pin", "j"), order("drain", "s1", id=4))
    assert not made.problem.job_of["j"].pinned
    assert any("order 3 has no effect: j is on a server that is drained" in n for n in made.notes)
    slurm = replace(STATE, servers=(replace(STATE.servers[0], drain=True), STATE.servers[1]))
    assert not draft(slurm, rules, order("pin", "j")).problem.job_of["j"].pinned


def test_the_order_is_named_in_notes(rules: Settings) -> None:
    made = draft(STATE, rules, order("drain", "s2", reason="fan", ends_at=NOW + HOUR))
    assert made.notes[0] == (
        "server s2 is drained by ann since 2026-01-05 12:00 until 2026-01-05 13:00 (order 3): fan"
    )


def test_a_job_that_waits_is_told_which_orders_take_its_places(rules: Settings) -> None:
    state = cluster([server("s"), server("k", "k80")], [job("j", required_throughput=5.0)])
    drains = [order("drain", "s"), order("drain", "k", id=4)]
    made = draft(state, rules, *drains)
    told = made.told(plan(made.posed))
    (waits,) = told.waiting
    # The k80 is too slow for it anyhow.
    assert waits.reason.endswith("; orders in its way: server s is drained (order 3)")
    dry = draft(state, rules, request=Request(reason="x", drain=("s",)))
    (waits,) = dry.told(plan(dry.posed)).waiting
    assert waits.reason.endswith("; orders in its way: server s is drained (this request)")


def test_an_order_is_kept_until_it_is_lifted(store: Store) -> None:
    ((given, new),) = give(store, [order("drain", "s1", id=0, reason="fan")], STATE, NOW)
    assert (new, given.id) == (True, 1)
    assert list_orders(store) == [given]
    assert all(o.in_force(NOW + 1000 * HOUR) for o in list_orders(store))
    (lifted,) = lift(store, "drain", "s1", who="bob", now=NOW + HOUR, state=STATE)
    assert (lifted.id, lifted.lifted_by, lifted.lifted_at) == (1, "bob", NOW + HOUR)
    assert list_orders(store) == [lifted]
    assert lifted.state(NOW + HOUR) == "lifted"


def test_what_is_ordered_already_is_not_recorded_again(store: Store) -> None:
    give(store, [order("drain", "s1", id=0, ends_at=NOW + 2 * HOUR)], STATE, NOW)
    for again, new in (
        ({"ends_at": NOW + HOUR}, False),
        ({"ends_at": NOW + 2 * HOUR, "since": NOW + HOUR}, False),
        ({"ends_at": NOW + 3 * HOUR}, True),
        ({}, True),
        ({}, False),
    ):
        ((_, fresh),) = give(store, [order("drain", "s1", id=0, **again)], STATE, NOW)
        assert fresh is new, again
    lifted = lift(store, "drain", "s1", who="bob", now=NOW, state=STATE)
    assert [one.id for one in lifted] == [1, 2, 3]


def test_orders_of_one_request_are_recorded_together_or_not_at_all(store: Store) -> None:
    with pytest.raises(InvalidInput, match="did you mean 's1'"):
        give(store, [order("drain", "s2"), order("drain", "s11")], STATE, NOW)
    assert list_orders(store) == []


@pytest.mark.parametrize(
    ("first", "second"), [("drain", "pin"), ("pin", "drain")], ids=["pin", "drain"]
)
def test_a_pin_and_a_drain_of_its_server_exclude_each_other(
    store: Store, first: str, second: str
) -> None:
    names = {"drain": "s1", "pin": "j"}
    soon = {"since": NOW + HOUR} if "drain" in first else {}
    give(store, [order(first, names[first], **soon)], STATE, NOW)
    with pytest.raises(InvalidInput, match=rf"gogh un{first} {names[first]}` first"):
        give(store, [order(second, names[second])], STATE, NOW)
    if first == "drain":
        short = order("pin", "j", ends_at=NOW + HOUR)
        assert give(store, [short], STATE, NOW)[0][1]


def test_wrong_orders_are_refused_in_one_line(store: Store) -> None:
    for wrong, text in (
        ({"kind": "drain", "subject": "s3"}, "server 's3' is not known; did you mean 's"),
        ({"kind": "pin", "subject": "k"}, "job 'k' is not on the cluster"),
        ({"kind": "pin", "subject": "w"}, "job 'w' is not running"),
        ({"kind": "drain", "subject": " "}, "names no server"),
        ({"kind": "cap", "power_w": float("nan")}, "not a number of watts"),
        ({"kind": "cap", "power_w": 0.0}, "not a number of watts"),
        ({"kind": "quota", "subject": "bob", "gpus": -1}, "not a number of GPUs"),
        ({"kind": "drain", "subject": "s1", "ends_at": NOW}, "which is not after 2026-01-05 12:00"),
    ):
        with pytest.raises(InvalidInput, match=text):
            give(store, [order(**wrong)], STATE, NOW)
    assert list_orders(store) == []


def test_lifting_what_was_not_ordered_says_so(store: Store) -> None:
    give(store, [order("drain", "s1")], STATE, NOW)
    slurm = replace(STATE, servers=(STATE.servers[0], replace(STATE.servers[1], drain=True)))
    for kind, subject, text in (
        ("drain", "s11", "not drained by an order; did you mean 's1'"),
        ("drain", "s2", "the cluster manager drains it: release it there"),
        ("pin", "j", "job 'j' is not pinned by an order; `gogh orders` lists all"),
        ("cap", "", "no power cap was ordered"),
        ("quota", "bob", "owner 'bob' is not under a quota by an order"),
    ):
        with pytest.raises(InvalidInput, match=text):
            lift(store, kind, subject, who="bob", now=NOW, state=slurm)  # type: ignore[arg-type]


def test_times_are_told_as_people_tell_them() -> None:
    def told(text: str) -> datetime:
        return moment(text, NOW, where="--from")

    assert told("+2h") == NOW + 2 * HOUR
    assert told("+90m") == NOW + 1.5 * HOUR
    assert told("2026-01-05T14:00") == NOW + 2 * HOUR
    assert told("2026-01-05T15:00+01:00") == NOW + 2 * HOUR
    assert told("2026-01-06") == datetime(2026, 1, 6, tzinfo=UTC)
    for wrong in ("tomorrow", "+2", "-1h", "14:00", ""):
        with pytest.raises(InvalidInput, match=r"is no time; say it as 2026-01-05T14:00"):
            told(wrong)
    with pytest.raises(InvalidInput, match="2026-01-05 11:00 is past: it is 2026-01-05 12:00 now"):
        told("2026-01-05T11:00")


def test_people_query_orders_in_sql(store: Store) -> None:
    give(
        store,
        [order("drain", "s1", since=NOW + HOUR), order("cap", power_w=500.0, reason="heat")],
        STATE,
        NOW,
    )
    store.publish()
    rows = run_query(store, "orders").to_pylist()
    assert [(row["order_id"], row["state"], row["kind"]) for row in rows] == [
        (2, "in force", "cap"),
        (1, "planned", "drain"),
    ]
    lift(store, "cap", "", who="bob", now=NOW + 2 * HOUR, state=STATE)
    store.publish()
    rows = run_query(store, "orders").to_pylist()
    assert [(row["state"], row["lifted_by"]) for row in rows] == [
        ("lifted", "bob"),
        ("in force", None),
    ]


SERVERS = st.sampled_from(["s1", "s2"])
HOURS = st.integers(0, 4)


class Orders(RuleBasedStateMachine):
    """Drains given, lifted and over, against a list of (server, begin, end) kept by hand."""

    @initialize()
    def begin(self) -> None:
        rules = load(home=Path(tempfile.mkdtemp(prefix="gogh-orders-")))
        self.store = Store(rules)
        self.store.migrate()
        self.now = NOW
        self.model: list[tuple[str, datetime, datetime | None]] = []
        self.given = 0

    @rule(name=SERVERS, ahead=HOURS, lasts=st.none() | st.integers(1, 4))
    def give(self, name: str, ahead: int, lasts: int | None) -> None:
        begin = self.now + ahead * HOUR
        end = None if lasts is None else begin + lasts * HOUR
        wish = Order("drain", name, begin, "ann", self.now, ends_at=end)
        ((_, new),) = give(self.store, [wish], STATE, self.now)
        known = any(
            n == name and b <= begin and (e is None or (end is not None and end <= e))
            for n, b, e in self._standing()
        )
        assert new is not known
        if new:
            self.given += 1
            self.model.append((name, begin, end))

    @rule(name=SERVERS)
    def lift(self, name: str) -> None:
        mine = [entry for entry in self._standing() if entry[0] == name]
        if mine:
            found = lift(self.store, "drain", name, who="bob", now=self.now, state=STATE)
            assert len(found) == len(mine)
            self.model = [entry for entry in self.model if entry not in mine]
        else:
            with pytest.raises(InvalidInput, match="not drained by an order"):
                lift(self.store, "drain", name, who="bob", now=self.now, state=STATE)

    @rule(hours=st.integers(1, 3))
    def wait(self, hours: int) -> None:
        self.now += hours * HOUR

    def _standing(self) -> list[tuple[str, datetime, datetime | None]]:
        return [entry for entry in self.model if entry[2] is None or self.now < entry[2]]

    @invariant()
    def the_servers_in_force_are_those_of_the_model(self) -> None:
        if not hasattr(self, "store"):
            return
        known = list_orders(self.store)
        assert len(known) == self.given, "nothing that was ordered is ever forgotten"
        found = {o.subject for o in known if o.in_force(self.now)}
        assert found == {name for name, begin, _ in self._standing() if begin <= self.now}


TestOrders = Orders.TestCase
TestOrders.settings = how(max_examples=8, stateful_step_count=8, deadline=None)
