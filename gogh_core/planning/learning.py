"""What is learned within one run, in memory: measured stretches of work become a catalog.

`Learned` is the knowledge of a planner that knows only what telemetry told it: each measured
stretch is a row of a throughput table with the noise of its samples, and at each window P1 and P2
answer from all rows so far. The store, contracts and retraining of a real cycle are left out.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from gogh_core.domain import ClusterState, Descriptors, JobKind
from gogh_core.planning.kept_options import wanted
from gogh_core.planning.ways import options_table

if TYPE_CHECKING:
    from gogh_core.estimation import Catalog, Estimator

__all__ = ["Known", "Learned", "Measured"]

SAMPLE_S = 10.0
LEAST_S = 60.0
"""Shorter stretches are no measurement."""
NOISE = 0.03
"""Of one report of progress, log-normal."""
WATT_NOISE = 0.015
_ROUNDING_S = 1e-3


class Measured(Protocol):
    """A stretch in which a job ran at one place, beside one partner or none."""

    job: str
    job_class: str
    owner: str
    gpu_type: str
    gpus: int
    partner_class: str | None
    throughput: float
    power_w: float
    begun_s: float
    ended_s: float
    feasible: bool


class Guess(Protocol):
    """What one or two classes reach together, and what each of their GPUs draws."""

    @property
    def throughput(self) -> tuple[float, ...]:
        """By class."""
        ...

    @property
    def power_w(self) -> float:
        """Of each GPU."""
        ...


class Rates(Protocol):
    """Speeds and watts that are simply known."""

    def run(self, gpu_type: str, gpus: int, classes: tuple[str, ...]) -> Guess | None:
        """One or two classes on GPUs of a type; None: they do not run there."""
        ...


class Known:
    """Knowledge from rates that need no learning, such as the true means."""

    version = "known"

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._kept: tuple[Any, pa.Table] | None = None

    def options(self, state: ClusterState, *, fresh: bool) -> pa.Table:
        """Every way to run the state's jobs."""
        classes, types, counts = wanted(state, ended=True)
        key = (tuple(sorted(classes)), tuple(types), tuple(counts))
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, options_table(self._rows(*key)))
        return self._kept[1]

    def _rows(
        self, names: Sequence[str], types: Sequence[str], counts: Sequence[int]
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for kind in types:
            for name in names:
                for count in counts:
                    alone = self._rates.run(kind, count, (name,))
                    if alone is not None:
                        rows.append(_option(kind, count, (name, None), alone))
            for pair in combinations_with_replacement(names, 2):
                both = self._rates.run(kind, 1, pair)
                if both is not None:
                    rows.append(_option(kind, 1, pair, both))
        return rows


def _option(kind: str, count: int, pair: tuple[str, str | None], guess: Guess) -> dict[str, Any]:
    first, second = pair
    rates = guess.throughput
    if first == second:  # two jobs of a class are not told apart
        rates = (min(rates), min(rates))
    return {
        "gpu_type": kind,
        "gpus": count,
        "class_a": first,
        "class_b": second,
        "throughput_a": rates[0],
        "throughput_b": rates[1] if second is not None else None,
        "power_w": guess.power_w * count,
    }


class Learned:
    """Estimates from what was measured so far."""

    def __init__(
        self,
        start: datetime,
        *,
        seed: int = 0,
        confidence: float = 0.9,
        half_life_days: float = 14.0,
        pairs: bool = True,
        estimator: Estimator | None = None,
    ) -> None:
        from gogh_core.estimation import Estimator

        self.estimator = estimator or Estimator()
        self.version = self.estimator.version
        self._start = start
        self._rng = np.random.default_rng([seed, 77])
        self._confidence, self._half_life_days = confidence, half_life_days
        self._pairs = pairs
        self._rows: list[dict[str, Any]] = []
        self._described: dict[str, Descriptors] = {}
        self._kept: tuple[Any, pa.Table] | None = None

    def observe(self, stretch: Measured) -> None:
        """Take a measured stretch in."""
        seconds = stretch.ended_s - stretch.begun_s
        if not stretch.feasible:
            self._rows.append(self._refused(stretch))
            self._kept = None  # or an increment would send the job there again
            return
        if seconds < LEAST_S - _ROUNDING_S or stretch.throughput <= 0:
            return
        samples = seconds / SAMPLE_S
        noise = self._rng.standard_normal(2) / np.sqrt(samples)
        self._rows.append(
            {
                "gpu_type": stretch.gpu_type,
                "job_type": stretch.job_class,
                "scale_factor": stretch.gpus,
                "partner_job_type": stretch.partner_class,
                "throughput": float(stretch.throughput * np.exp(NOISE * noise[0])),
                "spread": NOISE * stretch.throughput,
                "samples": samples,
                "power_w": None
                if stretch.partner_class
                else float(stretch.power_w * stretch.gpus * (1 + WATT_NOISE * noise[1])),
                "window_end": self._start + timedelta(seconds=stretch.ended_s),
                "owner": stretch.owner,
                "feasible": True,
            }
        )

    def _refused(self, stretch: Measured) -> dict[str, Any]:
        """Memory did not suffice there."""
        return {
            "gpu_type": stretch.gpu_type,
            "job_type": stretch.job_class,
            "scale_factor": stretch.gpus,
            "partner_job_type": stretch.partner_class,
            "throughput": 0.0,
            "spread": None,
            "samples": 1.0,
            "power_w": None,
            "window_end": self._start + timedelta(seconds=stretch.ended_s),
            "owner": stretch.owner,
            "feasible": False,
        }

    def options(self, state: ClusterState, *, fresh: bool) -> pa.Table:
        """Every way to run the state's jobs; between windows, as of the last if that will do."""
        for status in state.jobs:
            self._described[status.job.job_class] = status.job.descriptors
        classes, types, counts = wanted(state, ended=True)
        key = (frozenset(classes), tuple(types), tuple(counts))
        if self._kept is not None and not fresh and key[0] <= self._kept[0][0]:
            known = self._kept[0]
            if set(types) <= set(known[1]) and set(counts) <= set(known[2]):
                return self._kept[1]
        table = self.estimator.options(
            self.catalog(state.at),
            [classes[name] for name in sorted(classes)],
            types,
            gpu_counts=counts,
            confidence=self._confidence,
            pairs=self._pairs,
        )
        self._kept = (key, table)
        return table

    def catalog(self, now: datetime) -> Catalog:
        """Everything measured so far."""
        from gogh_core.estimation import Catalog

        if not self._rows:
            return Catalog.empty()
        return Catalog.from_table(
            pa.Table.from_pylist([self._told(row) for row in self._rows]),
            where="observations",
            now=now,
            half_life_days=self._half_life_days,
        )

    def to_dict(self) -> dict[str, Any]:
        """Everything learned and kept so far, so that a resumed run goes on with the same."""
        kept = None
        if self._kept is not None:
            (classes, types, counts), table = self._kept
            kept = {
                "classes": sorted(classes),
                "types": list(types),
                "counts": list(counts),
                "table": _packed(table),
            }
        rows = [{**row, "window_end": row["window_end"].isoformat()} for row in self._rows]
        return {
            "rows": rows,
            "described": {name: _facts(told, "") for name, told in self._described.items()},
            "kept": kept,
            "random": self._rng.bit_generator.state,
        }

    def restore(self, raw: Mapping[str, Any]) -> None:
        """Go on where `to_dict` was called."""
        self._rows = [
            {**row, "window_end": datetime.fromisoformat(row["window_end"])} for row in raw["rows"]
        ]
        self._described = {
            name: Descriptors(**{**told, "kind": JobKind(told["kind"])})
            for name, told in raw["described"].items()
        }
        kept = raw["kept"]
        self._kept = None
        if kept is not None:
            key = (frozenset(kept["classes"]), tuple(kept["types"]), tuple(kept["counts"]))
            self._kept = (key, _unpacked(kept["table"]))
        self._rng.bit_generator.state = raw["random"]

    def _told(self, row: Mapping[str, Any]) -> dict[str, Any]:
        own = _facts(self._described[row["job_type"]], "")
        mate = row["partner_job_type"]
        other = _facts(self._described[mate], "partner_") if mate else {}
        return {**row, "unit": "steps/s", "alone": False, **own, **other}


def _packed(table: pa.Table) -> str:
    """A table as text, exactly."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


def _unpacked(text: str) -> pa.Table:
    return pa.ipc.open_stream(base64.b64decode(text)).read_all()


def _facts(told: Descriptors, prefix: str) -> dict[str, Any]:
    raw = asdict(told)
    raw["kind"] = told.kind.value
    return {f"{prefix}{name}": value for name, value in raw.items()}
