"""The demo's headline names the strongest comparison, at equal work."""

from __future__ import annotations

from typing import Any

from gogh_core.cli.demo_report import frontier, sentence, strongest


def figures(j_per_work_s: float | None, energy_wh: float, kept: float) -> dict[str, Any]:
    return {"j_per_work_s": j_per_work_s, "energy_wh": energy_wh, "slo_attainment": kept}


def found(**others: dict[str, Any]) -> dict[str, Any]:
    return {"comparison": {"gogh": figures(220.0, 3000.0, 0.91), **others}}


def test_the_headline_names_the_cheapest_of_those_that_keep_as_many_promises() -> None:
    told = found(
        fcfs=figures(400.0, 5500.0, 0.98),
        best_fit_window=figures(150.0, 3700.0, 0.94),
        best_fit=figures(200.0, 3600.0, 0.989),
        lucid=figures(190.0, 3500.0, 0.90),
    )
    assert strongest(told) == "best_fit"
    line = sentence(told)
    assert line.startswith("10% more energy for the same work than best fit by energy, on events")
    assert "220 against 200 J for each second of work" in line
    assert "91.0% of the time against 98.9%" in line


def test_where_none_keeps_as_many_promises_the_one_that_keeps_most_is_named() -> None:
    told = found(best_fit=figures(200.0, 3600.0, 0.85), lucid=figures(300.0, 3500.0, 0.90))
    assert strongest(told) == "lucid"
    assert frontier(told) == ["gogh", "best_fit"], "lucid needs more and keeps less than GOGH"


def test_the_frontier_has_whom_nobody_beats_in_both() -> None:
    told = found(
        fcfs=figures(400.0, 5500.0, 0.98),
        best_fit=figures(200.0, 3600.0, 0.95),
        lucid=figures(None, 0.0, 1.0),
    )
    assert frontier(told) == ["fcfs", "best_fit"]


def test_less_work_is_no_saving() -> None:
    """Half the energy for a third of the work is more energy for the work."""
    lazy = found(fcfs=figures(150.0, 6000.0, 0.9))
    assert "more energy for the same work" in sentence(lazy)


def test_without_work_there_is_no_comparison() -> None:
    assert "no work was done" in sentence(found(fcfs=figures(None, 10.0, 1.0)))
