"""Telemetry as the real sources give it: samples, progress and events, with what goes wrong.

One `SpoolRecorder` collects what happens between two moments and gives the files of that stretch as
bytes, named by the virtual time; the same stretch always gives the same bytes. A share of the rows
is lost, comes late (kept in `late` until it is due) or is garbage, as the settings say.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np

from gogh_core import hardware
from gogh_core.domain import JobState, Mode, PowerState
from gogh_core.settings import SimulationSettings
from gogh_core.simulation.disk import OWN_FILES
from gogh_core.simulation.life import Event
from gogh_core.simulation.rates import GpuLoad, Tick
from gogh_core.simulation.records import ServerRecord
from gogh_core.simulation.world import World

__all__ = ["COLUMNS", "SpoolRecorder"]

COLUMNS = (
    "ts,server_id,gpu_index,gpu_type,power_w,energy_j,utilisation,memory_used_mb,"
    "temperature_c,sm_clock_mhz,throttle_reasons,processes"
)
_POWER_LIMITED = 4  # NVML's bit for "software power cap"
_AMBIENT_C, _HOT_C = 28.0, 52.0
_BOOST_MHZ = 1400.0

_LATE_S = (60.0, 840.0)  # late rows come after one to fifteen minutes


def _cell(index: int, text: str) -> Callable[[str], str]:
    """Puts something else into one cell of a CSV row."""

    def spoil(row: str) -> str:
        cells = row.split(",")
        cells[index] = text
        return ",".join(cells)

    return spoil


# What garbage looks like, by folder.
_SPOIL: dict[str, tuple[Callable[[str], str], ...]] = {
    "gpu": (
        _cell(4, "[N/A]"),
        _cell(4, "-87.0"),
        _cell(4, "98123.5"),
        _cell(6, "7.31"),
        lambda row: ",".join(row.split(",")[:5]),
        _cell(0, "not-a-time"),
        _cell(2, "-1"),
        _cell(8, "612"),
    ),
    "progress": (
        lambda row: row[: len(row) // 2],
        lambda row: row.replace('"steps": ', '"steps": -'),
        lambda row: row.replace('"job_id": "', '"job_id": "no-such-'),
        lambda row: row.replace('"ts": "', '"ts": "yesterday '),
    ),
}


def stamp(moment: datetime) -> str:
    """As telemetry files spell a time."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


class SpoolRecorder:
    """Collects rows from tick to tick, then gives them as files."""

    def __init__(self, settings: SimulationSettings, late: list[list[Any]]) -> None:
        self._settings = settings
        self.late = late
        """Rows that are still on their way: [due in seconds of the clock, folder, text]."""
        self._rows: dict[str, list[str]] = {"events": [], "progress": [], "gpu": []}

    def tick(self, world: World, tick: Tick) -> None:
        """One sample of every GPU and one report of every running job."""
        now = stamp(world.now)
        rng = np.random.default_rng([world.seed, 2, round(world.now_s)])
        self._take_events(world)
        self._take_progress(world, tick, now, rng)
        self._take_samples(world, tick, now, rng)

    def files(self, world: World) -> dict[str, bytes]:
        """What goes to the spool for the stretch that ends now; only late rows are held back."""
        self._take_events(world)
        for _, folder, text in (entry for entry in self.late if entry[0] <= world.now_s):
            self._rows[folder].append(text)
        self.late = [entry for entry in self.late if entry[0] > world.now_s]
        number = f"{round(world.now.timestamp())}"
        found: dict[str, bytes] = {}
        for folder, rows in self._rows.items():
            name = f"{folder}/{OWN_FILES[folder]}-{number}"
            if rows and folder == "gpu":
                # Without a time in its header, the same rows are the same bytes.
                text = gzip.compress(_lines([COLUMNS, *rows]), compresslevel=1, mtime=0)
                found[f"{name}.csv.gz"] = text
            elif rows:
                found[f"{name}.jsonl"] = _lines(rows)
        return found

    def _take_events(self, world: World) -> None:
        for event in world.events:
            self._rows["events"].append(_json(_event(world, event)))
        world.events.clear()

    def _take_progress(self, world: World, tick: Tick, now: str, rng: np.random.Generator) -> None:
        fates = rng.random((len(tick.rates), 2)).tolist()
        for job_id, fate in zip(tick.rates, fates, strict=True):
            record = world.jobs[job_id]
            if record.state is not JobState.RUNNING and record.state is not JobState.FINISHED:
                continue
            counts = [(0, record.steps)]
            if record.demand.job.mode is Mode.SPREAD:
                counts = [(place.rank, place.steps) for place in record.places if place.steps]
            for rank, steps in counts:
                row = (
                    f'{{"ts": "{now}", "job_id": "{job_id}", "steps": {steps:.4f}, '
                    f'"attempt": {record.attempt}, "rank": {rank}}}'
                )
                self._deliver("progress", row, fate, world.now_s)

    def _deliver(self, folder: str, row: str, fate: list[float], now_s: float) -> None:
        """Write a row down, spoil it, keep it for later or lose it, as fate has it."""
        rates, (drawn, detail) = self._settings, fate
        if drawn < rates.gap_rate:
            return
        if drawn < rates.gap_rate + rates.late_rate:
            self.late.append([round(now_s + _LATE_S[0] + _LATE_S[1] * detail, 3), folder, row])
            return
        if drawn < rates.gap_rate + rates.late_rate + rates.garbage_rate:
            spoil = _SPOIL[folder]
            row = spoil[int(detail * len(spoil))](row)
        self._rows[folder].append(row)

    def _take_samples(self, world: World, tick: Tick, now: str, rng: np.random.Generator) -> None:
        gpus = [
            (record, gpu)
            for record in world.servers.values()
            if record.power is PowerState.ON and not record.silent
            for gpu in range(record.server.gpus)
            if gpu not in record.dead and (record.server.id, gpu) in tick.loads
        ]
        count = len(gpus)
        noise = rng.standard_normal((count, 2)).tolist()
        fates = rng.random((count, 2)).tolist()
        for (record, gpu), pair, fate in zip(gpus, noise, fates, strict=True):
            load = tick.loads[record.server.id, gpu]
            row = _sample(now, record, gpu, load, (pair[0], pair[1]))
            self._deliver("gpu", ",".join(row), fate, world.now_s)


def _sample(
    now: str, record: ServerRecord, gpu: int, load: GpuLoad, noise: tuple[float, float]
) -> list[str]:
    first, second = noise
    gpu_type = record.server.gpu_type
    facts = hardware.get(gpu_type)
    power_w = min(max(load.power_w * (1 + 0.015 * first), 0.5 * facts.idle_w), facts.max_w * 1.03)
    used = min(max(load.utilisation * (1 + 0.03 * second), 0.0), 1.0)
    heat = _AMBIENT_C + _HOT_C * power_w / facts.max_w
    clock = _BOOST_MHZ * load.clock if load.processes else 300.0
    throttle = _POWER_LIMITED if load.clock < 1 else 0
    return [
        now,
        record.server.id,
        str(gpu),
        gpu_type,
        f"{power_w:.2f}",
        f"{record.energy_j[gpu]:.1f}",
        f"{used:.3f}",
        f"{load.memory_mb:.0f}",
        f"{heat:.0f}",
        f"{clock:.0f}",
        str(throttle),
        str(load.processes),
    ]


def _event(world: World, event: Event) -> dict[str, Any]:
    return {
        "ts": stamp(world.moment(event.at_s)),
        "job_id": event.job,
        "event": event.event,
        "server_id": event.server,
        "gpus": list(event.gpus) if event.gpus is not None else None,
        "partner_job_id": event.partner,
        "detail": event.detail,
    }


def _json(raw: dict[str, Any]) -> str:
    return json.dumps(raw, separators=(",", ":"), allow_nan=False)


def _lines(rows: list[str]) -> bytes:
    return ("\n".join(rows) + "\n").encode()
