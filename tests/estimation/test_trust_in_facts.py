"""What own measurements say of facts, and how wide few families make an interval."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from gogh_core.domain import Descriptors
from gogh_core.estimation.beliefs import Beliefs, believe
from gogh_core.estimation.calibration import _quantile
from gogh_core.estimation.catalog import Catalog, Column
from gogh_core.estimation.correction import by_odds
from gogh_core.estimation.facts import step_facts
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.roofline import step_seconds

MODELS = ("ResNet-50", "VGG16", "Inception3", "BERT", "DenseNet121", "CycleGAN", "SqueezeNet")
TYPES = ("p100", "v100", "a100")


def _with_one_cell(times_faster: float) -> tuple[Beliefs, int]:
    """Six families just as facts say on three GPU types, and one measured once."""
    columns = [Column(kind) for kind in TYPES]
    rows = []
    for i, model in enumerate(MODELS):
        name = f"{model} (batch size 32)"
        job = Catalog.from_table(
            pa.table({"gpu_type": ["v100"], "job_type": [name], "throughput": [1.0]})
        ).jobs[0]
        speed = 1 / step_seconds([job], [step_facts(job)], columns).sum(axis=-1)[0]
        last = i == len(MODELS) - 1
        for kind, value in list(zip(TYPES, speed, strict=True))[: 1 if last else None]:
            factor = times_faster if last else np.exp(0.2 * np.cos(i))
            rows.append({"gpu_type": kind, "job_type": name, "throughput": value * factor})
    catalog = Catalog.from_table(pa.Table.from_pylist(rows))
    jobs = JobSet.of(catalog)
    return believe(catalog, jobs, catalog.columns), catalog.names.index(
        f"{MODELS[-1]} (batch size 32)"
    )


def test_a_measurement_far_from_what_facts_said_speaks_against_them() -> None:
    (near, job), (far, _) = _with_one_cell(1.0), _with_one_cell(20.0)
    assert near.against_facts[job] < 0 < far.against_facts[job]


ARITHMETIC, TRAFFIC = (4e12, 1e9), (1e10, 4e11)


def _odds_where_facts(*, hold: bool) -> float:
    """Odds against facts of a job measured once, beside nine families that declare their work.

    If they do not hold, what a family does has nothing to do with what it declares.
    """
    columns = [Column(kind) for kind in ("t4", "p100", "h100")]
    rows = []
    for i in range(10):
        said = (ARITHMETIC, TRAFFIC)[i % 2]
        real = said if hold else (ARITHMETIC, TRAFFIC)[i // 2 % 2]
        does = Descriptors(f"m{i}", 32, flops_per_step=real[0], bytes_per_step=real[1])
        speed = 1 / step_seconds([does], [step_facts(does)], columns).sum(axis=-1)[0]
        for column, value in list(zip(columns, speed, strict=True))[: 3 if i else 1]:
            rows.append(
                {
                    "gpu_type": column.gpu_type,
                    "job_type": f"m{i} (batch size 32)",
                    "throughput": value * np.exp(0.1 * np.cos(i)),
                    "flops_per_step": said[0],
                    "bytes_per_step": said[1],
                }
            )
    catalog = Catalog.from_table(pa.Table.from_pylist(rows))
    beliefs = believe(catalog, JobSet.of(catalog), catalog.columns)
    return float(beliefs.against_facts[catalog.names.index("m0 (batch size 32)")])


def test_facts_that_foretold_the_shapes_of_other_families_are_trusted_for_the_next() -> None:
    right, wrong = _odds_where_facts(hold=True), _odds_where_facts(hold=False)
    assert right < -2
    assert right < wrong - 2


def test_odds_move_a_weight_but_neither_none_nor_all() -> None:
    odds = np.array([-2.0, 0.0, 2.0])
    moved = by_odds(0.25, odds)
    assert moved[1] == pytest.approx(0.25)
    assert moved[0] < moved[1] < moved[2]
    assert (by_odds(0.0, odds) == 0).all()
    assert by_odds(1.0, odds) == pytest.approx(1.0)


def test_few_families_make_an_interval_wider() -> None:
    scores = [np.array([z]) for z in np.linspace(0.2, 2.0, 7)]
    assert _quantile(scores, 7) > _quantile(scores)
    assert _quantile(scores, 1000) == _quantile(scores)
