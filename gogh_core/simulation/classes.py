"""The classes of jobs that come to the embedded cluster, and what their descriptors declare.

FLOPs are for one sample, forward and backward where it trains (three times forward), from the
models' papers; bytes are the traffic of weights and activations of one sample; memory is weights,
optimiser state and activations. They are rounded: the truth adds what no descriptor tells.
"""

from __future__ import annotations

from dataclasses import dataclass

from gogh_core.domain import Descriptors, JobKind

__all__ = ["CLASSES", "JobClass"]

_GB = 1e9


@dataclass(frozen=True, slots=True)
class JobClass:
    """A class with what its steps cost and how often it comes."""

    descriptors: Descriptors
    host_s: float
    """Time of a step that no GPU shortens: input, launches, synchronisation."""
    sync: float
    """Share of a step that a second GPU adds for exchanging gradients."""
    weight: float
    declares: bool = True
    """Whether its users declare FLOPs, bytes and memory."""

    @property
    def name(self) -> str:
        """As `job_type` in throughput tables."""
        return self.descriptors.job_class


@dataclass(frozen=True, slots=True)
class _Model:
    name: str
    family: str
    kind: JobKind
    precision: str
    parameters: float
    flops: float
    traffic: float
    activations_gb: float
    host_s: float
    sync: float
    weight: float
    batches: tuple[int, ...]
    declares: bool = True


_T, _I = JobKind.TRAINING, JobKind.INFERENCE
_m = _Model
# fmt: off
_MODELS = (
    _Model(
        "ResNet-18", "cnn", _T, "fp32", 11.7e6, 10.9e9, 0.11e9, 0.03, 4e-3, 0.10, 3.0, (32, 128)
    ),
    _m("ResNet-50", "cnn", _T, "fp32", 25.6e6, 24.6e9, 0.42e9, 0.09, 6e-3, 0.12, 3.0, (32, 64)),
    _Model(
        "ResNet-50 AMP", "cnn", _T, "amp", 25.6e6, 24.6e9, 0.26e9, 0.05, 8e-3, 0.14, 2.0, (64, 128)
    ),
    _m("VGG-16", "cnn", _T, "fp32", 138e6, 93e9, 0.55e9, 0.10, 5e-3, 0.35, 1.0, (32, 64)),
    _Model(
        "MobileNetV2", "cnn", _T, "fp32", 3.5e6, 1.8e9, 0.30e9, 0.07, 9e-3, 0.05, 1.5, (64, 128)
    ),
    _m("ViT-B/16", "vit", _T, "amp", 86e6, 105e9, 0.60e9, 0.11, 8e-3, 0.15, 1.5, (32, 64)),
    _m("BERT-base", "bert", _T, "amp", 110e6, 67e9, 0.50e9, 0.10, 9e-3, 0.18, 2.5, (16, 32)),
    _m("BERT-large", "bert", _T, "amp", 340e6, 237e9, 1.40e9, 0.28, 12e-3, 0.25, 1.0, (8, 16)),
    _m("GPT-2 small", "gpt", _T, "amp", 124e6, 762e9, 3.5e9, 1.0, 14e-3, 0.15, 1.5, (4, 8)),
    _Model(
        "GPT-2 medium",
        "gpt",
        _T,
        "amp",
        355e6,
        2.18e12,
        8.0e9,
        2.2,
        18e-3,
        0.20,
        0.8,
        (4, 8),
        False,
    ),
    _m("LSTM-LM", "rnn", _T, "fp32", 34e6, 2.7e9, 0.35e9, 0.02, 11e-3, 0.30, 2.0, (20, 80)),
    _Model(
        "Transformer-base",
        "seq2seq",
        _T,
        "fp32",
        65e6,
        10e9,
        0.20e9,
        0.03,
        10e-3,
        0.20,
        2.0,
        (64, 128),
    ),
    _Model(
        "DLRM",
        "recommendation",
        _T,
        "fp32",
        540e6,
        0.05e9,
        4.0e6,
        0.0002,
        7e-3,
        0.45,
        1.5,
        (2048, 8192),
    ),
    _Model(
        "CycleGAN", "gan", _T, "fp32", 28e6, 1.7e12, 9e9, 2.6, 20e-3, 0.10, 1.0, (1, 2), False
    ),
    _Model(
        "ResNet-50 serving", "cnn", _I, "fp16", 25.6e6, 8.2e9, 0.05e9, 0.01, 2e-3, 0.0, 1.0, (8,)
    ),
    _Model(
        "BERT-base serving", "bert", _I, "fp16", 110e6, 22.5e9, 0.08e9, 0.01, 3e-3, 0.0, 1.2, (8,)
    ),
    _Model(
        "Whisper serving",
        "seq2seq",
        _I,
        "fp16",
        244e6,
        210e9,
        2.5e9,
        0.15,
        15e-3,
        0.0,
        0.8,
        (4,),
    ),
    _m("Llama-7B serving", "gpt", _I, "fp16", 6.7e9, 1.4e12, 15e9, 1.1, 25e-3, 0.0, 0.5, (4,)),
)
# fmt: on


def _of(model: _Model, batch: int) -> JobClass:
    trains = model.kind is JobKind.TRAINING
    state = 16.0 if trains else 2.0
    memory = model.parameters * state + model.activations_gb * _GB * batch
    passes = 12.0 if trains else 2.0
    told = model.declares
    descriptors = Descriptors(
        model=model.name,
        batch_size=batch,
        kind=model.kind,
        family=model.family,
        precision=model.precision,
        parameters=model.parameters,
        flops_per_step=model.flops * batch,
        bytes_per_step=model.traffic * batch + model.parameters * passes,
        memory_bytes=memory,
    )
    return JobClass(descriptors, model.host_s, model.sync, model.weight / len(model.batches), told)


CLASSES: dict[str, JobClass] = {
    entry.name: entry
    for entry in (_of(model, batch) for model in _MODELS for batch in model.batches)
}
