"""The ground truth of the embedded cluster; nobody outside this room may see it.

`Truth.run` says what happens when one or two classes run on GPUs of a type: the throughput of each,
the watts of one GPU, its utilisation and memory; None when they do not fit into its memory.
`PhysicalTruth` is the default, a documented model (docs/simulation.md); `TableTruth` reads a
throughput table and, beside it, a power table.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gogh_core import hardware
from gogh_core.hardware import GpuType
from gogh_core.simulation.classes import JobClass

__all__ = ["PhysicalTruth", "Run", "Truth", "limited", "normal"]

# Shares of the peak that real kernels reach; matrix units are harder to keep busy.
_REACHED = {"fp32": 0.45, "amp": 0.33, "fp16": 0.30}
_REACHED_BANDWIDTH = 0.70
_ROOFLINE_POWER = 4.0  # how sharply the roofline bends where compute meets memory
_SPREAD = 0.10  # what no descriptor tells, by class and GPU type, as sigma of a log-normal
_SHARING_S = 0.05  # switching between two processes, as a share of the step
_CONTEXT_MB = 450.0  # a process's CUDA context
_USABLE = 0.97
# Draw above idle: being awake, arithmetic, memory traffic.
_AWAKE, _ARITHMETIC, _TRAFFIC = 0.15, 0.55, 0.30
_CUBIC = 2.4  # dynamic power grows with this power of the clock
_CLOCK_BOUND = 0.8  # share of a step that follows the clock


@dataclass(frozen=True, slots=True)
class Run:
    """What happens on each of the GPUs; `throughput[i]` belongs to `classes[i]`."""

    throughput: tuple[float, ...]
    power_w: float
    utilisation: float
    memory_mb: float
    clock: float = 1.0


class Truth(Protocol):
    """What really happens."""

    def run(
        self, gpu_type: str, gpus: int, classes: tuple[str, ...], limit_w: float | None = None
    ) -> Run | None:
        """One or two classes on `gpus` GPUs of a type; None: they do not run there."""
        ...

    def classes(self) -> tuple[str, ...]:
        """The classes it knows."""
        ...


def normal(*key: object) -> float:
    """A standard normal number that depends on the key only (Box-Muller on a hash)."""
    digest = hashlib.sha256("/".join(str(part) for part in key).encode()).digest()
    first = (int.from_bytes(digest[:8], "big") + 1) / (2**64 + 2)
    second = int.from_bytes(digest[8:16], "big") / 2**64
    return math.sqrt(-2 * math.log(first)) * math.cos(2 * math.pi * second)


def limited(gpu: GpuType, power_w: float, limit_w: float | None) -> tuple[float, float]:
    """Watts and relative clock under a power limit."""
    if limit_w is None or power_w <= limit_w or power_w <= gpu.idle_w:
        return power_w, 1.0
    room = max(limit_w - gpu.idle_w, 1.0) / (power_w - gpu.idle_w)
    return limit_w, max(room ** (1 / _CUBIC), 0.1)


@dataclass(frozen=True, slots=True)
class _Alone:
    step_s: float
    compute: float
    """Share of the step in which arithmetic is the limit, were it alone."""
    memory: float
    busy: float
    memory_mb: float


class PhysicalTruth:
    """A roofline of FLOPs and bytes with contention, drawn once for each seed."""

    def __init__(self, classes: Mapping[str, JobClass], seed: int) -> None:
        self._classes = dict(classes)
        self._seed = seed
        self._alone: dict[tuple[str, str], _Alone] = {}
        self._runs: dict[tuple[str, int, tuple[str, ...], float | None], Run | None] = {}

    def classes(self) -> tuple[str, ...]:
        """The classes it knows."""
        return tuple(self._classes)

    def run(
        self, gpu_type: str, gpus: int, classes: tuple[str, ...], limit_w: float | None = None
    ) -> Run | None:
        """One or two classes on `gpus` GPUs of a type."""
        key = (gpu_type, gpus, classes, limit_w)
        if key not in self._runs:
            self._runs[key] = self._run(*key)
        return self._runs[key]

    def _run(
        self, gpu_type: str, gpus: int, classes: tuple[str, ...], limit_w: float | None
    ) -> Run | None:
        gpu = hardware.get(gpu_type)
        alone = [self._job(gpu, name) for name in classes]
        memory_mb = sum(job.memory_mb for job in alone)
        if memory_mb > gpu.memory_gb * 1000 * _USABLE:
            return None
        pressure = max(1.0, sum(job.compute for job in alone), sum(job.memory for job in alone))
        shared = _SHARING_S if len(alone) > 1 else 0.0
        slow = [1.0 + (shared + pressure - 1.0) * job.busy for job in alone]
        busy = min(1.0, sum(job.busy / s for job, s in zip(alone, slow, strict=True)))
        compute = min(1.0, sum(job.compute / s for job, s in zip(alone, slow, strict=True)))
        memory = min(1.0, sum(job.memory / s for job, s in zip(alone, slow, strict=True)))
        share = _AWAKE * busy + _ARITHMETIC * compute + _TRAFFIC * memory
        power_w, clock = limited(gpu, gpu.idle_w + (gpu.max_w - gpu.idle_w) * share, limit_w)
        pace = 1.0 - _CLOCK_BOUND * (1.0 - clock)
        rates = tuple(
            self._gang(name, gpus) * pace / (job.step_s * s)
            for name, job, s in zip(classes, alone, slow, strict=True)
        )
        return Run(rates, power_w, busy, memory_mb, clock)

    def _gang(self, name: str, gpus: int) -> float:
        """Batches done at once by a gang: fewer than its GPUs, they exchange gradients."""
        return gpus / (1.0 + self._classes[name].sync * (gpus - 1) / gpus)

    def _job(self, gpu: GpuType, name: str) -> _Alone:
        key = (gpu.name, name)
        if key not in self._alone:
            entry = self._classes[name]
            told = entry.descriptors
            precision = told.precision or "fp32"
            peak = gpu.peak_tflops(precision) * 1e12 * _REACHED.get(precision, 0.4)
            compute_s = (told.flops_per_step or 0.0) / peak
            memory_s = (told.bytes_per_step or 0.0) / (gpu.bandwidth_gbs * 1e9 * _REACHED_BANDWIDTH)
            own = math.exp(_SPREAD * normal(self._seed, "truth", gpu.name, name))
            device_s = own * (compute_s**_ROOFLINE_POWER + memory_s**_ROOFLINE_POWER) ** (
                1 / _ROOFLINE_POWER
            )
            step_s = device_s + entry.host_s
            self._alone[key] = _Alone(
                step_s=step_s,
                compute=min(1.0, own * compute_s / step_s),
                memory=min(1.0, own * memory_s / step_s),
                busy=device_s / step_s,
                memory_mb=(told.memory_bytes or 0.0) / 1e6 + _CONTEXT_MB,
            )
        return self._alone[key]
