"""Estimation: how fast a job will run where, next to whom, whether it fits, what it draws.

`Catalog` is what was measured; an `Estimator` (from `load_estimator`) answers with P1 before a job
has run and with P2 after; `PowerModel` gives watts. See docs/estimation.md.
"""

import os

# Small matrices: more threads make everything slower on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from gogh_core.estimation import study
from gogh_core.estimation.catalog import Catalog, Column, Drift, load_catalog
from gogh_core.estimation.describe import describe_factory
from gogh_core.estimation.estimator import Estimator, estimate_table, load_estimator
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.power import PowerModel
from gogh_core.estimation.pretraining import pretrain
from gogh_core.estimation.registry import Registry, Version
from gogh_core.estimation.retraining import RetrainReport, retrain

__all__ = [
    "Catalog",
    "Column",
    "Drift",
    "Estimator",
    "JobSet",
    "PowerModel",
    "Registry",
    "RetrainReport",
    "Version",
    "describe_factory",
    "estimate_table",
    "load_catalog",
    "load_estimator",
    "pretrain",
    "retrain",
    "study",
]
