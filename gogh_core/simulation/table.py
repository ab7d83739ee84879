"""A throughput table, and a power table beside it, as ground truth.

Cells that the table does not have do not run. Where a table holds several campaigns (`source`),
only one counts (with pairs, then with the most GPU types): figures of different campaigns are not
to be mixed. Nobody has measured the power of two jobs on one GPU; it is assumed that each draws its
own power above idle in proportion to the speed it keeps, up to the GPU's maximum.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from gogh_core import hardware
from gogh_core.errors import InvalidCatalog, InvalidInput
from gogh_core.simulation.truth import Run, limited

__all__ = ["TableTruth", "model_key", "read_rows"]

_TYPICAL_SHARE = 0.65  # of the maximum, where no power table says more
_NEEDED = ("gpu_type", "job_type", "throughput")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet, CSV or JSON file; a missing cell is None."""
    import json

    from pyarrow import csv, lib, parquet

    try:
        if path.suffix == ".parquet":
            return list(parquet.read_table(path).to_pylist())
        if path.suffix == ".json":
            raw = json.loads(path.read_text(encoding="utf-8"))
            rows = raw if isinstance(raw, list) else raw.get("servers", raw.get("jobs", []))
            return [dict(row) for row in rows]
        options = csv.ConvertOptions(strings_can_be_null=True)
        return list(csv.read_csv(path, convert_options=options).to_pylist())
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        what = "there is no such file" if missing else f"cannot be read: {error}"
        raise InvalidInput(what, where=str(path)) from error
    except (lib.ArrowInvalid, ValueError, TypeError, AttributeError) as error:
        text = str(error).splitlines()[0] if str(error) else "unreadable"
        raise InvalidInput(f"cannot be read as a table: {text}", where=str(path)) from error


class TableTruth:
    """What was measured, as it was measured."""

    def __init__(
        self, rows: Iterable[Mapping[str, Any]], power: Iterable[Mapping[str, Any]] = ()
    ) -> None:
        kept = _one_source(list(rows))
        self._cells: dict[tuple[str, int, str, str | None], tuple[float, float | None]] = {}
        names: dict[str, None] = {}
        types: dict[str, None] = {}
        for row in kept:
            partner = row.get("partner_job_type")
            gpus = int(row.get("scale_factor") or 1)
            rate = float(row["throughput"] or 0.0)
            if row.get("feasible") is False or rate <= 0:
                continue
            gpu_type, name = str(row["gpu_type"]), str(row["job_type"])
            if hardware.find(gpu_type) is None:
                continue
            key = (gpu_type, gpus, name, None if partner is None else str(partner))
            other = row.get("partner_throughput")
            self._cells.setdefault(key, (rate, None if partner is None else float(other or 0.0)))
            types.setdefault(gpu_type)
            if partner is None:
                names.setdefault(name)
        self.gpu_types = tuple(types)
        self._names = tuple(names)
        self._power = _Power(power)
        self._runs: dict[tuple[str, int, tuple[str, ...], float | None], Run | None] = {}

    @classmethod
    def read(cls, throughput: Path, power: Path | None = None) -> Self:
        """From files."""
        rows = read_rows(throughput)
        missing = [name for name in _NEEDED if rows and name not in rows[0]]
        if missing or not rows:
            fault = f"lacks {', '.join(missing)}" if missing else "is empty"
            raise InvalidCatalog([fault], where=str(throughput))
        truth = cls(rows, read_rows(power) if power is not None else ())
        if not truth.gpu_types or not truth.classes():
            raise InvalidCatalog(["no job runs alone on a known GPU type"], where=str(throughput))
        return truth

    def classes(self) -> tuple[str, ...]:
        """The classes that run alone somewhere."""
        return self._names

    def run(
        self, gpu_type: str, gpus: int, classes: tuple[str, ...], limit_w: float | None = None
    ) -> Run | None:
        """What the table says of one or two classes on GPUs of a type."""
        key = (gpu_type, gpus, classes, limit_w)
        if key not in self._runs:
            self._runs[key] = self._run(*key)
        return self._runs[key]

    def _run(
        self, gpu_type: str, gpus: int, classes: tuple[str, ...], limit_w: float | None
    ) -> Run | None:
        gpu = hardware.get(gpu_type)
        alone = [self._cells.get((gpu_type, gpus, name, None)) for name in classes]
        if len(classes) == 1:
            if alone[0] is None:
                return None
            rates: tuple[float, ...] = (alone[0][0],)
        else:
            first, second = classes
            pair = self._cells.get((gpu_type, gpus, first, second))
            turned = self._cells.get((gpu_type, gpus, second, first))
            if pair is not None and pair[1]:
                rates = (pair[0], pair[1])
            elif turned is not None and turned[1]:
                rates = (turned[1], turned[0])
            else:
                return None
        drawn = gpu.idle_w
        for name, rate, single in zip(classes, rates, alone, strict=True):
            kept = min(rate / single[0], 1.0) if single else 1.0
            drawn += (self._power.alone(gpu_type, name) - gpu.idle_w) * kept
        power_w, clock = limited(gpu, min(drawn, gpu.max_w), limit_w)
        pace = 1.0 - 0.8 * (1.0 - clock)
        busy = min((power_w - gpu.idle_w) / (gpu.max_w - gpu.idle_w) + 0.2, 1.0)
        memory_mb = 0.3 * gpu.memory_gb * 1000 * len(classes)
        return Run(tuple(rate * pace for rate in rates), power_w, busy, memory_mb, clock)


class _Power:
    """Mean watts of a job alone: measured, else as its model or its GPU type usually draws."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        shares: dict[tuple[str, str], list[float]] = defaultdict(list)
        highest: dict[tuple[str, str, Any], Mapping[str, Any]] = {}
        for row in rows:
            gpu = hardware.find(str(row.get("gpu_type")))
            watts, model = row.get("avg_power_w"), str(row.get("model"))
            if gpu is None or watts is None:
                continue
            key = (gpu.name, model, row.get("batch_size"))
            limit = float(row.get("power_limit_w") or gpu.max_w)
            if key not in highest or limit > float(highest[key].get("power_limit_w") or gpu.max_w):
                highest[key] = row
        for (gpu_name, model, _), row in highest.items():
            share = float(row["avg_power_w"]) / hardware.get(gpu_name).max_w
            for cell in (
                (gpu_name, model_key(model)),
                (gpu_name, ""),
                ("", model_key(model)),
                ("", ""),
            ):
                shares[cell].append(share)
        self._shares = {key: min(fmean(found), 1.0) for key, found in shares.items()}

    def alone(self, gpu_type: str, job_class: str) -> float:
        """Watts of one GPU on which the class runs alone."""
        gpu = hardware.get(gpu_type)
        model = model_key(job_class.split(" (batch size", maxsplit=1)[0])
        for key in ((gpu.name, model), ("", model), (gpu.name, ""), ("", "")):
            if key in self._shares:
                return max(self._shares[key] * gpu.max_w, gpu.idle_w)
        return _TYPICAL_SHARE * gpu.max_w


def model_key(model: str) -> str:
    """A model's name as it is compared: letters and digits only, in lower case."""
    return "".join(mark for mark in model.lower() if mark.isalnum())


def _one_source(rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rows of the campaign with pairs and the most GPU types, then the most rows."""
    campaigns: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        campaigns[str(row.get("source"))].append(row)

    def worth(name: str) -> tuple[bool, int, int, str]:
        own = campaigns[name]
        pairs = any(row.get("partner_job_type") is not None for row in own)
        return pairs, len({row["gpu_type"] for row in own}), len(own), name

    return campaigns[max(campaigns, key=worth)] if campaigns else []
