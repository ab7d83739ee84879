"""Facts of GPU types, and the names they go by."""

from __future__ import annotations

import inspect
import re

import pytest

from gogh_core import hardware
from gogh_core.errors import InvalidInput
from gogh_core.hardware import GPU_TYPES, GpuType, closest, find, get


def test_there_are_at_least_eighteen_from_k80_to_b200() -> None:
    assert len(GPU_TYPES) >= 18
    assert {"k80", "v100", "a100", "h100", "b200", "mi300x"} <= set(GPU_TYPES)


@pytest.mark.parametrize("gpu", GPU_TYPES.values(), ids=lambda gpu: gpu.name)
def test_figures_are_plausible(gpu: GpuType) -> None:
    assert 2010 < gpu.year < 2030
    assert 0 < gpu.idle_w < gpu.min_limit_w <= gpu.max_w <= 1500
    assert 4 <= gpu.memory_gb <= 512
    assert 100 <= gpu.bandwidth_gbs <= 20_000
    assert 0 < gpu.fp32_tflops <= gpu.tf32_tflops <= gpu.fp16_tflops


def test_every_figure_names_its_source() -> None:
    source = inspect.getsource(hardware)
    table = source[source.index("_FACTS: tuple") : source.index("_ALIASES: dict")]
    before = re.split(r"^    GpuType\(", table, flags=re.MULTILINE)[:-1]
    assert len(before) == len(GPU_TYPES)
    assert all(part.rstrip().splitlines()[-1].lstrip().startswith("#") for part in before)


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("Tesla K80", "k80"),
        ("Tesla P100-PCIE-16GB", "p100"),
        ("Tesla T4", "t4"),
        ("AMD Instinct MI300X", "mi300x"),
        ("V100-SXM2-16GB", "v100"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA GeForce RTX 2080", "rtx2080"),
        ("NVIDIA TITAN V", "titanv"),
        ("Quadro P4000", "p4000"),
        ("v100", "v100"),
        ("V100", "v100"),
    ],
)
def test_names_as_drivers_and_schedulers_spell_them(spelt: str, name: str) -> None:
    found = find(spelt)
    assert found is not None
    assert found.name == name or found.name.startswith(name)


def test_no_two_types_share_a_name() -> None:
    seen: dict[str, str] = {}
    for gpu in GPU_TYPES.values():
        for alias in (gpu.name, *gpu.aliases):
            key = re.sub(r"[^a-z0-9]", "", alias.lower())
            assert seen.setdefault(key, gpu.name) == gpu.name, alias


def test_an_unknown_type_names_the_nearest() -> None:
    assert find("v1000") is None
    with pytest.raises(InvalidInput, match="'v1000' is not known; did you mean 'v100'"):
        get("v1000")
    with pytest.raises(InvalidInput, match="known: "):
        get("abacus")
    assert closest("k81", ["k80", "t4"]) == "k80"


def test_peak_by_precision() -> None:
    v100 = get("v100")
    assert v100.peak_tflops("amp") == v100.fp16_tflops
    assert v100.peak_tflops("tf32") == v100.tf32_tflops
    assert v100.peak_tflops(None) == v100.peak_tflops("fp32") == v100.fp32_tflops
