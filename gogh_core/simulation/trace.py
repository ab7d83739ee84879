"""The rows of a trace as jobs: what each row asks for, and why some cannot run here.

A row is taken as what it is. A pod that asks for no GPU is no job of this cluster; a pod that asks
for a part of a GPU is a one-GPU job that shares, with the work its part does in its duration; a
gang larger than the largest server is left out. Each row that is left out is named with the reason.
Where a trace does not name a class of the table, one is drawn by the seed: of the model's batch
sizes if the model is named, else of all classes that run on so many GPUs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gogh_core.domain import Descriptors, Job, Server, job_class
from gogh_core.simulation.arrivals import CHECKPOINT_S, MOVE_S, Demand
from gogh_core.simulation.table import TableTruth, model_key

__all__ = ["START", "LeftOut", "TraceReader"]

START = datetime.fromisoformat("2026-01-05T00:00:00+00:00")
_TYPICAL_W = 180.0
_BATCH = " (batch size "
_WHOLE_MILLI = 1000.0


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row of the trace that is no job here."""

    job: str
    why: str


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The class of a row."""

    name: str
    own: bool
    """Whether the trace names exactly this class, so that its steps are steps of this class."""


class _NoJob(Exception):
    """Why a row cannot be a job here."""


class TraceReader:
    """Makes jobs of a trace's rows, in their order."""

    def __init__(
        self, truth: TableTruth, servers: Sequence[Server], promise: float, seed: int
    ) -> None:
        self._truth = truth
        self._sizes: dict[str, int] = {}
        for server in servers:
            self._sizes[server.gpu_type] = max(self._sizes.get(server.gpu_type, 0), server.gpus)
        self._promise = promise
        self._rng = random.Random(f"gogh/replay/{seed}")
        self._names: set[str] = set()
        self._models: dict[str, list[str]] = {}
        for name in truth.classes():
            self._models.setdefault(model_key(name.partition(_BATCH)[0]), []).append(name)
        self._running: dict[int, list[str]] = {}
        self.drawn = 0
        """Jobs whose class was drawn from all."""
        self.drawn_batch_sizes = 0
        """Jobs of a named model whose batch size was drawn."""
        self.left_out: list[LeftOut] = []

    def demand(self, row: Mapping[str, Any]) -> Demand | None:
        """A job of a row; None when it cannot run here, and then it is among `left_out`."""
        name = self._id(row)
        try:
            return self._demand(row, name)
        except _NoJob as why:
            self.left_out.append(LeftOut(name, str(why)))
            return None

    def _demand(self, row: Mapping[str, Any], job: str) -> Demand:
        count, share = self._gpus(row)
        chosen = self._class(row, count)
        rates = self._rates(chosen.name, count)
        if not rates:
            if chosen.name not in self._truth.classes():
                raise _NoJob(f"class {chosen.name} is not in the table")
            raise _NoJob(f"the table has no {chosen.name} on {count} GPUs of this cluster's types")
        usual = rates[len(rates) // 2]
        given = row.get("required_throughput")
        model, mark, rest = chosen.name.rpartition(_BATCH)
        batch = int(rest.rstrip(")")) if mark and rest.rstrip(")").isdigit() else None
        return Demand(
            Job(
                id=job,
                descriptors=Descriptors(model if batch is not None else chosen.name, batch),
                submitted_at=START,
                owner=str(row.get("owner") or row.get("vc") or ""),
                gpu_counts=(count,),
                max_gpus=count,
                required_throughput=usual * self._promise * share
                if given is None
                else float(given),
                total_steps=_steps(row, usual * share, own=chosen.own),
                priority=float(row.get("priority_weight") or row.get("priority") or 1.0),
                move_cost_j=(MOVE_S + CHECKPOINT_S / 4) * _TYPICAL_W * count,
            ),
            arrives_s=float(row["arrival_s"]),
        )

    def _gpus(self, row: Mapping[str, Any]) -> tuple[int, float]:
        """How many GPUs a row asks for, and which part of the one if it is a part."""
        asked = row.get("num_gpus", row.get("num_gpu"))
        count = 1 if asked is None else int(asked)
        if count <= 0:
            raise _NoJob("asks for no GPU (CPU only)")
        most = max(self._sizes.values())
        if count > most:
            raise _NoJob(f"asks for {count} GPUs, the largest server has {most}")
        milli = row.get("gpu_milli")
        part = count == 1 and milli is not None and 0 < milli < _WHOLE_MILLI
        return count, float(milli) / _WHOLE_MILLI if part and milli is not None else 1.0

    def _rates(self, name: str, count: int) -> list[float]:
        """Throughputs of a class alone on each GPU type of the cluster, the slowest first."""
        return sorted(
            run.throughput[0]
            for gpu_type, most in self._sizes.items()
            if count <= most and (run := self._truth.run(gpu_type, count, (name,))) is not None
        )

    def _class(self, row: Mapping[str, Any], count: int) -> _Chosen:
        if row.get("job_type"):
            return _Chosen(str(row["job_type"]), own=True)
        model = row.get("model") or row.get("model_name")
        if model and row.get("batch_size"):
            return _Chosen(job_class(str(model), int(row["batch_size"])), own=True)
        sizes = self._models.get(model_key(str(model)), []) if model else []
        if sizes:
            fitting = [name for name in sizes if self._rates(name, count)]
            self.drawn_batch_sizes += len(sizes) > 1
            return _Chosen(self._rng.choice(fitting or sizes), own=len(sizes) == 1)
        if count not in self._running:
            names = self._truth.classes()
            self._running[count] = [name for name in names if self._rates(name, count)]
        if not self._running[count]:
            raise _NoJob(f"no class of the table runs on {count} GPUs of this cluster's types")
        self.drawn += 1
        return _Chosen(self._rng.choice(self._running[count]), own=False)

    def _id(self, row: Mapping[str, Any]) -> str:
        given = row.get("job_id") if row.get("job_id") is not None else row.get("name")
        name = str(given if given is not None else len(self._names) + 1)
        while name in self._names:
            name += "'"
        self._names.add(name)
        return name


def _steps(row: Mapping[str, Any], rate: float, *, own: bool) -> float:
    """Steps as given, if they are steps of the job's class; else as its duration says."""
    given = float(row.get("total_steps") or row.get("iterations") or 0.0)
    lasts_s = float(row.get("duration_s") or row.get("duration") or 0.0)
    if given > 0 and (own or lasts_s <= 0):
        return given
    return rate * (lasts_s or 3600.0)
