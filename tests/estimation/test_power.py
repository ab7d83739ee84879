"""Watts alone and shared, and the power limits that are worth choosing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from gogh_core.domain import Descriptors
from gogh_core.estimation import Catalog, Estimator, PowerModel
from gogh_core.estimation.jobset import JobSet

LIMITS = (100.0, 150.0, 200.0, 250.0)
WATTS, SPEEDS = (100, 150, 172, 192), (0.3, 0.9, 0.97, 1.0)


def profiled(batches: tuple[int, ...] = (8, 16), kind: str = "v100") -> list[dict[str, object]]:
    """A family whose cheapest limit is 150 W, and whose speed hardly suffers at 200 W."""
    return [
        {"gpu_type": kind, "job_type": f"M (batch size {b})", "throughput": s * b, "power_w": w,
         "power_limit_w": limit}
        for b in batches
        for limit, w, s in zip(LIMITS, WATTS, SPEEDS, strict=True)
    ]  # fmt: skip


def test_power_is_between_idle_and_maximum_and_limits_hold(catalog: Catalog) -> None:
    jobs = JobSet.of(catalog)
    model = PowerModel.of(catalog, jobs, catalog.columns)
    every = np.arange(len(catalog.names))
    column = np.zeros(len(every), int)
    alone = model.alone_w(every, column)
    shared = model.shared_w(every, every[::-1], column)
    assert (alone >= 0.8 * model.idle_w[0]).all()
    assert (shared <= model.max_w[0] + 1e-9).all()
    assert (shared >= alone.min()).all()
    limit = np.full(len(every), model.idle_w[0] + 10)
    assert (model.alone_w(every, column, limit) <= limit + 1e-9).all()


def test_a_measured_draw_teaches_siblings_and_limits_are_read_from_curves() -> None:
    known = Catalog.from_table(pa.Table.from_pylist(profiled()))
    jobs = JobSet.of(known, [("M (batch size 32)", Descriptors("M", 32), None)])
    model = PowerModel.of(known, jobs, known.columns)
    assert model.free_w[2, 0] == pytest.approx(192, abs=12)
    assert model.best_limit(2, 0, LIMITS) == 150.0


def test_limits_that_save_energy_reach_the_planner(estimator: Estimator) -> None:
    known = Catalog.from_table(pa.Table.from_pylist(profiled()))
    jobs = [Descriptors("M", 16), Descriptors("M", 32)]
    frame = estimator.options(known, jobs, ["v100", "t4"]).to_pandas()
    limited = frame[frame["power_limit_w"].notna()]
    # Only where draws were measured under limits, and only alone: pairs are an assumption.
    assert set(limited["gpu_type"].astype(str)) == {"v100"}
    assert limited["class_b"].isna().all()
    assert "measured" not in set(limited["network"].astype(str))
    for job in jobs:
        mine = frame[(frame["class_a"].astype(str) == job.job_class) & frame["class_b"].isna()]
        mine = mine[mine["gpu_type"].astype(str) == "v100"]
        free = mine[mine["power_limit_w"].isna()].iloc[0]
        best = mine[mine["power_limit_w"] == 150.0].iloc[0]
        saving = (best["power_w"] / best["mean_a"]) / (free["power_w"] / free["mean_a"])
        assert 0.8 < saving < 0.95
        assert 0.8 < best["throughput_a"] / free["throughput_a"] < 1.0
    no_curves = Catalog.from_table(pa.Table.from_pylist(profiled()[3::4]))
    assert estimator.options(no_curves, jobs, ["v100"])["power_limit_w"].null_count == 5


def test_a_job_measured_on_one_gpu_type_tells_of_another() -> None:
    """Families whose draw on one type goes with that on the other: a line, not the mean."""
    rows = []
    for i, share in enumerate((0.1, 0.3, 0.5, 0.7, 0.9)):
        for batch in (8, 16):
            for kind, idle in (("v100", 40), ("a40", 28)):
                watts = idle + share * 0.8 * (300 - idle)
                if not (i == 4 and kind == "a40"):
                    rows.append({"gpu_type": kind, "job_type": f"F{i} (batch size {batch})",
                                 "throughput": 1.0, "power_w": watts})  # fmt: skip
    known = Catalog.from_table(pa.Table.from_pylist(rows))
    jobs = JobSet.of(known)
    model = PowerModel.of(known, jobs, known.columns)
    place = [column.gpu_type for column in known.columns].index("a40")
    told = model.free_w[jobs.names.index("F4 (batch size 8)"), place]
    assert told == pytest.approx(28 + 0.9 * 0.8 * 272, abs=15)


def test_the_draw_of_shared_gpus_follows_telemetry_where_there_is_any() -> None:
    alone = [
        {"gpu_type": "v100", "job_type": f"M (batch size {b})", "throughput": 1.0, "power_w": 150.0}
        for b in (8, 16, 32)
    ]
    both = [
        {"gpu_type": "v100", "job_type": f"M (batch size {b})", "throughput": 0.6,
         "partner_job_type": "M (batch size 8)", "power_w": 260.0}
        for b in (16, 32) for _ in range(20)
    ]  # fmt: skip
    table = pa.Table.from_pylist([{"partner_job_type": None, **row} for row in alone + both])
    known = Catalog.from_table(table)
    jobs = JobSet.of(known)
    assumed = PowerModel.of(Catalog.from_table(table.slice(0, 3)), jobs, known.columns)
    told = PowerModel.of(known, jobs, known.columns)
    pair = (np.array([1]), np.array([2]), np.array([0]))
    assert assumed.shared_factor == 1.0
    assert abs(told.shared_w(*pair)[0] - 260) < abs(assumed.shared_w(*pair)[0] - 260)


@pytest.mark.parametrize(("needed", "limit"), [(13.0, 150.0), (15.0, 200.0), (15.9, None)])
def test_the_planner_takes_the_limit_of_least_energy_that_is_fast_enough(
    estimator: Estimator, needed: float, limit: float | None
) -> None:
    """From measured draws to a placement: 16 steps/s freely, 15.5 at 200 W, 14.4 at 150 W."""
    from gogh_core.allocation import plan, problem_from_dict

    known = Catalog.from_table(pa.Table.from_pylist(profiled()))
    rows = estimator.options(known, [Descriptors("M", 16)], ["v100"], confidence=0.5).to_pylist()
    options = [
        {"gpu_type": "v100", "gpus": 1, "classes": [row["class_a"]], "throughput": [row["mean_a"]],
         "power_w": row["power_w"], "power_limit_w": row["power_limit_w"]}
        for row in rows if row["class_b"] is None
    ]  # fmt: skip
    options = [{k: v for k, v in option.items() if v is not None} for option in options]
    problem = problem_from_dict(
        {
            "schema": "gogh.problem/1", "window_s": 300, "waiting_penalty_w": 10000,
            "gpu_types": {"v100": {"idle_w": 40}},
            "servers": [{"id": "s1", "gpu_type": "v100", "gpus": 1, "base_w": 100, "on": True}],
            "jobs": [{"id": "j1", "class": "M (batch size 16)", "gpu_counts": [1],
                      "required_throughput": needed, "priority": 1.0, "shareable": False,
                      "at": [], "move_cost_j": 0}],
            "options": options,
        }
    )  # fmt: skip
    (placed,) = plan(problem).placements
    assert placed.power_limit_w == limit
