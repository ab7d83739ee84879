"""The forms: safe as they are, labelled, and firm about wrong values."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from flows.forms import OrderForm, ReplanForm, WhatIfForm
from gogh_core.cli.stack import as_form
from gogh_core.planning import OBJECTIVES, Request


def test_the_form_as_it_stands_asks_for_nothing_special():
    assert ReplanForm().to_request() == Request(reason="by hand")


def test_every_field_reaches_the_request():
    form = ReplanForm(
        reason=" heat ",
        dry_run=True,
        wait_for_approval=True,
        objective="throughput",
        solver="highs",
        gap=0.02,
        time_limit_s=9,
        max_moves=0,
        power_cap_w=5000,
        pin=["j1 "],
        drain=["s1"],
        who="ann",
    )
    assert form.to_request() == Request(
        "heat", "throughput", "highs", 0.02, 9, 0, 5000, ("j1",), ("s1",), True, True, "ann"
    )


@pytest.mark.parametrize("objective", [None, *OBJECTIVES])
def test_what_the_command_line_asks_of_the_server_is_what_the_form_asks(objective):
    asked = Request("heat", objective, pin=("j1",), power_cap_w=5000.0, who="ann")
    assert ReplanForm.model_validate(as_form(asked)).to_request() == asked
    assert WhatIfForm(objective=objective or "settings").asked_objective == objective


@pytest.mark.parametrize(
    "wrong",
    [
        {"reason": "  "},
        {"reason": "schedule"},
        {"gap": 1.5},
        {"gap": -0.1},
        {"time_limit_s": 0},
        {"max_moves": -1},
        {"power_cap_w": 0},
        {"objective": "fame"},
        {"solver": "cplex"},
        {"pin": [" "]},
        {"drian": ["s1"]},
    ],
)
def test_wrong_values_are_refused(wrong):
    with pytest.raises(ValidationError):
        ReplanForm(**wrong)


@pytest.mark.parametrize("form", [ReplanForm, WhatIfForm, OrderForm])
def test_every_field_has_a_label_and_a_default(form):
    fields = form.model_json_schema()["properties"]
    assert all(field.get("title") for field in fields.values())
    assert not form.model_json_schema().get("required")


def test_prefect_makes_the_form_from_the_model():
    from prefect.utilities.callables import parameter_schema

    from flows.order import order
    from flows.replan import replan
    from flows.what_if import what_if

    schema = parameter_schema(replan)
    fields = schema.definitions["ReplanForm"]["properties"]
    assert fields["drain"]["title"] == "Servers to drain"
    assert fields["gap"]["anyOf"][0]["maximum"] == 1
    given = replan.validate_parameters({"request": {"reason": "heat", "drain": ["s1"]}})
    assert given["request"] == ReplanForm(reason="heat", drain=["s1"])
    assert "WhatIfForm" in parameter_schema(what_if).definitions
    fields = parameter_schema(order).definitions["OrderForm"]["properties"]
    assert "undrain" in fields["does"]["enum"]
    given = order.validate_parameters({"request": {"does": "drain", "subject": "s1"}})
    assert given["request"] == OrderForm(does="drain", subject="s1")
