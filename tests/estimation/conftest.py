"""Small synthetic worlds for the estimation tests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from gogh_core.estimation import Catalog, Estimator
from gogh_core.estimation.registry import shipped
from gogh_core.estimation.worlds import draw_table


@pytest.fixture(scope="session")
def world() -> pa.Table:
    return draw_table(3, most_jobs=12)


@pytest.fixture(scope="session")
def catalog(world: pa.Table) -> Catalog:
    return Catalog.from_table(world)


@pytest.fixture(scope="session")
def estimator() -> Estimator:
    version, networks = shipped()
    return Estimator(version.id, networks)


def split(table: pa.Table, hide: str) -> tuple[pa.Table, pa.Table]:
    """The table without a job, and the job's own rows."""
    own = np.array([name == hide for name in table["job_type"].to_pylist()])
    mate = np.array([name == hide for name in table["partner_job_type"].to_pylist()])
    return table.filter(pa.array(~own & ~mate)), table.filter(pa.array(own))
