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
from gogh_core.simulation.rates import GpuLoad, Tick
from gogh_core.simulation.records import ServerRecord
from gogh_core.simulation.world import Event, World

__all__ = ["COLUMNS", "SpoolRecorder"]

COLUMNS = (
    "ts,server_id,gpu_index,gpu_type,power_w,energy_j,utilisation,memory_used_mb,"
    "temperature_c,sm_clock_mhz,throttle_reasons,processes"
)
_POWER_LIMITED = 4  # NVML's bit for "software power cap"
_AMBIENT_C, _HOT_C = 28.0, 52.0
_BOOST_MHZ = 1400.0

_Row = list[str]
# What garbage looks like: each spoils one row of a sample file.
_SPOIL: tuple[Callable[[_Row], _Row], ...] = (
    lambda row: [*row[:4], "[N/A]", *row[5:]],
    lambda row: [*row[:4], "-87.0", *row[5:]],
    lambda row: [*row[:4], "98123.5", *row[5:]],
    lambda row: [*row[:6], "7.31", *row[7:]],
    lambda row: row[:5],
    lambda row: ["not-a-time", *row[1:]],
    lambda row: [*row[:2], "-1", *row[3:]],
    lambda row: [*row[:8], "612", *row[9:]],
)


def stamp(moment: datetime) -> str:
    """As telemetry files spell a time."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


class SpoolRecorder:
    """Collects rows from tick to tick, then gives them as files."""

    def __init__(self, settings: SimulationSettings, late: list[list[Any]]) -> None:
        self._settings = settings
        self.late = late
        """Rows that are still on their way: [due in seconds of the clock, text]."""
        self._samples: list[str] = []
        self._progress: list[str] = []
        self._events: list[str] = []

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
        due = [text for at_s, text in self.late if at_s <= world.now_s]
        self.late = [entry for entry in self.late if entry[0] > world.now_s]
        number = f"{round(world.now.timestamp())}"
        found: dict[str, bytes] = {}
        if self._events:
            found[f"events/cluster-{number}.jsonl"] = _lines(self._events)
        if self._progress:
            found[f"progress/jobs-{number}.jsonl"] = _lines(self._progress)
        if self._samples or due:
            text = _lines([COLUMNS, *self._samples, *due])
            # Without a time in its header, the same rows are the same bytes.
            found[f"gpu/room-{number}.csv.gz"] = gzip.compress(text, compresslevel=1, mtime=0)
        return found

    def _take_events(self, world: World) -> None:
        for event in world.events:
            self._events.append(_json(_event(world, event)))
        world.events.clear()

    def _take_progress(self, world: World, tick: Tick, now: str, rng: np.random.Generator) -> None:
        drawn = rng.random(len(tick.rates)).tolist()
        for index, job_id in enumerate(tick.rates):
            record = world.jobs[job_id]
            if drawn[index] < self._settings.gap_rate:
                continue
            if record.state is not JobState.RUNNING and record.state is not JobState.FINISHED:
                continue
            counts = [(0, record.steps)]
            if record.demand.job.mode is Mode.SPREAD:
                counts = [(place.rank, place.steps) for place in record.places if place.steps]
            for rank, steps in counts:
                self._progress.append(
                    f'{{"ts": "{now}", "job_id": "{job_id}", "steps": {steps:.4f}, '
                    f'"attempt": {record.attempt}, "rank": {rank}}}'
                )

    def _take_samples(self, world: World, tick: Tick, now: str, rng: np.random.Generator) -> None:
        settings = self._settings
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
        lost = settings.gap_rate
        late = lost + settings.late_rate
        bad = late + settings.garbage_rate
        for (record, gpu), (first, second), (fate, detail) in zip(gpus, noise, fates, strict=True):
            load = tick.loads[record.server.id, gpu]
            row = _sample(now, record, gpu, load, (first, second))
            if fate < lost:
                continue
            if fate < late:
                delay_s = 60 + 840 * detail
                self.late.append([round(world.now_s + delay_s, 3), ",".join(row)])
                continue
            if fate < bad:
                row = _SPOIL[int(detail * len(_SPOIL))](row)
            self._samples.append(",".join(row))


def _sample(
    now: str, record: ServerRecord, gpu: int, load: GpuLoad, noise: tuple[float, float]
) -> _Row:
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
