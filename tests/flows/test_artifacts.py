"""Artifacts are pure functions: the same figures, the same page."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from datetime import timedelta
from xml.etree import ElementTree

from flows import artifacts, charts
from flows.facts import job_facts
from gogh_core.domain import Slot
from gogh_core.planning import Expected, PlanDiff, Reference
from tests.flows.examples import NOW, PLAN, STATE


def pictures(page: str) -> list[ElementTree.Element]:
    found = re.findall(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)", page)
    return [ElementTree.fromstring(base64.b64decode(one)) for one in found]


def test_the_plan_is_a_table_of_who_goes_where_with_whom_and_why():
    expected = {
        "moves": Expected(5.0, 40.0, 6.0, 266.0, counted=6.0, required=0.3),
        "stays": Expected(0.0, 9.0, 7.0, 11.6, counted=7.0, required=0.0),
    }
    rows = artifacts.plan_table(
        PLAN,
        job_facts(STATE),
        expected=expected,
        watts={"moves": 130.4},
        why={"stays": "cheapest"},
    )
    assert [row["job"] for row in rows] == ["moves", "stops", "starts", "waits", "stays"]
    moves = rows[0]
    assert (moves["from"], moves["to"], moves["with"]) == ("s1:0", "s2:0", "starts")
    assert (moves["promised"], moves["expected"]) == ("5 steps/s", "40 (6 to 266)")
    assert moves["planned with"] == "6, asked for 0.3", "less than the promise was asked for"
    assert (moves["watts"], moves["why"]) == ("130", "saves 80 W")
    by_job = {row["job"]: row for row in rows}
    assert by_job["stays"]["promised"] == "best effort"
    assert by_job["stays"]["planned with"] == "7"
    assert by_job["stays"]["why"] == "cheapest"
    assert by_job["waits"]["why"].startswith("needs 12 steps/s")
    assert {tuple(row) for row in rows} == {tuple(moves)}, "every row has the same columns"


DIFF = PlanDiff(
    starts=(("starts", (Slot("s2", (0,)),)),),
    moves=PLAN.moves,
    stops=PLAN.stops,
    stays=1,
    waiting=PLAN.waiting,
    switches=PLAN.servers,
    now_w=1000.0,
    planned_w=820.0,
    running_now=3,
    running_planned=3,
    move_cost_j=36_000.0,
    switch_cost_j=0.0,
    reference=Reference(910.0, 90.0),
)


def test_the_difference_tells_who_moves_what_is_saved_and_what_it_costs():
    page = artifacts.difference(DIFF, window_s=300)
    assert "**820 W planned** with 3 jobs (0.068 kWh in a window); 1,000 W now with 3 jobs" in page
    assert "on the same estimates, the plan **saves 90 W (10 %) on best fit**." in page
    assert "1 start, 1 move, 1 stop, 1 stay, 2 wait, 1 server is switched." in page
    assert "costs 0.010 kWh." in page, "other jobs run than before: nothing is paid back"
    assert "| moves | s1:0 | s2:0 | saves 80 W |" in page
    more = artifacts.difference(replace(DIFF, starts=(), stops=()), window_s=300)
    assert "costs 0.010 kWh, paid back after 200 s" in more
    lost = replace(DIFF, reference=Reference(910.0, 90.0, left_out=2))
    told = artifacts.difference(lost, window_s=300)
    assert "no saving to tell: **best fit leaves 2 of them waiting**" in told
    same = replace(DIFF, starts=(), moves=(), stops=(), switches=())
    assert "Nothing would change." in artifacts.difference(same, window_s=300)


def test_what_a_job_is_called_never_becomes_markup():
    assert "9 \\| on v100" in artifacts.difference(DIFF, window_s=300)
    assert artifacts._cell("<b>*x*</b>") == "&lt;b>\\*x\\*&lt;/b>"


def test_the_cycle_page_names_what_was_done_without_and_links_on():
    page = artifacts.cycle_page(
        "plan 12:05",
        state="emitted",
        reason="schedule",
        degraded=["no new data for 400 s"],
        notes=["note"],
        seconds={"ingest": 1.0, "allocate": 3.0},
        links={"the plan": "/artifacts/key/gogh-plan"},
    )
    assert "⚠ no new data for 400 s" in page
    assert "[the plan](/artifacts/key/gogh-plan)" in page
    (picture,) = pictures(page)
    assert "allocate: 3.00 s (75%)" in "".join(picture.itertext())


def test_where_the_seconds_went_tells_what_planning_and_learning_did_not_take():
    seconds, cpu_s = {"ingest": 1.0, "retrain": 2.0, "allocate": 3.0}, {"ingest": 0.5}
    page = artifacts.seconds_page(
        seconds, cpu_s | {"retrain": 2.0, "allocate": 2.5}, process_cpu_s=9.0
    )
    assert "| allocate | 3.00 | 50% | 2.50 |" in page
    assert "| imports, Prefect |  |  | 4.00 |" in page
    assert "| total | 6.00 | 100% | 9.00 |" in page
    assert "Neither planning nor learning: 4.5 s of CPU." in page


def test_energy_and_promises_are_a_chart_even_with_holes():
    windows = [
        {
            "window_start": NOW + timedelta(minutes=5 * i),
            "planned_w": 900.0 + i,
            "measured_w": None if i == 3 else 880.0,
            "covered": None if i == 3 else 0.997,
            "over": [True, True, False, None][i],
            "energy_kwh": 0.07,
            "kept": None if i == 3 else 0.98,
            "running": 10,
            "waiting": 1,
        }
        for i in range(4)
    ]
    page = artifacts.energy_page(windows)
    (picture,) = pictures(page)
    bars = [r for r in picture.iter() if r.tag.endswith("rect") and r.get("fill") == "#3b6ea5"]
    assert len(bars) == 4 + 1, "four planned bars and the legend"
    assert "| 2026-01-05 12:20 | 903 | – | – | 0.070 | – | 10 | 1 |" in page
    assert "| 2026-01-05 12:15 so far | 902 | 880 | 99.7% | 0.070 | 98.0% | 10 | 1 |" in page
    assert "No window has been planned yet" in artifacts.energy_page([])


def test_accuracy_is_a_chart_by_network():
    rows = [
        {"window_start": NOW, "network": "P1", "error": 0.2, "cells": 4},
        {"window_start": NOW + timedelta(minutes=5), "network": "P1", "error": 0.15, "cells": 4},
        {"window_start": NOW + timedelta(minutes=5), "network": "P2", "error": 0.05, "cells": 9},
    ]
    page = artifacts.accuracy_page(rows, [{"network": "P2", "version": "v7"}])
    assert len(pictures(page)) == 1
    assert "| P1 | 15.0% | 8 |" in page
    assert "v7" in page
    assert "Nothing estimated has been measured yet" in artifacts.accuracy_page([], [])


def test_contracts_and_quarantine_have_a_page():
    batch = {"source": "spool", "table_name": "gpu_samples", "status": "warned", "rows_in": 10,
             "rows_clean": 9, "rows_quarantined": 1}  # fmt: skip
    held = {"table_name": "gpu_samples", "expectation": "between", "column_name": "power_w",
            "held": 1, "example": "power_w is -3", "since": NOW}  # fmt: skip
    page = artifacts.contracts_page([batch], [held])
    assert "| spool | gpu\\_samples | warned | 10 | 9 | 1 |" in page
    assert "power\\_w is -3" in page
    assert "Nothing is held" in artifacts.contracts_page([], [])


def test_charts_stand_any_figures():
    for values in ([], [None], [0.0], [1e-9], [1e12, None, 3.0]):
        labels = [str(i) for i in range(len(values))]
        svg = charts.bars_and_line("t <&>", labels, {"a": values}, ("b", values), unit="W")
        assert ElementTree.fromstring(svg).tag.endswith("svg")
        assert (
            ElementTree.fromstring(charts.lines("t", labels, {"a": values}, unit="%")) is not None
        )
    assert ElementTree.fromstring(charts.parts("t", {}, unit="s")) is not None
