"""The estimator: beliefs of the process, corrected by P1 and P2, as estimates and as options.

`estimate` answers a query table row by row; `options` gives everything a planner may choose from.
Both look at each job once (alone, sensitivity, aggressiveness, memory, watts) and combine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from gogh_core.domain import Descriptors
from gogh_core.errors import InvalidCatalog, InvalidInput
from gogh_core.estimation.beliefs import believe
from gogh_core.estimation.calibration import calibrate
from gogh_core.estimation.catalog import Catalog, Column, load_catalog
from gogh_core.estimation.correction import correct
from gogh_core.estimation.feasibility import fit_memory
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.options import option_table
from gogh_core.estimation.power import PowerModel
from gogh_core.estimation.registry import Registry, shipped
from gogh_core.estimation.tables import check_table, describe_jobs, read_table
from gogh_core.estimation.view import NETWORKS, View, chances
from gogh_core.hardware import closest, find

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Estimator", "estimate_table", "load_estimator"]

Array = np.ndarray[Any, Any]

_Z80 = float(ndtri(0.9))


@dataclass
class Estimator:
    """P1 and P2 of one version; `version` is what plans and estimates are stamped with."""

    version: str = "process"
    networks: Mapping[str, nn.Module] = field(default_factory=dict, repr=False)
    use_facts: bool = True
    refused: str = ""
    """Versions that should have served but were refused, and why."""
    _views: dict[tuple[Any, ...], View] = field(default_factory=dict, repr=False)

    def view(self, catalog: Catalog, jobs: JobSet, columns: Sequence[Column]) -> View:
        """Beliefs, corrected and calibrated, about all jobs on all columns."""
        key = (catalog.sha256, len(catalog.cells), jobs.names, tuple(columns))
        if key not in self._views:
            believed = catalog.believed()
            beliefs = believe(believed, jobs, columns)
            calibration = calibrate(believed, jobs, beliefs.hyper, self.networks)
            beliefs = correct(beliefs, jobs, self.networks, calibration)
            memory = fit_memory(catalog, jobs, tuple(columns))
            if len(self._views) > 3:
                self._views.clear()
            self._views[key] = View(catalog, jobs, beliefs, memory)
        return self._views[key]

    def estimate(self, catalog: Catalog, queries: pa.Table, *, where: str = "queries") -> pa.Table:
        """The query rows in their order with estimates; any job or partner may be new."""
        data = check_table(queries, where=where, measured=False)
        described = describe_jobs(data)
        jobs = JobSet.of(
            catalog, [(n, job, unit) for n, (job, unit) in described.items()],
            use_facts=self.use_facts,
        )  # fmt: skip
        gpus = data["scale_factor"].fillna(1).astype(int) if "scale_factor" in data else None
        apart = data["consolidated"].fillna(True).astype(bool) if "consolidated" in data else None
        asked = [
            Column(str(kind), count, count > 1 and not together)
            for kind, count, together in zip(
                data["gpu_type"].astype(str),
                gpus if gpus is not None else np.ones(len(data), int),
                apart if apart is not None else np.ones(len(data), bool),
                strict=True,
            )
        ]
        asked = _as_measured(catalog, asked)
        columns = _with_columns(catalog, asked, where)
        view = self.view(catalog, jobs, columns)
        number = {name: i for i, name in enumerate(jobs.names)}
        place = {column: i for i, column in enumerate(columns)}
        job = np.array([number[str(name)] for name in data["job_type"]], int)
        column = np.array([place[c] for c in asked], int)
        partner = np.full(len(data), -1)
        if "partner_job_type" in data:
            named = data["partner_job_type"].notna().to_numpy()
            partner[named] = [number[str(n)] for n in data["partner_job_type"][named]]
        return _answer(view, queries, job, partner, column)

    def options(
        self,
        catalog: Catalog,
        jobs: Sequence[Descriptors],
        gpu_types: Sequence[str],
        *,
        gpu_counts: Sequence[int] = (1,),
        confidence: float = 0.9,
        pairs: bool = True,
    ) -> pa.Table:
        """Every way to run each class alone, and each two of them on one GPU, on every GPU type.

        `throughput_*` is the lower quantile that holds with probability `confidence`, `mean_*` the
        central estimate. A pair stands once, with `class_a` <= `class_b` in the order given. Where
        draws were measured under several power limits, a class alone also comes under those that
        save energy (what two jobs draw together is assumed, too little to choose limits by).
        """
        if not 0.5 <= confidence < 1:
            raise InvalidInput(f"confidence is {confidence}, not in 0.5 to 1", where="options")
        if not gpu_types or not gpu_counts:
            # Nowhere to run: the same columns without rows.
            return self.options(Catalog.empty(), (), ("v100",), confidence=confidence)
        classes = {job.job_class: job for job in jobs}
        every = JobSet.of(
            catalog, [(name, job, None) for name, job in classes.items()],
            use_facts=self.use_facts,
        )  # fmt: skip
        named = [Column(kind, count) for kind in gpu_types for count in gpu_counts]
        asked = _as_measured(catalog, named)
        columns = _with_columns(catalog, asked, "options")
        view = self.view(catalog, every, columns)
        power = PowerModel.of(catalog, every, columns)
        number = {name: i for i, name in enumerate(every.names)}
        who = np.array([number[name] for name in classes], int)
        place = {column: i for i, column in enumerate(columns)}
        own = [(place[a], n) for a, n in zip(asked, named, strict=True)]
        single = [(at, column) for at, column in own if column.gpus == 1] if pairs else []
        return option_table(view, power, who, own, single, float(ndtri(confidence)))


def _as_measured(catalog: Catalog, asked: Sequence[Column]) -> list[Column]:
    """The asked columns under the catalog's names: "Tesla V100" is what was measured as "v100"."""
    measured = {column.gpu_type for column in catalog.columns}
    same = {gpu.name: kind for kind in sorted(measured, reverse=True) if (gpu := find(kind))}
    names: dict[str, str] = {}
    for kind in {column.gpu_type for column in asked}:
        gpu = None if kind in measured else find(kind)
        names[kind] = same.get(gpu.name, kind) if gpu else kind
    return [replace(column, gpu_type=names[column.gpu_type]) for column in asked]


def _with_columns(catalog: Catalog, asked: Sequence[Column], where: str) -> tuple[Column, ...]:
    """The catalog's columns and the asked ones; a GPU type nobody knows is refused."""
    measured = {column.gpu_type for column in catalog.columns}
    more = sorted(set(asked) - set(catalog.columns), key=lambda c: (c.gpu_type, c.gpus, c.apart))
    strange = sorted(
        {c.gpu_type for c in more if c.gpu_type not in measured and not find(c.gpu_type)}
    )
    if strange:
        near = closest(strange[0])
        raise InvalidCatalog(
            [f"GPU type {name!r} is neither measured nor known" for name in strange],
            where=where,
            todo=f"did you mean {near!r}?" if near else "measure one job on it first",
        )
    return catalog.columns + tuple(more)


def _answer(view: View, queries: pa.Table, job: Array, partner: Array, column: Array) -> pa.Table:
    paired = partner >= 0
    own = view.alone(job, column)
    said = np.stack([own.estimate, own.quantile(-_Z80), own.quantile(_Z80)])
    theirs = np.full((3, len(job)), np.nan)
    if paired.any():
        j, k, g = job[paired], partner[paired], column[paired]
        for into, answer in ((said, view.shared(j, k, g)), (theirs, view.shared(k, j, g))):
            into[:, paired] = [answer.estimate, answer.quantile(-_Z80), answer.quantile(_Z80)]
    hit = view.measured(job, partner, column) >= 0
    feasible, network = chances(view, job, partner, column, hit, view.known()[job])
    added = {
        "estimate": pa.array(said[0]),
        "low": pa.array(said[1]),
        "high": pa.array(said[2]),
        "partner_estimate": pa.array(theirs[0], from_pandas=True),
        "partner_low": pa.array(theirs[1], from_pandas=True),
        "partner_high": pa.array(theirs[2], from_pandas=True),
        "feasible_probability": pa.array(feasible),
        "network": pa.array(np.array(NETWORKS, object)[network], pa.string()),
    }
    out = queries.drop_columns([name for name in added if name in queries.column_names])
    for name, values in added.items():
        out = out.append_column(name, values)
    return out


def load_estimator(models_dir: Path) -> Estimator:
    """The serving version of the registry, or the one that comes with the package."""
    version, networks, refused = Registry(models_dir).load_good()
    return Estimator(version.id, networks, refused=refused)


def estimate_table(catalog: Path, queries: Path, *, estimator: Estimator | None = None) -> pa.Table:
    """Catalog file and query file in, estimates out; the shipped networks unless told otherwise."""
    measured = load_catalog(catalog)
    asked = read_table(queries)
    if estimator is None:
        version, networks = shipped()
        estimator = Estimator(version.id, networks)
    return estimator.estimate(measured, asked, where=str(queries))
