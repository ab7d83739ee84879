"""The known shapes: what columns a source may bring for each table, and by which names.

`SHAPES[table]` says which columns there are, which a file must have, and what nvidia-smi, DCGM or a
hand-written file may call them. `rename` turns a header into ours and says what is missing, unknown
or there twice. The cells themselves are read in `sql/steps/telemetry_parse_<table>.sql`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gogh_core.errors import BatchRefused

__all__ = ["SHAPES", "Shape", "rename"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns of one table as files bring them; `entity` names the series (a server, a job)."""

    table: str
    columns: tuple[str, ...]
    required: frozenset[str]
    entity: str
    aliases: Mapping[str, str] = field(default_factory=dict)
    from_name: str | None = None
    """A column that is taken from the file's name when the file does not have it."""


_SAMPLE_NAMES = {
    "timestamp": "ts",
    "time": "ts",
    "server": "server_id",
    "host": "server_id",
    "hostname": "server_id",
    "node": "server_id",
    "index": "gpu_index",
    "gpu": "gpu_index",
    "name": "gpu_type",
    "modelname": "gpu_type",
    "gpu_name": "gpu_type",
    "power.draw": "power_w",
    "power.draw.average": "power_w",
    "power.draw.instant": "power_w",
    "power": "power_w",
    "total_energy_consumption": "energy_j",
    "energy": "energy_j",
    "utilization.gpu": "utilisation_percent",
    "utilization": "utilisation",
    "util": "utilisation",
    "memory.used": "memory_used_mb",
    "memory_used": "memory_used_mb",
    "temperature.gpu": "temperature_c",
    "temperature": "temperature_c",
    "clocks.current.sm": "sm_clock_mhz",
    "clocks.sm": "sm_clock_mhz",
    "sm_clock": "sm_clock_mhz",
    "clocks_throttle_reasons.active": "throttle_reasons",
    "clocks_event_reasons.active": "throttle_reasons",
}

SHAPES: dict[str, Shape] = {
    shape.table: shape
    for shape in (
        Shape(
            "gpu_samples",
            (
                "ts",
                "server_id",
                "gpu_index",
                "gpu_type",
                "power_w",
                "energy_j",
                "utilisation",
                "utilisation_percent",
                "memory_used_mb",
                "temperature_c",
                "sm_clock_mhz",
                "throttle_reasons",
                "processes",
            ),
            frozenset({"ts", "server_id", "gpu_index", "power_w"}),
            "server_id",
            _SAMPLE_NAMES,
            from_name="server_id",
        ),
        Shape(
            "job_progress",
            ("ts", "job_id", "steps", "attempt", "rank", "event"),
            frozenset({"ts", "job_id", "steps"}),
            "job_id",
            {"timestamp": "ts", "time": "ts", "job": "job_id", "step": "steps"},
            from_name="job_id",
        ),
        Shape(
            "job_events",
            ("job_id", "ts", "event", "server_id", "gpus", "partner_job_id", "detail"),
            frozenset({"ts", "job_id", "event"}),
            "job_id",
            {
                "timestamp": "ts",
                "time": "ts",
                "job": "job_id",
                "server": "server_id",
                "node": "server_id",
                "partner": "partner_job_id",
                "with": "partner_job_id",
                "kind": "event",
                "gpu_indices": "gpus",
            },
        ),
        Shape(
            "energy_windows",
            ("window_name", "start_s", "elapsed_s", "gpu_index", "energy_j", "gpu_type", "label"),
            frozenset({"window_name", "start_s", "elapsed_s", "gpu_index", "energy_j"}),
            "source",
            {"start_time": "start_s", "elapsed_time": "elapsed_s"},
        ),
    )
}


def _known_as(shape: Shape) -> list[str]:
    """The columns a file must have, each with the other names it may have."""
    found = []
    for column in sorted(shape.required):
        others = [theirs for theirs, ours in shape.aliases.items() if ours == column]
        found.append(f"{column} (or {', '.join(others)})" if others else column)
    return found


_UNIT = re.compile(r"\s*\[[^\]]*\]\s*$")


def rename(
    shape: Shape, header: Sequence[str], *, where: str
) -> tuple[list[str | None], list[str]]:
    """Our name for each column of a header (None: not used), and notes on what is unusual."""
    names: list[str | None] = []
    unknown: list[str] = []
    for cell in header:
        key = _UNIT.sub("", cell.strip().strip('"')).strip().lower()
        name = key if key in shape.columns else shape.aliases.get(key)
        if name is None:
            unknown.append(cell.strip())
        elif name in names:
            raise BatchRefused(f"column {name} is there twice", where=where)
        names.append(name)
    present = {name for name in names if name}
    missing = sorted(shape.required - present - {shape.from_name or ""})
    if missing:
        todo = [
            f"is {guess[0]!r} meant to be {name}?"
            for name in missing
            if (guess := difflib.get_close_matches(name, unknown, n=1, cutoff=0.5))
        ]
        raise BatchRefused(
            f"column {', '.join(missing)} is missing",
            where=where,
            todo=" ".join(todo) or f"{shape.table} needs {', '.join(_known_as(shape))}",
        )
    notes = [f"columns not used: {', '.join(unknown)}"] if unknown else []
    return names, notes
