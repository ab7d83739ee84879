"""The estimator: beliefs of the process, corrected by P1 and P2, as estimates and as options.

`estimate` answers a query table row by row; `options` gives everything a planner may choose from.
Both look at each job once (alone, sensitivity, aggressiveness, memory, watts) and combine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from scipy.special import ndtri

from gogh_core.domain import Descriptors
from gogh_core.errors import InvalidCatalog, InvalidInput
from gogh_core.estimation.beliefs import ALONE, Beliefs, believe
from gogh_core.estimation.catalog import Catalog, Column, load_catalog
from gogh_core.estimation.correction import calibrate, correct
from gogh_core.estimation.episodes import lean_of
from gogh_core.estimation.feasibility import MemoryModel, fit_memory
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.power import PowerModel
from gogh_core.estimation.registry import Registry, shipped
from gogh_core.estimation.tables import check_table, describe_jobs, read_table
from gogh_core.hardware import closest, find

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Estimator", "View", "estimate_table", "load_estimator"]

Array = np.ndarray[Any, Any]

_Z80 = float(ndtri(0.9))
NETWORKS = ("measured", "P2", "P1")


@dataclass(frozen=True)
class View:
    """One catalog and the asked jobs, ready to answer cell by cell."""

    catalog: Catalog
    jobs: JobSet
    beliefs: Beliefs
    memory: MemoryModel

    @cached_property
    def points(self) -> Array:
        """Log estimates alone, [jobs, columns]."""
        b = self.beliefs
        return lean_of(b.mean[ALONE], b.variance[ALONE], b.lean)

    def known(self) -> Array:
        """Whether any cell of the job was measured."""
        out = np.zeros(len(self.jobs.names), bool)
        out[np.unique(self.catalog.cells.job)] = True
        return out

    def measured(self, job: Array, partner: Array, column: Array) -> Array:
        """Number of the measured cell, or -1; partner -1 is alone."""
        size = len(self.catalog.names)
        inside = np.where(job < size, job, -1)
        other = np.where(partner >= size, -2, partner)
        own = np.where(column < len(self.catalog.columns), column, -1)
        return self.catalog.find(inside, other, own)

    def alone(self, job: Array, column: Array) -> Answer:
        """Log throughput alone."""
        b = self.beliefs
        mean, variance = b.mean[ALONE][job, column], b.variance[ALONE][job, column]
        point = self.points[job, column]
        return _overruled(self, (job, np.full(len(job), -1), column), point, mean, variance)

    def shared(self, job: Array, partner: Array, column: Array) -> Answer:
        """Log throughput next to a partner."""
        b = self.beliefs
        at = self.measured(job, np.full(len(job), -1), column)
        cells = self.catalog.cells
        known = at >= 0
        alone = np.where(known, cells.log[at] if len(cells) else 0.0, b.mean[ALONE][job, column])
        spread = b.variance[ALONE][job, column]
        lean = np.where(known, 0.0, b.mean[ALONE][job, column] - self.points[job, column])
        spread = np.where(known, cells.variance[at] if len(cells) else 0.0, spread)
        ratio, ratio_sd = b.ratio_of(job, partner, column)
        mean = alone + np.log(ratio)
        variance = spread + (ratio_sd / ratio) ** 2
        return _overruled(self, (job, partner, column), mean - lean, mean, variance)


@dataclass(frozen=True)
class Answer:
    """Logs: the estimate, the centre and the standard deviation of each asked cell."""

    point: Array
    mean: Array
    sd: Array

    def quantile(self, z: float) -> Array:
        """Throughput that many standard deviations from the centre, never past the estimate."""
        at = np.exp(self.mean + z * self.sd)
        point = np.exp(self.point)
        return np.asarray(np.minimum(at, point) if z < 0 else np.maximum(at, point))

    @property
    def estimate(self) -> Array:
        """Throughput."""
        return np.asarray(np.exp(self.point))


def _overruled(
    view: View, cell: tuple[Array, Array, Array], point: Array, mean: Array, variance: Array
) -> Answer:
    """A measured cell stays what was measured."""
    sd = np.sqrt(variance)
    at = view.measured(*cell)
    hit = at >= 0
    if hit.any():
        point, mean, sd = point.copy(), mean.copy(), sd.copy()
        point[hit] = mean[hit] = view.catalog.cells.log[at[hit]]
        sd[hit] = np.sqrt(view.catalog.cells.variance[at[hit]])
    return Answer(point, mean, sd)


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
            beliefs = believe(catalog, jobs, columns)
            calibration = calibrate(catalog, jobs, beliefs.hyper, self.networks)
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
        central estimate. A pair stands once, with `class_a` <= `class_b` in the order given.
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
        asked = [Column(kind, count) for kind in gpu_types for count in gpu_counts]
        columns = _with_columns(catalog, asked, "options")
        view = self.view(catalog, every, columns)
        power = PowerModel.of(catalog, every, columns)
        number = {name: i for i, name in enumerate(every.names)}
        who = np.array([number[name] for name in classes], int)
        place = {column: i for i, column in enumerate(columns)}
        own = [place[column] for column in asked]
        single = [place[column] for column in asked if column.gpus == 1] if pairs else []
        return _option_table(view, power, who, own, single, float(ndtri(confidence)))


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
    network = np.where(hit, 0, np.where(view.known()[job], 1, 2))
    feasible = np.where(hit, 1.0, view.memory.probability(job, partner, column))
    feasible = _refused_before(view, job, partner, column, feasible)
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


def _refused_before(
    view: View, job: Array, partner: Array, column: Array, probability: Array
) -> Array:
    """A cell that was tried and did not run is not likely to."""
    catalog = view.catalog
    if not len(catalog.refused_job):
        return probability
    low = np.where(partner < 0, job, np.minimum(job, partner))
    high = np.where(partner < 0, -1, np.maximum(job, partner))
    size, width = len(view.jobs.names) + 1, len(view.beliefs.columns)
    mine = (catalog.refused_job * size + catalog.refused_partner + 1) * width
    asked = (low * size + high + 1) * width + column
    return np.where(np.isin(asked, mine + catalog.refused_column), 0.01, probability)


def _option_table(
    view: View, power: PowerModel, who: Array, own: list[int], single: list[int], z: float
) -> pa.Table:
    names = pa.array([view.jobs.names[i] for i in who], pa.string())
    first, second = np.triu_indices(len(who)) if single else (np.zeros(0, int), np.zeros(0, int))
    known = view.known()
    parts: list[pa.Table] = []
    for column, shared in [(c, False) for c in own] + [(c, True) for c in single]:
        a = first if shared else np.arange(len(who))
        b = second if shared else a
        place = np.full(len(a), column)
        job, partner = who[a], who[b]
        alone = np.full(len(a), -1)
        if shared:
            first_job = view.shared(job, partner, place)
            second_job = view.shared(partner, job, place)
            low_b, mean_b = second_job.quantile(-z), second_job.estimate
            watts = power.shared_w(job, partner, place)
        else:
            first_job = view.alone(job, place)
            low_b = mean_b = np.full(len(a), np.nan)
            watts = power.alone_w(job, place)
        with_whom = partner if shared else alone
        hit = view.measured(job, with_whom, place) >= 0
        if shared:
            hit &= view.measured(partner, job, place) >= 0
        chance = np.where(hit, 1.0, view.memory.probability(job, with_whom, place))
        chance = _refused_before(view, job, with_whom, place, chance)
        network = np.where(hit, 0, np.where(known[job] & known[partner], 1, 2)).astype(np.int8)
        kind = view.beliefs.columns[column]
        parts.append(
            pa.table(
                {
                    "gpu_type": _repeated(kind.gpu_type, len(a)),
                    "gpus": pa.array(np.full(len(a), kind.gpus, np.int32)),
                    "class_a": pa.DictionaryArray.from_arrays(a.astype(np.int32), names),
                    "class_b": pa.DictionaryArray.from_arrays(
                        pa.array(b.astype(np.int32), mask=np.full(len(b), not shared)), names
                    ),
                    "throughput_a": first_job.quantile(-z),
                    "throughput_b": pa.array(low_b, from_pandas=True),
                    "mean_a": first_job.estimate,
                    "mean_b": pa.array(mean_b, from_pandas=True),
                    "power_w": watts,
                    "power_limit_w": pa.nulls(len(a), pa.float64()),
                    "feasible_probability": chance,
                    "network": pa.DictionaryArray.from_arrays(network, pa.array(NETWORKS)),
                }
            )
        )
    return pa.concat_tables(parts).unify_dictionaries()


def _repeated(name: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), pa.array([name]))


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
