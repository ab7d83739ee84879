"""One owner's false figures of a class do not become the estimates of another owner's jobs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gogh_core.estimation import Catalog, Estimator

CLASSES = ["ResNet-50 (batch size 64)", "ResNet-18 (batch size 128)", "BERT-base (batch size 16)"]
ALONE = "MobileNetV2 (batch size 64)"
SPEED = {"v100": 1.0, "p100": 0.6, "t4": 0.45}
STEPS = dict(zip([*CLASSES, ALONE], (5.5, 9.0, 7.0, 8.0), strict=True))


def table(owners: list[str], liar: str = "", factor: float = 1.0, *, seed: int = 0) -> pa.Table:
    """Every class by every owner on every type, and one class by the last owner alone."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for owner in owners:
        for job in [*CLASSES, *([ALONE] if owner == owners[-1] else [])]:
            for kind, speed in SPEED.items():
                steps = STEPS[job] * speed * np.exp(rng.normal(0, 0.05))
                if owner == liar:
                    steps *= factor
                rows.append(
                    {
                        **{"gpu_type": kind, "job_type": job, "throughput": steps},
                        **{"owner": owner, "alone": job == ALONE},
                    }
                )
    return pa.Table.from_pylist(rows)


def estimates(catalog: Catalog) -> pa.Table:
    asked = [(job, kind) for job in CLASSES for kind in (*SPEED, "a100")]
    queries = pa.table({"job_type": [job for job, _ in asked], "gpu_type": [k for _, k in asked]})
    return Estimator().estimate(catalog, queries)


@pytest.mark.parametrize("seed", range(3))
def test_honest_owners_are_all_believed(seed: int) -> None:
    assert not Catalog.from_table(table(["a", "b", "c"], seed=seed)).doubts


@pytest.mark.parametrize("factor", [10.0, 0.1])
@pytest.mark.parametrize("liar", ["a", "b", "c"])
def test_a_liar_among_three_owners_moves_no_estimate_by_more_than_its_interval(
    liar: str, factor: float
) -> None:
    owners = ["a", "b", "c"]
    honest = estimates(Catalog.from_table(table(owners)))
    catalog = Catalog.from_table(table(owners, liar, factor))
    assert {doubt.owner for doubt in catalog.doubts} == {liar}
    lied = estimates(catalog)
    moved = np.abs(np.log(np.array(lied["estimate"]) / np.array(honest["estimate"])))
    wide = np.log(np.array(honest["high"]) / np.array(honest["estimate"]))
    assert (moved <= wide).all()


def of_lone_class(factor: float, others: float) -> Catalog:
    """Owner c alone has a class and reports it by `factor`, and all other classes by `others`."""
    rows = table(["a", "b", "c"], "c", others).to_pylist()
    for row in rows:
        if row["job_type"] == ALONE:
            row["throughput"] *= factor / others
    return Catalog.from_table(pa.Table.from_pylist(rows))


@pytest.mark.parametrize("factor", [40.0, 0.05])
def test_an_odd_class_of_a_believed_owner_serves_itself_alone(factor: float) -> None:
    catalog = of_lone_class(factor, others=1.0)
    own = [doubt for doubt in catalog.doubts if doubt.used]
    assert {catalog.names[doubt.job] for doubt in own} == {ALONE}
    queries = pa.table({"job_type": [ALONE], "gpu_type": ["v100"]})
    [said] = Estimator().estimate(catalog, queries).to_pylist()
    assert said["network"] == "measured"
    assert said["estimate"] == pytest.approx(factor * STEPS[ALONE], rel=0.2)
    number = catalog.index()[ALONE]
    assert number not in catalog.believed().cells.job


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_figures_of_an_owner_whom_others_contradict_do_not_even_serve_its_own_class(
    factor: float,
) -> None:
    catalog = of_lone_class(factor, others=factor)
    queries = pa.table({"job_type": [ALONE], "gpu_type": ["v100"]})
    [said] = Estimator().estimate(catalog, queries).to_pylist()
    assert said["network"] != "measured"
    [honest] = Estimator().estimate(of_lone_class(1.0, 1.0), queries).to_pylist()
    assert abs(np.log(said["estimate"] / honest["estimate"])) < np.log(3)


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_what_a_liar_told_truly_of_its_own_class_goes_on_serving_it(factor: float) -> None:
    catalog = of_lone_class(1.0, others=factor)
    assert {doubt.owner for doubt in catalog.doubts} == {"c"}
    queries = pa.table({"job_type": [ALONE], "gpu_type": ["v100"]})
    [said] = Estimator().estimate(catalog, queries).to_pylist()
    assert said["estimate"] == pytest.approx(STEPS[ALONE], rel=0.2)


@pytest.mark.parametrize("factor", [10.0, 0.1])
def test_of_two_who_contradict_each_other_the_hardware_decides(factor: float) -> None:
    """A third owner runs other classes, from which the facts' own error is told."""
    rows = table(["a", "b"], "b", factor).to_pylist()
    rows += [
        {**row, "owner": "d", "job_type": f"ResNet-{n} (batch size 64)", "throughput": s}
        for row in rows[:3]
        for n, s in ((34, 9.0 * SPEED[row["gpu_type"]]), (101, 3.2 * SPEED[row["gpu_type"]]))
    ]
    catalog = Catalog.from_table(pa.Table.from_pylist(rows))
    assert {doubt.owner for doubt in catalog.doubts} == {"b"}


def test_a_table_without_owners_is_taken_as_it_stands() -> None:
    rows = table(["a", "b", "c"], "a", 10.0).drop_columns(["owner", "alone"])
    assert not Catalog.from_table(rows).doubts
