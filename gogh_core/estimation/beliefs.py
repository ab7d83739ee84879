"""What a catalog lets us believe of each job on each column: three quantities with spreads.

Alone: the log throughput. Sensitivity: how much a partner takes from the job. Aggressiveness: how
much the job takes from its partner. A pair's ratio (pair over alone) is the column's mean plus the
sensitivity of the one, the aggressiveness of the other, and what their families do to each other
beyond that; so a job is looked at once and millions of pairs are sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gogh_core.estimation.alone import Alone, process_alone, siblings
from gogh_core.estimation.catalog import Catalog, Column
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.opinions import beside, nan_median
from gogh_core.estimation.pairs import Pairs, Smoothing, add_shared_only
from gogh_core.estimation.process import (
    Conditioned,
    JobKernels,
    Kernel,
    Observed,
    fit_variances,
    settle,
)
from gogh_core.estimation.roofline import column_likeness

__all__ = ["AGGRESSIVE", "ALONE", "SENSITIVE", "Beliefs", "Hyper", "believe"]

Array = np.ndarray[Any, Any]

ALONE, SENSITIVE, AGGRESSIVE = 0, 1, 2
# A job next to another keeps at least this share of its speed, and never gains.
RATIO_LOW, RATIO_HIGH = 0.05, 1.0
# Centres of the priors on variances: job kernels for all columns, then by column, as in COMMON.
_START = [0.024, 0.012, 0.009, 0.006, 0.015, 0.006, 0.003, 0.003, 0.003, 0.0015, 0.024, 0.012]
_CELL_START = [0.01, 0.004]
_NOISE = 0.001
# A job's cells tell of facts' levels more than of their shapes: half of their evidence counts, and
# it moves the odds by a factor of e to this at most.
_OWN_EVIDENCE, _MOST_ODDS = 0.5, 3.0
# Shapes have about two dimensions; no more draws of them count than these.
_DIMENSIONS, _MOST_DRAWS = 2, 12


@dataclass(frozen=True)
class Hyper:
    """Variances of the three processes, found on one catalog."""

    kernels: tuple[Kernel, Kernel, Kernel]
    blind: Kernel | None = None
    """Of the process alone that knows no facts."""
    smoothing: Smoothing | None = None
    beside: tuple[int | None, int | None] = (None, None)
    """Kernels of the second opinions on sensitivity and aggressiveness."""


@dataclass(frozen=True)
class Beliefs:
    """Means and variances [3 quantities, jobs, columns], and how pairs combine."""

    columns: tuple[Column, ...]
    mean: Array
    variance: Array
    observed: Array
    """How many cells of the job and quantity were measured, [3, jobs, columns]."""
    ratio: Array
    """Mean ratio of a pair, [columns]."""
    ratio_variance: Array
    """Of a pair's ratio around the sum, [columns]."""
    interaction: Array | None
    """What two jobs do to each other beyond the sum, [columns, jobs, jobs]; None: nothing known."""
    hyper: Hyper
    centre: Array
    """Column medians (log throughput) of the catalog, [columns]; NaN for unseen columns."""
    roofline: Array
    """Log throughput from facts alone, [jobs, columns]; NaN without facts."""
    simple: Array
    """What siblings or medians say of the three quantities, [3, jobs, columns]."""
    second: Array
    """Second opinions on the three quantities, [3, jobs, columns]."""
    against_facts: Array
    """Log odds of the opinion on speed alone without facts, [jobs]."""
    cell: Array
    """Step time and use of the GPU as features, [jobs, columns, 2]."""
    ratio_width: Array
    """Factor on the spread of a job's ratios, [jobs]."""
    lean: Array
    """How many variances below the centre the estimate of a job lies, [jobs]."""

    def ratio_of(
        self, job: Array, partner: Array, column: Array, *, clip: bool = True
    ) -> tuple[Array, Array]:
        """Throughput of `job` next to `partner` over alone, and its standard deviation."""
        said = self.ratio[column] + self.mean[SENSITIVE][job, column]
        said = said + self.mean[AGGRESSIVE][partner, column]
        if self.interaction is not None:
            said = said + self.interaction[column, job, partner]
        own = self.variance[SENSITIVE][job, column]
        theirs = self.variance[AGGRESSIVE][partner, column]
        # The width that counts is that of whom we know less.
        total = own + theirs
        width = (own * self.ratio_width[job] + theirs * self.ratio_width[partner]) / total
        sd = width * np.sqrt(total + self.ratio_variance[column])
        if clip:
            said = np.clip(said, RATIO_LOW, RATIO_HIGH)
        return np.asarray(said), np.asarray(sd)


def believe(
    catalog: Catalog,
    jobs: JobSet,
    columns: Sequence[Column],
    *,
    ask: Array | None = None,
    doubt: Array | None = None,
    hyper: Hyper | None = None,
) -> Beliefs:
    """Everything the catalog says of all jobs (or only of `ask`) on the columns.

    With `doubt`, second opinions on speed alone are right for these jobs only.
    `columns` begins with the catalog's own. Without `hyper` the variances are fitted here.
    """
    columns = tuple(columns)
    who = np.arange(len(jobs.names)) if ask is None else np.asarray(ask)
    shape = (len(jobs.names), len(columns))
    kernel_jobs = jobs.kernels()
    likeness = column_likeness(columns)
    cells = catalog.cells
    alone = np.flatnonzero(cells.partner < 0)
    table = np.full(shape, np.nan)
    table[cells.job[alone], cells.column[alone]] = cells.log[alone]
    noise = np.full(shape, np.nan)
    noise[cells.job[alone], cells.column[alone]] = cells.variance[alone]

    pairs = Pairs.of(catalog, table, len(columns))
    effects = pairs.effects(shape)
    add_shared_only(catalog, table, noise, effects, pairs)

    kernels = hyper.kernels if hyper else (None, None, None)
    doubt = who if doubt is None else doubt
    main = process_alone(jobs, columns, table, noise, (who, doubt), kernels[ALONE])
    mean = np.zeros((3, *shape))
    variance = np.zeros((3, *shape))
    mean[ALONE], variance[ALONE] = main.mean, main.variance

    cell = _cell_features(mean[0], table, main.seconds, jobs.has_facts)
    spread = max(float(np.nanvar(table)), 0.1) if (~np.isnan(table)).any() else 1.0
    trust = np.where(np.isnan(table), np.clip(1 - 2 * variance[0] / spread, 0.0, 1.0), 1.0)
    featured = JobKernels(kernel_jobs, likeness, None, cell, trust)
    second = np.zeros((3, *shape))
    second[ALONE], blind, against = _without_facts(jobs, columns, table, noise, doubt, main, hyper)
    found, choices = [main.kernel], []
    simple = [main.simple]
    observed = np.zeros((3, *shape))
    observed[0] = ~np.isnan(table)
    for quantity, (values, counts) in ((SENSITIVE, effects.own), (AGGRESSIVE, effects.on_partner)):
        at = np.nonzero(counts > 0)
        seen = Observed(at[0], at[1], values[at], effects.residual[at[1]] / counts[at])
        start = np.array(_START + _CELL_START)
        kernel = kernels[quantity] or fit_variances(featured, seen, start, _NOISE)
        found.append(kernel)
        mean[quantity], variance[quantity] = settle(Conditioned(featured, kernel, seen), who, shape)
        known = np.where(counts > 0, values, np.nan)
        second[quantity], chosen = beside(
            kernel_jobs, known, mean[quantity], variance[quantity],
            hyper.beside[quantity - 1] if hyper else None,
        )  # fmt: skip
        choices.append(chosen)
        observed[quantity] = counts
        simple.append(siblings(jobs, known, None))
    interaction, smoothing = pairs.interaction(
        effects, jobs, shape, hyper.smoothing if hyper else None
    )
    centre = nan_median(table, 0)
    return Beliefs(
        columns, mean, np.maximum(variance, 1e-8), observed, effects.mean, effects.residual,
        interaction,
        Hyper((found[0], found[1], found[2]), blind, smoothing, (choices[0], choices[1])), centre,
        -np.log(main.seconds.sum(axis=-1)), np.stack(simple), second, against, cell,
        np.ones(shape[0]), np.zeros(shape[0]),
    )  # fmt: skip


def _without_facts(
    jobs: JobSet,
    columns: tuple[Column, ...],
    table: Array,
    noise: Array,
    who: Array,
    main: Alone,
    hyper: Hyper | None,
) -> tuple[Array, Kernel | None, Array]:
    """Speeds alone as if no architecture were known; where none is, what siblings say.

    The level of a job that was not measured stays the main one's: names say nothing of it. Also
    the log odds of this opinion for each job.
    """
    against = np.zeros(len(table))
    if jobs.has_facts.any():
        other = process_alone(
            jobs.blind, columns, table, noise, (who, who), hyper.blind if hyper else None
        )
        said, kernel = other.mean, other.kernel
        against = _odds(jobs, table, main, other)
    else:
        said, kernel = main.simple, None
    lift = (main.mean - said).mean(axis=1, keepdims=True)
    unmeasured = np.isnan(table).all(axis=1, keepdims=True)
    return said + np.where(unmeasured, lift, 0.0), kernel, against


def _odds(jobs: JobSet, table: Array, facts: Alone, blind: Alone) -> Array:
    """Log odds of the process without facts, of jobs that were measured somewhere, [jobs].

    Both learned from all families how far they miss what they are not shown. A family is a draw of
    it in each dimension of its shape, in which the one of the smaller variance is likelier by its
    square root. Then what each foretold of the job's own cells.
    """
    seen = ~np.isnan(table)
    rest = np.where(seen, 0.0, 1.0)
    missed = [(rest * said.variance).sum(axis=1) for said in (facts, blind)]
    some = seen.any(axis=1)
    families = len(np.unique(jobs.families[some])) - 1
    draws = min(families * min(table.shape[1] - 1, _DIMENSIONS), _MOST_DRAWS)
    told = 0.5 * draws * np.log(np.maximum(missed[0], 1e-9) / np.maximum(missed[1], 1e-9))
    own = np.clip(blind.evidence - facts.evidence, -_MOST_ODDS, _MOST_ODDS)
    return np.where(some, told + _OWN_EVIDENCE * own, 0.0)


def _cell_features(mean: Array, table: Array, seconds: Array, has_facts: Array) -> Array:
    """What a cell's speed alone says of its manners: log step time and log use of the GPU.

    Clipped to the range of measured cells: nothing is extrapolated to longer or lighter steps.
    """
    busy = np.log(np.maximum(seconds[..., :2].sum(-1), 1e-9)) + mean
    busy = np.where(has_facts[:, None], np.clip(busy, -4, 0.5), -1.0)
    seen = ~np.isnan(table)
    out = np.empty((*mean.shape, 2))
    for i, feature in enumerate((mean, busy)):
        values = feature[seen]
        low, high = np.percentile(values, [2, 98]) if len(values) else (0.0, 1.0)
        spread = max(float(values.std()) if len(values) else 1.0, 0.3)
        out[..., i] = (np.clip(feature, low, high) - low) / spread
    return out
