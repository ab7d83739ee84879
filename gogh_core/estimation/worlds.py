"""Random synthetic worlds to pre-train on: jobs, GPUs and how they get in each other's way.

Everything is random in each world: how many families and siblings, what a step computes and moves,
what the host adds, how far GPUs reach their peaks, how contention works, what fits into memory,
what is declared and how wrongly, units and noise. The constants are drawn here and nowhere else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from gogh_core.estimation.catalog import Catalog
from gogh_core.hardware import GPU_TYPES

__all__ = ["draw_table", "draw_world"]

Array = np.ndarray[Any, Any]


def draw_world(seed: int, *, most_jobs: int = 40) -> Catalog:
    """One world, measured completely where it runs."""
    return Catalog.from_table(draw_table(seed, most_jobs=most_jobs))


def draw_table(seed: int, *, most_jobs: int = 40, pairs: bool = True) -> pa.Table:
    """The throughput table of one world."""
    rng = np.random.default_rng(seed)
    types = rng.permutation(sorted(GPU_TYPES))[: rng.integers(2, 7)]
    gpus = [GPU_TYPES[name] for name in types]
    jobs = _jobs(rng, most_jobs)
    count, columns = len(jobs["family"]), len(types)

    reach = np.exp(rng.normal(-0.7, 0.25, columns))
    peak = np.array([g.fp32_tflops for g in gpus]) * 1e12 * reach
    bandwidth = (
        np.array([g.bandwidth_gbs for g in gpus]) * 1e9 * np.exp(rng.normal(-0.4, 0.2, columns))
    )
    host = np.exp(rng.normal(0, 0.35, columns))
    compute = jobs["flops"][:, None] / peak[None]
    traffic = jobs["bytes"][:, None] / bandwidth[None]
    waits = jobs["host_s"][:, None] * host[None]
    overlap = rng.uniform(1.0, 4.0)
    busy = (compute**overlap + traffic**overlap) ** (1 / overlap)
    total = busy + waits
    quirk_family = rng.normal(0, rng.uniform(0.03, 0.35), (jobs["families"], columns))
    quirk = rng.normal(0, rng.uniform(0.01, 0.12), (count, columns))
    log_alone = -np.log(total) + quirk_family[jobs["family"]] + quirk - jobs["per_unit"][:, None]

    use = np.clip(busy / total, 0.02, 1.0)
    heavy_bw = np.clip(traffic / busy, 0, 1) * use
    memory = jobs["memory"]
    rows: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
    noise = rng.uniform(0.005, 0.05)
    names = jobs["name"]
    for g in range(columns):
        power = rng.uniform(0.6, 1.4)
        cross = rng.normal(0, rng.uniform(0.02, 0.12), (jobs["families"], jobs["families"]))
        hurt = rng.normal(0, rng.uniform(0.01, 0.1), count)
        harm = rng.normal(0, rng.uniform(0.01, 0.1), count)
        load = use[:, g][None] * power + 0.5 * heavy_bw[:, g][:, None] * heavy_bw[:, g][None]
        ratio = 1 / (1 + use[:, g][:, None] ** rng.uniform(0.3, 1.2) * load)
        ratio = ratio + hurt[:, None] + harm[None] + cross[jobs["family"]][:, jobs["family"]]
        ratio = np.clip(ratio, 0.08, 1.0)
        fits = memory < gpus[g].memory_gb * 1e9
        together = memory[:, None] + memory[None] < gpus[g].memory_gb * 1e9
        for i in range(count):
            if not fits[i]:
                continue
            speed = float(np.exp(log_alone[i, g] + rng.normal(0, noise)))
            _row(rows, jobs, str(types[g]), i, None, (speed, None, True))
            if not pairs:
                continue
            for k in range(i, count):
                if not fits[k]:
                    continue
                runs = bool(together[i, k])
                own = np.exp(log_alone[i, g] + rng.normal(0, noise)) * ratio[i, k]
                other = np.exp(log_alone[k, g] + rng.normal(0, noise)) * ratio[k, i]
                both = (float(own), float(own if i == k else other), True)
                _row(rows, jobs, str(types[g]), i, k, both if runs else (0.0, 0.0, False))
    del names
    return pa.table(rows, schema=_SCHEMA)


_COLUMNS = {
    "gpu_type": pa.string(), "job_type": pa.string(), "model": pa.string(),
    "batch_size": pa.float64(), "partner_job_type": pa.string(), "partner_model": pa.string(),
    "partner_batch_size": pa.float64(), "throughput": pa.float64(),
    "partner_throughput": pa.float64(), "unit": pa.string(), "feasible": pa.bool_(),
    "flops_per_step": pa.float64(), "bytes_per_step": pa.float64(),
    "memory_bytes": pa.float64(),
}  # fmt: skip
_SCHEMA = pa.schema(list(_COLUMNS.items()))


def _row(
    rows: dict[str, list[Any]],
    jobs: dict[str, Any],
    gpu: str,
    i: int,
    k: int | None,
    result: tuple[float, float | None, bool],
) -> None:
    rows["gpu_type"].append(gpu)
    rows["job_type"].append(jobs["name"][i])
    rows["model"].append(jobs["model"][i])
    rows["batch_size"].append(jobs["batch"][i])
    rows["partner_job_type"].append(None if k is None else jobs["name"][k])
    rows["partner_model"].append(None if k is None else jobs["model"][k])
    rows["partner_batch_size"].append(None if k is None else jobs["batch"][k])
    rows["throughput"].append(result[0])
    rows["partner_throughput"].append(result[1])
    rows["unit"].append("steps/s")
    rows["feasible"].append(result[2])
    for name in ("flops_per_step", "bytes_per_step", "memory_bytes"):
        rows[name].append(jobs[name][i])


def _jobs(rng: np.random.Generator, most: int) -> dict[str, Any]:
    families = int(rng.integers(3, 13))
    sizes = np.where(rng.random(families) < 0.25, 1, rng.integers(2, 9, families))
    if rng.random() < 0.15:
        sizes[int(rng.integers(families))] = int(rng.integers(9, 16))
    while sizes.sum() > most:
        sizes[int(np.argmax(sizes))] -= 1
    family = np.repeat(np.arange(families), sizes)
    count = len(family)
    first = 2.0 ** rng.integers(0, 8, families)
    step = np.concatenate([np.arange(size) for size in sizes])
    batch = first[family] * 2.0**step
    per_sample = np.exp(rng.normal(23.0, 2.2, families))
    intensity = np.exp(rng.normal(3.6, 1.0, families))
    fixed = np.exp(rng.normal(20.5, 1.5, families))
    host_fixed = np.exp(rng.normal(-4.3, 1.2, families))
    host_sample = np.exp(rng.normal(-7.5, 1.8, families)) * (rng.random(families) < 0.7)
    spoil = np.exp(rng.normal(0, 0.25, families))
    flops = (per_sample[family] * batch + fixed[family]) * spoil[family]
    traffic = flops / intensity[family]
    memory = (
        np.exp(rng.normal(20.8, 0.6, families))[family]
        + batch * np.exp(rng.normal(17.5, 1.5, families))[family]
    )
    told = (rng.random(families) < 0.5)[family] & (rng.random() < 0.7)
    told_memory = (rng.random(families) < 0.3)[family]
    wrong = np.exp(rng.normal(0, 0.3, families))[family]
    return {
        "family": family,
        "families": families,
        "batch": batch.tolist(),
        "model": [f"world-{f}" for f in family],
        "name": [f"world-{f} (batch size {int(b)})" for f, b in zip(family, batch, strict=True)],
        "flops": flops,
        "bytes": traffic,
        "host_s": host_fixed[family] + host_sample[family] * batch,
        "memory": memory,
        "per_unit": np.zeros(count) + rng.normal(0, 0.5) * (rng.random() < 0.3),
        "flops_per_step": [
            float(f) if t else None
            for f, t in zip(flops / spoil[family] * wrong, told, strict=True)
        ],
        "bytes_per_step": [
            float(b) if t else None for b, t in zip(traffic * wrong, told, strict=True)
        ],
        "memory_bytes": [float(m) if t else None for m, t in zip(memory, told_memory, strict=True)],
    }
