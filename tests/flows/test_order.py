"""The form of standing orders, and its flow on the embedded cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from flows import artifacts
from flows.forms import OrderForm
from flows.order import order as flow
from gogh_core.errors import InvalidInput
from gogh_core.planning import Order, list_orders
from gogh_core.settings import load
from gogh_core.store import Store

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("GOGH_HOME", str(tmp_path))
    monkeypatch.setenv("GOGH_SIMULATION__SERVERS", "3")
    return Store(load())


def test_the_form_makes_the_order() -> None:
    form = OrderForm(
        does="drain", subject=" s1 ", begins="+1h", until="+3h", reason="fan", who=" ann "
    )
    hour = timedelta(hours=1)
    assert form.to_order(NOW) == Order(
        "drain", "s1", NOW + hour, "ann", NOW, ends_at=NOW + 3 * hour, reason="fan"
    )
    cap = OrderForm(does="cap", amount=500).to_order(NOW)
    assert isinstance(cap, Order)
    assert (cap.kind, cap.power_w, cap.begins_at, cap.ends_at) == ("cap", 500.0, NOW, None)
    quota = OrderForm(does="quota", subject="ann", amount=2).to_order(NOW)
    assert isinstance(quota, Order)
    assert quota.gpus == 2
    assert OrderForm(does="unpin", subject="j1").to_order(NOW) == ("pin", "j1")


def test_a_form_that_says_nothing_usable_is_refused() -> None:
    for wrong in ({"does": "explode"}, {"amount": -1}, {"sbject": "s1"}):
        with pytest.raises(ValidationError):
            OrderForm(**wrong)  # type: ignore[arg-type]
    for form in (
        OrderForm(does="drain"),
        OrderForm(does="cap"),
        OrderForm(does="quota", subject="ann", amount=1.5),
        OrderForm(does="drain", subject="s1", begins="soon"),
    ):
        with pytest.raises(InvalidInput):
            form.to_order(NOW)


def test_orders_are_given_listed_and_lifted_by_the_form(store: Store) -> None:
    given = flow.fn(OrderForm(does="drain", subject="v100-01", reason="fan", who="ann"))
    assert given.is_completed()
    assert "server v100-01 is drained by ann since 2026-01-05 09:00 (order 1): fan" in given.message
    again = flow.fn(OrderForm(does="drain", subject="v100-01"))
    assert "ordered already" in again.message
    assert flow.fn().message == "order · 1 in force or planned"
    lifted = flow.fn(OrderForm(does="undrain", subject="v100-01", who="bob"))
    assert lifted.message.startswith("order · lifted: server v100-01")
    wrong = flow.fn(OrderForm(does="drain", subject="v100-1"))
    assert wrong.is_failed()
    assert wrong.message.startswith("To do: did you mean 'v100-01'?. Why: drain: server 'v100-1'")
    (known,) = list_orders(store)
    rows = artifacts.orders_table([known], NOW)
    assert (rows[0]["state"], rows[0]["who"], rows[0]["lifted by"]) == ("lifted", "ann", "bob")
