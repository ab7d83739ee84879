"""Facts of GPU types: memory, bandwidth, peak FLOPS, idle and maximum watts, year, aliases.

Peak figures are dense (no sparsity), for the variant named in the comment, from the vendor's
datasheet unless another source is given. Idle watts are what nvidia-smi or rocm-smi report for an
idle card in the vendor's or others' published measurements; they differ by some watts between
machines, so the store's own telemetry overrides them (`estimation.power`).
`find` knows the names that NVML, DCGM and Slurm use.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from gogh_core.errors import InvalidInput

__all__ = ["GPU_TYPES", "GpuType", "closest", "find", "get"]


@dataclass(frozen=True, slots=True)
class GpuType:
    """What a GPU type can do and what it draws."""

    name: str
    vendor: str
    year: int
    memory_gb: float
    bandwidth_gbs: float
    fp32_tflops: float
    fp16_tflops: float
    """Tensor or matrix units where there are any, else plain FP16 or FP32."""
    tf32_tflops: float
    """What a default FP32 matrix product reaches: TF32 units where there are any, else FP32."""
    idle_w: float
    max_w: float
    min_limit_w: float
    aliases: tuple[str, ...]

    def peak_tflops(self, precision: str | None) -> float:
        """Peak for a precision as jobs declare it; unknown or missing counts as fp32."""
        if precision in ("fp16", "bf16", "amp", "mixed", "int8", "fp8"):
            return self.fp16_tflops
        if precision == "tf32":
            return self.tf32_tflops
        return self.fp32_tflops


_ALL: tuple[GpuType, ...] = (
    # Tesla K80 datasheet (one card = two GK210; figures here for ONE GK210, as NVML counts them):
    # 12 GB, 240 GB/s, 4.37 TFLOPS FP32 with boost (half of 8.74), board 300 W / 2.
    GpuType("k80", "nvidia", 2014, 12, 240, 4.37, 4.37, 4.37, 27, 150, 100, ("tesla k80", "gk210")),
    # Tesla M60 datasheet (one of two GM204): 8 GB, 160 GB/s, 4.82 TFLOPS, board 300 W / 2.
    GpuType("m60", "nvidia", 2015, 8, 160, 4.82, 4.82, 4.82, 14, 150, 100, ("tesla m60",)),
    # Tesla P4 datasheet: 8 GB, 192 GB/s, 5.5 TFLOPS, 75 W.
    GpuType("p4", "nvidia", 2016, 8, 192, 5.5, 5.5, 5.5, 7, 75, 60, ("tesla p4",)),
    # Tesla P100 SXM2 datasheet: 16 GB, 732 GB/s, 10.6 FP32, 21.2 FP16, 300 W (PCIe: 250 W).
    GpuType(
        "p100",
        "nvidia",
        2016,
        16,
        732,
        10.6,
        21.2,
        10.6,
        30,
        300,
        150,
        ("tesla p100-sxm2-16gb", "tesla p100-pcie-16gb", "tesla p100-pcie-12gb", "tesla p100"),
    ),
    # Tesla P40 datasheet: 24 GB, 346 GB/s, 12 FP32, 250 W.
    GpuType("p40", "nvidia", 2016, 24, 346, 12.0, 12.0, 12.0, 10, 250, 125, ("tesla p40",)),
    # GeForce GTX 1080 Ti product page: 11 GB, 484 GB/s, 11.3 FP32, 250 W.
    GpuType(
        "gtx1080ti",
        "nvidia",
        2017,
        11,
        484,
        11.3,
        11.3,
        11.3,
        10,
        250,
        125,
        ("geforce gtx 1080 ti", "1080ti", "gtx1080"),
    ),
    # Tesla V100 SXM2 datasheet: 16/32 GB, 900 GB/s, 15.7 FP32, 125 FP16 tensor, 300 W.
    GpuType(
        "v100",
        "nvidia",
        2017,
        16,
        900,
        15.7,
        125,
        15.7,
        40,
        300,
        100,
        (
            "tesla v100-sxm2-16gb",
            "tesla v100-pcie-16gb",
            "tesla v100-sxm3-32gb",
            "tesla v100-fhhl-16gb",
            "tesla v100",
            "v100-16gb",
            "v100m16",
        ),
    ),
    # The same with 32 GB.
    GpuType(
        "v100-32gb",
        "nvidia",
        2018,
        32,
        900,
        15.7,
        125,
        15.7,
        42,
        300,
        100,
        ("tesla v100-sxm2-32gb", "tesla v100-pcie-32gb", "tesla v100-dgxs-32gb", "v100m32"),
    ),
    # Tesla T4 datasheet: 16 GB, 320 GB/s, 8.1 FP32, 65 FP16 tensor, 70 W.
    GpuType("t4", "nvidia", 2018, 16, 320, 8.1, 65, 8.1, 10, 70, 60, ("tesla t4",)),
    # Quadro RTX 6000 datasheet: 24 GB, 672 GB/s, 16.3 FP32, 130.5 FP16 tensor, 260 W.
    GpuType(
        "rtx6000", "nvidia", 2018, 24, 672, 16.3, 130.5, 16.3, 15, 260, 100, ("quadro rtx 6000",)
    ),
    # GeForce RTX 2080 Ti product page: 11 GB, 616 GB/s, 13.4 FP32, 107.6 FP16 tensor, 250 W.
    GpuType(
        "rtx2080ti",
        "nvidia",
        2018,
        11,
        616,
        13.4,
        107.6,
        13.4,
        11,
        250,
        100,
        ("geforce rtx 2080 ti", "2080ti", "rtx2080"),
    ),
    # A100 datasheet, SXM4: 40 GB, 1555 GB/s, 19.5 FP32, 156 TF32, 312 FP16 tensor, 400 W.
    GpuType(
        "a100",
        "nvidia",
        2020,
        40,
        1555,
        19.5,
        312,
        156,
        52,
        400,
        100,
        (
            "nvidia a100-sxm4-40gb",
            "a100-sxm4-40gb",
            "nvidia a100-pcie-40gb",
            "a100-pcie-40gb",
            "nvidia a100",
            "a100-40gb",
        ),
    ),
    # A100 datasheet, 80 GB: 2039 GB/s.
    GpuType(
        "a100-80gb",
        "nvidia",
        2021,
        80,
        2039,
        19.5,
        312,
        156,
        60,
        400,
        100,
        ("nvidia a100-sxm4-80gb", "a100-sxm4-80gb", "nvidia a100 80gb pcie", "a100-80g"),
    ),
    # GeForce RTX 3090 product page: 24 GB, 936 GB/s, 35.6 FP32, 71 TF32 halved, 142 FP16, 350 W.
    GpuType(
        "rtx3090",
        "nvidia",
        2020,
        24,
        936,
        35.6,
        142,
        35.6,
        20,
        350,
        100,
        ("nvidia geforce rtx 3090", "geforce rtx 3090", "3090"),
    ),
    # A40 datasheet: 48 GB, 696 GB/s, 37.4 FP32, 74.8 TF32, 149.7 FP16 tensor, 300 W.
    GpuType("a40", "nvidia", 2020, 48, 696, 37.4, 149.7, 74.8, 28, 300, 100, ("nvidia a40",)),
    # RTX A6000 datasheet: 48 GB, 768 GB/s, 38.7 FP32, 77.4 TF32, 154.8 FP16 tensor, 300 W.
    GpuType(
        "rtxa6000",
        "nvidia",
        2020,
        48,
        768,
        38.7,
        154.8,
        77.4,
        22,
        300,
        100,
        ("nvidia rtx a6000", "rtx a6000", "a6000"),
    ),
    # A10 datasheet: 24 GB, 600 GB/s, 31.2 FP32, 62.5 TF32, 125 FP16 tensor, 150 W.
    GpuType(
        "a10",
        "nvidia",
        2021,
        24,
        600,
        31.2,
        125,
        62.5,
        17,
        150,
        100,
        ("nvidia a10", "nvidia a10g", "a10g"),
    ),
    # A30 datasheet: 24 GB, 933 GB/s, 10.3 FP32, 82 TF32, 165 FP16 tensor, 165 W.
    GpuType("a30", "nvidia", 2021, 24, 933, 10.3, 165, 82, 28, 165, 100, ("nvidia a30",)),
    # L4 datasheet (dense): 24 GB, 300 GB/s, 30.3 FP32, 60 TF32, 121 FP16 tensor, 72 W.
    GpuType("l4", "nvidia", 2023, 24, 300, 30.3, 121, 60, 13, 72, 40, ("nvidia l4",)),
    # L40S datasheet (dense): 48 GB, 864 GB/s, 91.6 FP32, 183 TF32, 362 FP16 tensor, 350 W.
    GpuType("l40s", "nvidia", 2023, 48, 864, 91.6, 362, 183, 33, 350, 100, ("nvidia l40s",)),
    # RTX 4090, Ada whitepaper: 24 GB, 1008 GB/s, 82.6 FP32, 165 FP16, 450 W.
    GpuType(
        "rtx4090",
        "nvidia",
        2022,
        24,
        1008,
        82.6,
        165,
        82.6,
        20,
        450,
        150,
        ("nvidia geforce rtx 4090", "geforce rtx 4090", "4090"),
    ),
    # H100 SXM datasheet (dense): 80 GB, 3350 GB/s, 67 FP32, 494 TF32, 989 FP16 tensor, 700 W.
    GpuType(
        "h100",
        "nvidia",
        2022,
        80,
        3350,
        67,
        989,
        494,
        70,
        700,
        200,
        ("nvidia h100 80gb hbm3", "h100-sxm5-80gb", "nvidia h100", "h100-80gb"),
    ),
    # H100 PCIe datasheet (dense): 80 GB, 2000 GB/s, 51 FP32, 378 TF32, 756 FP16 tensor, 350 W.
    GpuType(
        "h100-pcie",
        "nvidia",
        2022,
        80,
        2000,
        51,
        756,
        378,
        48,
        350,
        200,
        ("nvidia h100 pcie", "h100-pcie-80gb"),
    ),
    # H200 SXM datasheet: 141 GB, 4800 GB/s, compute as H100 SXM, 700 W.
    GpuType(
        "h200", "nvidia", 2023, 141, 4800, 67, 989, 494, 75, 700, 200, ("nvidia h200", "h200-141gb")
    ),
    # DGX B200 datasheet, one GPU (dense): 180 GB, 7700 GB/s, 75 FP32, 1125 TF32, 2250 FP16, 1000 W.
    GpuType(
        "b200",
        "nvidia",
        2024,
        180,
        7700,
        75,
        2250,
        1125,
        140,
        1000,
        200,
        ("nvidia b200", "b200-180gb"),
    ),
    # Instinct MI100 datasheet: 32 GB, 1229 GB/s, 23.1 FP32, 46.1 FP32 matrix, 184.6 FP16, 300 W.
    GpuType(
        "mi100",
        "amd",
        2020,
        32,
        1229,
        23.1,
        184.6,
        46.1,
        35,
        300,
        100,
        ("amd instinct mi100", "instinct mi100"),
    ),
    # Instinct MI250X datasheet, one of two dies: 64 GB, 1638 GB/s, 23.9 FP32, 47.9 matrix, 191.5
    # FP16, board 560 W / 2.
    GpuType(
        "mi250x",
        "amd",
        2021,
        64,
        1638,
        23.9,
        191.5,
        47.9,
        45,
        280,
        100,
        ("amd instinct mi250x", "instinct mi250x", "mi250"),
    ),
    # MI300X datasheet (dense): 192 GB, 5300 GB/s, 163.4 FP32, 653.7 TF32, 1307 FP16, 750 W.
    GpuType(
        "mi300x",
        "amd",
        2023,
        192,
        5300,
        163.4,
        1307.4,
        653.7,
        140,
        750,
        250,
        ("amd instinct mi300x", "instinct mi300x", "mi300"),
    ),
)

GPU_TYPES: dict[str, GpuType] = {gpu.name: gpu for gpu in _ALL}


def _key(name: str) -> str:
    """Case, blanks and marks do not tell GPU types apart."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


_BY_KEY = {_key(alias): gpu for gpu in _ALL for alias in (gpu.name, *gpu.aliases)}


def find(name: str) -> GpuType | None:
    """The type that goes by this name in NVML, DCGM, Slurm or a file; None when unknown."""
    key = _key(name)
    if key in _BY_KEY:
        return _BY_KEY[key]
    for prefix in ("nvidia", "amd", "tesla", "geforce", "gpu"):
        if key.startswith(prefix) and key.removeprefix(prefix) in _BY_KEY:
            return _BY_KEY[key.removeprefix(prefix)]
    return None


def closest(name: str, among: Iterable[str] | None = None) -> str | None:
    """The known name most like this one, for an error that helps."""
    names = sorted(among if among is not None else GPU_TYPES)
    found = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return found[0] if found else None


def get(name: str) -> GpuType:
    """The type of that name; an unknown one is an error that names the nearest."""
    gpu = find(name)
    if gpu is None:
        near = closest(name)
        raise InvalidInput(
            f"GPU type {name!r} is not known",
            todo=f"did you mean {near!r}?" if near else f"known: {', '.join(sorted(GPU_TYPES))}",
        )
    return gpu
