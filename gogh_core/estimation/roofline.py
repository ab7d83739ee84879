"""What hardware facts alone say: seconds of one step on a column, and how alike columns are.

A step takes as long as its kernels are launched, its arithmetic and its traffic on the GPU, and
what the host prepares. The constants are round figures, chosen by hand (see decision 0404); the
Gaussian process corrects what is systematic in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gogh_core.domain import Descriptors
from gogh_core.estimation.catalog import Column
from gogh_core.estimation.facts import StepFacts, step_facts
from gogh_core.hardware import GpuType, find

__all__ = ["SHARES", "column_likeness", "column_speed", "facts_log", "step_seconds"]

Array = np.ndarray[Any, Any]

# Share of the peak that training reaches; of the bandwidth likewise.
EFFICIENCY, BANDWIDTH_EFFICIENCY = 0.5, 0.7
# One kernel launched from Python and CUDA; bytes of input a host prepares and sends in a second.
LAUNCH_S, HOST_BYTES_PER_S = 7e-6, 1.0e9
# Ring all-reduce over PCIe within a node, over 10 Gbit/s between nodes (bytes per second).
LINK_BYTES_PER_S, NETWORK_BYTES_PER_S = 8e9, 1.2e9
# Hosts and small kernels of an older GPU are slower by this factor a year, against 2018: clocks of
# GPUs grew by 20 % a year from 2014 to 2017 and little since, single cores of hosts by 5 to 10 %.
AGE, AGE_YEAR = 1.1, 2018
SHARES = ("compute", "traffic", "launch", "host")
_UNKNOWN = GpuType("unknown", "", 2018, 16, 600, 12, 40, 12, 30, 250, 100, ())


def _gpu(column: Column) -> GpuType:
    return find(column.gpu_type) or _UNKNOWN


def step_seconds(
    jobs: Sequence[Descriptors], facts: Sequence[StepFacts | None], columns: Sequence[Column]
) -> Array:
    """Seconds by part, [jobs, columns, parts of SHARES]; NaN where nothing is known of the job."""
    out = np.full((len(jobs), len(columns), len(SHARES)), np.nan)
    gpus = [_gpu(column) for column in columns]
    bandwidth = np.array([gpu.bandwidth_gbs for gpu in gpus]) * 1e9 * BANDWIDTH_EFFICIENCY
    extra = np.array([_gang_factor(column) for column in columns])
    age = np.array([AGE ** (AGE_YEAR - gpu.year) for gpu in gpus])
    for i, (job, fact) in enumerate(zip(jobs, facts, strict=True)):
        if fact is None:
            continue
        peak = np.array([gpu.peak_tflops(job.precision) for gpu in gpus]) * 1e12 * EFFICIENCY
        out[i, :, 0] = fact.flops / peak
        out[i, :, 1] = fact.traffic_bytes / bandwidth
        out[i, :, 2] = fact.kernels * LAUNCH_S * age
        parameters = job.parameters or 25e6
        prepared = fact.host_s + fact.input_bytes / HOST_BYTES_PER_S
        out[i, :, 3] = prepared + 8 * parameters * extra
    return out


def facts_log(jobs: Sequence[Descriptors], columns: Sequence[Column]) -> Array:
    """Log throughput by facts alone, [jobs, columns]; NaN where nothing is known of the job."""
    seconds = step_seconds(jobs, [step_facts(job) for job in jobs], columns)
    return np.asarray(-np.log(seconds.sum(axis=-1)))


def _gang_factor(column: Column) -> float:
    """Seconds for each byte of gradients that a gang must exchange."""
    if column.gpus <= 1:
        return 0.0
    rate = NETWORK_BYTES_PER_S if column.apart else LINK_BYTES_PER_S
    return (column.gpus - 1) / column.gpus / rate


def column_speed(columns: Sequence[Column]) -> Array:
    """Log speed of a column for a job of which nothing is known: midway between peak and bandwidth.

    Real jobs gain less than the peaks promise (launches, hosts): the power 0.7 says so.
    """
    gpus = [_gpu(column) for column in columns]
    speed = np.log([gpu.bandwidth_gbs for gpu in gpus]) + np.log([gpu.fp32_tflops for gpu in gpus])
    gang = np.log([column.gpus for column in columns]) * 0.15
    apart = np.array([0.2 if column.apart else 0.0 for column in columns])
    return np.asarray(0.35 * speed - gang - apart)


def column_likeness(columns: Sequence[Column]) -> Array:
    """Correlation of what is peculiar to columns, [columns, columns], from their hardware."""
    if not columns:
        return np.zeros((0, 0))
    gpus = [_gpu(column) for column in columns]
    known = np.array([find(column.gpu_type) is not None for column in columns])
    features = np.stack(
        [
            np.log([gpu.bandwidth_gbs for gpu in gpus]),
            np.log([gpu.fp32_tflops for gpu in gpus]),
            np.array([gpu.year for gpu in gpus]) / 4.0,
            np.log([column.gpus for column in columns]) / 1.5,
            np.array([1.0 if column.apart else 0.0 for column in columns]) / 1.5,
        ],
        axis=1,
    )
    distance = ((features[:, None] - features[None]) ** 2).sum(-1)
    names = np.array([column.gpu_type for column in columns])
    same = names[:, None] == names[None]
    alike = np.exp(-distance / 2)
    alike = np.where(known[:, None] & known[None] | same, alike, 0.0)
    gang = np.array([(column.gpus, column.apart) for column in columns])
    exact = same & (gang[:, None] == gang[None]).all(-1)
    return np.asarray(0.6 * alike + 0.4 * exact)
