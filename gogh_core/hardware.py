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
from dataclasses import dataclass, replace

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
    aliases: tuple[str, ...] = ()

    def peak_tflops(self, precision: str | None) -> float:
        """Peak for a precision as jobs declare it; unknown or missing counts as fp32."""
        if precision in ("fp16", "bf16", "amp", "mixed", "int8", "fp8"):
            return self.fp16_tflops
        if precision == "tf32":
            return self.tf32_tflops
        return self.fp32_tflops


_FACTS: tuple[GpuType, ...] = (
    # Tesla K80 datasheet (one card = two GK210; figures here for ONE GK210, as NVML counts them):
    # 12 GB, 240 GB/s, 4.37 TFLOPS FP32 with boost (half of 8.74), board 300 W / 2.
    GpuType("k80", "nvidia", 2014, 12, 240, 4.37, 4.37, 4.37, 27, 150, 100),
    # Tesla M60 datasheet (one of two GM204): 8 GB, 160 GB/s, 4.82 TFLOPS, board 300 W / 2.
    GpuType("m60", "nvidia", 2015, 8, 160, 4.82, 4.82, 4.82, 14, 150, 100),
    # Tesla P4 datasheet: 8 GB, 192 GB/s, 5.5 TFLOPS, 75 W.
    GpuType("p4", "nvidia", 2016, 8, 192, 5.5, 5.5, 5.5, 7, 75, 60),
    # Tesla P100 SXM2 datasheet: 16 GB, 732 GB/s, 10.6 FP32, 21.2 FP16, 300 W (PCIe: 250 W).
    GpuType("p100", "nvidia", 2016, 16, 732, 10.6, 21.2, 10.6, 30, 300, 150),
    # Tesla P40 datasheet: 24 GB, 346 GB/s, 12 FP32, 250 W.
    GpuType("p40", "nvidia", 2016, 24, 346, 12, 12, 12, 10, 250, 125),
    # GeForce GTX 1080 Ti product page: 11 GB, 484 GB/s, 11.3 FP32, 250 W.
    GpuType("gtx1080ti", "nvidia", 2017, 11, 484, 11.3, 11.3, 11.3, 10, 250, 125),
    # Tesla V100 SXM2 datasheet: 16/32 GB, 900 GB/s, 15.7 FP32, 125 FP16 tensor, 300 W.
    GpuType("v100", "nvidia", 2017, 16, 900, 15.7, 125, 15.7, 40, 300, 100),
    # The same with 32 GB.
    GpuType("v100-32gb", "nvidia", 2018, 32, 900, 15.7, 125, 15.7, 42, 300, 100),
    # Tesla T4 datasheet: 16 GB, 320 GB/s, 8.1 FP32, 65 FP16 tensor, 70 W.
    GpuType("t4", "nvidia", 2018, 16, 320, 8.1, 65, 8.1, 10, 70, 60),
    # Quadro RTX 6000 datasheet: 24 GB, 672 GB/s, 16.3 FP32, 130.5 FP16 tensor, 260 W.
    GpuType("rtx6000", "nvidia", 2018, 24, 672, 16.3, 130.5, 16.3, 15, 260, 100),
    # GeForce RTX 2080 Ti product page: 11 GB, 616 GB/s, 13.4 FP32, 107.6 FP16 tensor, 250 W.
    GpuType("rtx2080ti", "nvidia", 2018, 11, 616, 13.4, 107.6, 13.4, 11, 250, 100),
    # A100 datasheet, SXM4: 40 GB, 1555 GB/s, 19.5 FP32, 156 TF32, 312 FP16 tensor, 400 W.
    GpuType("a100", "nvidia", 2020, 40, 1555, 19.5, 312, 156, 52, 400, 100),
    # A100 datasheet, 80 GB: 2039 GB/s.
    GpuType("a100-80gb", "nvidia", 2021, 80, 2039, 19.5, 312, 156, 60, 400, 100),
    # GeForce RTX 3090 product page: 24 GB, 936 GB/s, 35.6 FP32, 71 TF32 halved, 142 FP16, 350 W.
    GpuType("rtx3090", "nvidia", 2020, 24, 936, 35.6, 142, 35.6, 20, 350, 100),
    # A40 datasheet: 48 GB, 696 GB/s, 37.4 FP32, 74.8 TF32, 149.7 FP16 tensor, 300 W.
    GpuType("a40", "nvidia", 2020, 48, 696, 37.4, 149.7, 74.8, 28, 300, 100),
    # RTX A6000 datasheet: 48 GB, 768 GB/s, 38.7 FP32, 77.4 TF32, 154.8 FP16 tensor, 300 W.
    GpuType("rtxa6000", "nvidia", 2020, 48, 768, 38.7, 154.8, 77.4, 22, 300, 100),
    # A10 datasheet: 24 GB, 600 GB/s, 31.2 FP32, 62.5 TF32, 125 FP16 tensor, 150 W.
    GpuType("a10", "nvidia", 2021, 24, 600, 31.2, 125, 62.5, 17, 150, 100),
    # A30 datasheet: 24 GB, 933 GB/s, 10.3 FP32, 82 TF32, 165 FP16 tensor, 165 W.
    GpuType("a30", "nvidia", 2021, 24, 933, 10.3, 165, 82, 28, 165, 100),
    # L4 datasheet (dense): 24 GB, 300 GB/s, 30.3 FP32, 60 TF32, 121 FP16 tensor, 72 W.
    GpuType("l4", "nvidia", 2023, 24, 300, 30.3, 121, 60, 13, 72, 40),
    # L40S datasheet (dense): 48 GB, 864 GB/s, 91.6 FP32, 183 TF32, 362 FP16 tensor, 350 W.
    GpuType("l40s", "nvidia", 2023, 48, 864, 91.6, 362, 183, 33, 350, 100),
    # RTX 4090, Ada whitepaper: 24 GB, 1008 GB/s, 82.6 FP32, 165 FP16, 450 W.
    GpuType("rtx4090", "nvidia", 2022, 24, 1008, 82.6, 165, 82.6, 20, 450, 150),
    # H100 SXM datasheet (dense): 80 GB, 3350 GB/s, 67 FP32, 494 TF32, 989 FP16 tensor, 700 W.
    GpuType("h100", "nvidia", 2022, 80, 3350, 67, 989, 494, 70, 700, 200),
    # H100 PCIe datasheet (dense): 80 GB, 2000 GB/s, 51 FP32, 378 TF32, 756 FP16 tensor, 350 W.
    GpuType("h100-pcie", "nvidia", 2022, 80, 2000, 51, 756, 378, 48, 350, 200),
    # H200 SXM datasheet: 141 GB, 4800 GB/s, compute as H100 SXM, 700 W.
    GpuType("h200", "nvidia", 2023, 141, 4800, 67, 989, 494, 75, 700, 200),
    # DGX B200 datasheet, one GPU (dense): 180 GB, 7700 GB/s, 75 FP32, 1125 TF32, 2250 FP16, 1000 W.
    GpuType("b200", "nvidia", 2024, 180, 7700, 75, 2250, 1125, 140, 1000, 200),
    # Instinct MI100 datasheet: 32 GB, 1229 GB/s, 23.1 FP32, 46.1 FP32 matrix, 184.6 FP16, 300 W.
    GpuType("mi100", "amd", 2020, 32, 1229, 23.1, 184.6, 46.1, 35, 300, 100),
    # Instinct MI250X datasheet, one of two dies: 64 GB, 1638 GB/s, 23.9 FP32, 47.9 matrix, 191.5
    # FP16, board 560 W / 2.
    GpuType("mi250x", "amd", 2021, 64, 1638, 23.9, 191.5, 47.9, 45, 280, 100),
    # MI300X datasheet (dense): 192 GB, 5300 GB/s, 163.4 FP32, 653.7 TF32, 1307 FP16, 750 W.
    GpuType("mi300x", "amd", 2023, 192, 5300, 163.4, 1307.4, 653.7, 140, 750, 250),
    # Tesla K40 datasheet: 12 GB, 288 GB/s, 5.0 FP32 with boost, 235 W.
    GpuType("k40", "nvidia", 2013, 12, 288, 5, 5, 5, 20, 235, 150),
    # Tesla M40 datasheet: 12 GB, 288 GB/s, 6.8 FP32, 250 W.
    GpuType("m40", "nvidia", 2015, 12, 288, 6.8, 6.8, 6.8, 15, 250, 150),
    # GeForce GTX 1070 product page: 8 GB, 256 GB/s, 6.5 FP32, 150 W.
    GpuType("gtx1070", "nvidia", 2016, 8, 256, 6.5, 6.5, 6.5, 8, 150, 75),
    # GeForce GTX 1080 product page: 8 GB, 320 GB/s, 8.9 FP32, 180 W.
    GpuType("gtx1080", "nvidia", 2016, 8, 320, 8.9, 8.9, 8.9, 8, 180, 90),
    # TITAN X (Pascal) product page: 12 GB, 480 GB/s, 11.0 FP32, 250 W.
    GpuType("titanx", "nvidia", 2016, 12, 480, 11, 11, 11, 10, 250, 125),
    # TITAN Xp product page: 12 GB, 548 GB/s, 12.1 FP32, 250 W.
    GpuType("titanxp", "nvidia", 2017, 12, 548, 12.1, 12.1, 12.1, 10, 250, 125),
    # TITAN V product page: 12 GB, 653 GB/s, 14.9 FP32, 110 FP16, 250 W.
    GpuType("titanv", "nvidia", 2017, 12, 653, 14.9, 110, 14.9, 25, 250, 100),
    # TITAN RTX product page: 24 GB, 672 GB/s, 16.3 FP32, 130.5 FP16, 280 W.
    GpuType("titanrtx", "nvidia", 2018, 24, 672, 16.3, 130.5, 16.3, 15, 280, 100),
    # Turing whitepaper, RTX 2060: 6 GB, 336 GB/s, 6.5 FP32, 51.6 FP16, 160 W.
    GpuType("rtx2060", "nvidia", 2019, 6, 336, 6.5, 51.6, 6.5, 9, 160, 100),
    # Turing whitepaper, RTX 2070: 8 GB, 448 GB/s, 7.5 FP32, 59.7 FP16, 175 W.
    GpuType("rtx2070", "nvidia", 2018, 8, 448, 7.5, 59.7, 7.5, 10, 175, 100),
    # Turing whitepaper, RTX 2080: 8 GB, 448 GB/s, 10.1 FP32, 80.5 FP16, 215 W.
    GpuType("rtx2080", "nvidia", 2018, 8, 448, 10.1, 80.5, 10.1, 11, 215, 100),
    # GeForce GTX 1660 Ti product page: 6 GB, 288 GB/s, 5.4 FP32, 10.9 FP16, 120 W.
    GpuType("gtx1660ti", "nvidia", 2019, 6, 288, 5.4, 10.9, 5.4, 8, 120, 70),
    # GeForce RTX 3060 product page: 12 GB, 360 GB/s, 12.7 FP32, 51 FP16, 170 W.
    GpuType("rtx3060", "nvidia", 2021, 12, 360, 12.7, 51, 12.7, 13, 170, 100),
    # Ampere GA102 whitepaper, RTX 3070: 8 GB, 448 GB/s, 20.3 FP32, 81.3 FP16, 220 W.
    GpuType("rtx3070", "nvidia", 2020, 8, 448, 20.3, 81.3, 20.3, 12, 220, 100),
    # Ampere GA102 whitepaper, RTX 3080: 10 GB, 760 GB/s, 29.8 FP32, 119 FP16, 320 W.
    GpuType("rtx3080", "nvidia", 2020, 10, 760, 29.8, 119, 29.8, 18, 320, 100),
    # GeForce RTX 3080 Ti product page: 12 GB, 912 GB/s, 34.1 FP32, 136 FP16, 350 W.
    GpuType("rtx3080ti", "nvidia", 2021, 12, 912, 34.1, 136, 34.1, 18, 350, 100),
    # GeForce RTX 4070 product page: 12 GB, 504 GB/s, 29.1 FP32, 58.3 FP16, 200 W.
    GpuType("rtx4070", "nvidia", 2023, 12, 504, 29.1, 58.3, 29.1, 12, 200, 100),
    # Ada whitepaper, RTX 4080: 16 GB, 717 GB/s, 48.7 FP32, 97.5 FP16, 320 W.
    GpuType("rtx4080", "nvidia", 2022, 16, 717, 48.7, 97.5, 48.7, 15, 320, 150),
    # Blackwell RTX whitepaper, RTX 5090: 32 GB, 1792 GB/s, 104.8 FP32, 209.5 FP16, 575 W.
    GpuType("rtx5090", "nvidia", 2025, 32, 1792, 104.8, 209.5, 104.8, 25, 575, 400),
    # Quadro P4000 datasheet: 8 GB, 243 GB/s, 5.3 FP32, 105 W.
    GpuType("p4000", "nvidia", 2017, 8, 243, 5.3, 5.3, 5.3, 6, 105, 60),
    # Quadro P5000 datasheet: 16 GB, 288 GB/s, 8.9 FP32, 180 W.
    GpuType("p5000", "nvidia", 2016, 16, 288, 8.9, 8.9, 8.9, 8, 180, 90),
    # Quadro P6000 datasheet: 24 GB, 432 GB/s, 12.0 FP32, 250 W.
    GpuType("p6000", "nvidia", 2016, 24, 432, 12, 12, 12, 10, 250, 125),
    # Quadro RTX 4000 datasheet: 8 GB, 416 GB/s, 7.1 FP32, 57 FP16, 160 W.
    GpuType("rtx4000", "nvidia", 2018, 8, 416, 7.1, 57, 7.1, 10, 160, 100),
    # Quadro RTX 5000 datasheet: 16 GB, 448 GB/s, 11.2 FP32, 89.2 FP16, 230 W.
    GpuType("rtx5000", "nvidia", 2018, 16, 448, 11.2, 89.2, 11.2, 12, 230, 100),
    # Quadro RTX 8000 datasheet: 48 GB, 672 GB/s, 16.3 FP32, 130.5 FP16, 260 W.
    GpuType("rtx8000", "nvidia", 2018, 48, 672, 16.3, 130.5, 16.3, 18, 260, 100),
    # RTX A4000 datasheet (dense): 16 GB, 448 GB/s, 19.2 FP32, 76.7 FP16, 140 W.
    GpuType("rtxa4000", "nvidia", 2021, 16, 448, 19.2, 76.7, 38.3, 12, 140, 100),
    # RTX A5000 datasheet (dense): 24 GB, 768 GB/s, 27.8 FP32, 111 FP16, 230 W.
    GpuType("rtxa5000", "nvidia", 2021, 24, 768, 27.8, 111, 55.6, 17, 230, 100),
    # RTX 6000 Ada datasheet (dense): 48 GB, 960 GB/s, 91.1 FP32, 364 FP16, 300 W.
    GpuType("rtx6000ada", "nvidia", 2022, 48, 960, 91.1, 364, 182, 22, 300, 100),
    # A2 datasheet (dense): 16 GB, 200 GB/s, 4.5 FP32, 18 FP16, 60 W.
    GpuType("a2", "nvidia", 2021, 16, 200, 4.5, 18, 9, 8, 60, 40),
    # L40 datasheet (dense): 48 GB, 864 GB/s, 90.5 FP32, 181 FP16, 300 W.
    GpuType("l40", "nvidia", 2022, 48, 864, 90.5, 181, 90.5, 33, 300, 100),
    # H20 as published by vendors of servers (dense): 96 GB, 4000 GB/s, 44 FP32, 148 FP16, 400 W.
    GpuType("h20", "nvidia", 2023, 96, 4000, 44, 148, 74, 70, 400, 200),
    # GH200 datasheet (dense), HBM3: 96 GB, 4000 GB/s, 67 FP32, 989 FP16, 700 W.
    GpuType("gh200", "nvidia", 2023, 96, 4000, 67, 989, 494, 75, 700, 200),
    # Instinct MI50 datasheet: 16 GB, 1024 GB/s, 13.3 FP32, 26.5 FP16, 300 W.
    GpuType("mi50", "amd", 2018, 16, 1024, 13.3, 26.5, 13.3, 20, 300, 100),
    # Instinct MI60 datasheet: 32 GB, 1024 GB/s, 14.7 FP32, 29.5 FP16, 300 W.
    GpuType("mi60", "amd", 2018, 32, 1024, 14.7, 29.5, 14.7, 20, 300, 100),
    # Instinct MI210 datasheet: 64 GB, 1638 GB/s, 22.6 FP32, 181 FP16, 300 W.
    GpuType("mi210", "amd", 2021, 64, 1638, 22.6, 181, 45.3, 40, 300, 100),
    # Instinct MI325X datasheet (dense): 256 GB, 6000 GB/s, 163.4 FP32, 1307.4 FP16, 1000 W.
    GpuType("mi325x", "amd", 2024, 256, 6000, 163.4, 1307.4, 653.7, 150, 1000, 250),
)

# Other names, as drivers, schedulers and papers spell them.
_ALIASES: dict[str, tuple[str, ...]] = {
    "k80": ("gk210",),
    "p100": (
        "tesla p100-sxm2-16gb",
        "tesla p100-pcie-16gb",
        "tesla p100-pcie-12gb",
    ),
    "gtx1080ti": ("1080ti",),
    "v100": (
        "tesla v100-sxm2-16gb",
        "tesla v100-pcie-16gb",
        "tesla v100-sxm3-32gb",
        "tesla v100-fhhl-16gb",
        "v100-16gb",
        "v100m16",
    ),
    "v100-32gb": (
        "tesla v100-sxm2-32gb",
        "tesla v100-pcie-32gb",
        "tesla v100-dgxs-32gb",
        "v100m32",
    ),
    "rtx6000": ("quadro rtx 6000",),
    "rtx2080ti": ("2080ti",),
    "a100": (
        "nvidia a100-sxm4-40gb",
        "nvidia a100-pcie-40gb",
        "a100-40gb",
    ),
    "a100-80gb": (
        "nvidia a100-sxm4-80gb",
        "nvidia a100 80gb pcie",
        "a100-80g",
        "a800",
    ),
    "rtx3090": ("3090",),
    "rtxa6000": ("a6000",),
    "a10": ("nvidia a10g",),
    "rtx4090": ("4090",),
    "h100": (
        "nvidia h100 80gb hbm3",
        "h100-sxm5-80gb",
        "h100-80gb",
        "h800",
    ),
    "h100-pcie": ("h100-pcie-80gb",),
    "h200": ("h200-141gb",),
    "b200": ("b200-180gb",),
    "mi100": ("amd instinct mi100",),
    "mi250x": (
        "amd instinct mi250x",
        "mi250",
    ),
    "mi300x": (
        "amd instinct mi300x",
        "mi300",
    ),
    "k40": (
        "tesla k40m",
        "k40c",
    ),
    "m40": ("tesla m40 24gb",),
    "gtx1070": ("1070",),
    "gtx1080": ("1080",),
    "titanx": ("titanxpascal",),
    "rtx2060": ("2060",),
    "rtx2070": ("2070",),
    "rtx2080": ("2080",),
    "gtx1660ti": ("1660ti",),
    "rtx3060": ("3060",),
    "rtx3070": ("3070",),
    "rtx3080": ("3080",),
    "rtx3080ti": ("3080ti",),
    "rtx4070": ("4070",),
    "rtx4080": ("4080",),
    "rtx5090": ("5090",),
    "p4000": ("quadro p4000",),
    "p5000": ("quadro p5000",),
    "p6000": ("quadro p6000",),
    "rtx4000": ("quadro rtx 4000",),
    "rtx5000": ("quadro rtx 5000",),
    "rtx8000": ("quadro rtx 8000",),
    "rtxa4000": ("a4000",),
    "rtxa5000": ("a5000",),
    "rtx6000ada": ("rtx 6000 ada generation",),
    "gh200": (
        "gh200 480gb",
        "gh200-96gb",
    ),
    "mi50": ("instinct mi50",),
    "mi60": ("instinct mi60",),
    "mi210": ("instinct mi210",),
    "mi325x": ("instinct mi325x",),
}
_ALL = tuple(replace(gpu, aliases=_ALIASES.get(gpu.name, ())) for gpu in _FACTS)

GPU_TYPES: dict[str, GpuType] = {gpu.name: gpu for gpu in _ALL}


def _key(name: str) -> str:
    """Case, blanks and marks do not tell GPU types apart."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


_MAKERS = ("gpu", "nvidia", "amd", "tesla", "geforce")


def _bare(name: str) -> str:
    """The key without who made it: "NVIDIA GeForce RTX 3090", "GeForce RTX 3090", "RTX3090"."""
    key = _key(name)
    for maker in _MAKERS:
        key = key.removeprefix(maker) or key
    return key


_BY_KEY = {_bare(alias): gpu for gpu in _ALL for alias in (gpu.name, *gpu.aliases)}


def find(name: str) -> GpuType | None:
    """The type that goes by this name in NVML, DCGM, Slurm or a file; None when unknown."""
    return _BY_KEY.get(_bare(name))


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
