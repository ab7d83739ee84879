"""Public facts of common model architectures, and what they say about one step.

`resolve` finds the facts that a model's name stands for; `StepFacts` is what estimation uses: work,
traffic and memory of one step, from declared descriptors first and public facts second. Counts are
for one sample of the input named in the comment; multiply-accumulates are of the forward pass.
Sources: torchvision's model pages (parameters, GFLOPS = multiply-accumulates), the papers named
below, and the training scripts that Gavel, Pollux and Zeus publish for their workloads (input
sizes, sequence lengths, number of passes). Activation bytes are what autograd keeps of one sample
in fp32.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gogh_core.domain import Descriptors, JobKind

__all__ = ["FACTS", "ModelFacts", "StepFacts", "resolve", "step_facts"]

GIGA = 1e9
MEGA = 1e6

# What PyTorch and its CUDA context take before a model is loaded (NVML, several driver versions).
CONTEXT_BYTES = 0.7 * GIGA
# Weight, gradient and two moments of Adam in fp32.
BYTES_PER_PARAMETER = 16.0
# 3 x 224 x 224 in fp32.
_IMAGE_BYTES = 602e3


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One architecture with the input it is usually trained on."""

    name: str
    parameters: float
    macs: float
    """Multiply-accumulates of one sample's forward pass."""
    activation_bytes: float
    """Kept for the backward pass, one sample."""
    input_bytes: float
    """What the host prepares and sends, one sample, as it arrives on the GPU."""
    kernels: float
    """Kernels launched in one training step, about: layers times passes plus the optimiser."""
    host_s: float = 0.0
    """Time the host needs in each step on its own account (environments, sampling)."""


def _vision(name: str, m: float, gmacs: float, act_mb: float, layers: float) -> ModelFacts:
    """A torchvision model at 224x224: fp32 input of 602 kB, three kernels a layer and pass."""
    return ModelFacts(name, m * MEGA, gmacs * GIGA, act_mb * MEGA, _IMAGE_BYTES, layers * 10)


def _language(name: str, m: float, tokens: float, layers: float, width: float) -> ModelFacts:
    """A Transformer: a token costs its parameters and attention; about 34 activations wide a layer.

    34 bytes per token, layer and width in fp16 (Korthikanti et al. 2022), so 68 in fp32, plus the
    attention maps; 8 input bytes a token.
    """
    macs = tokens * (m * MEGA + layers * 2 * width * tokens)
    act = tokens * layers * (68 * width + 10 * width / 64 * tokens)
    return ModelFacts(name, m * MEGA, macs, act, tokens * 8, layers * 90)


FACTS: dict[str, ModelFacts] = {
    fact.name: fact
    for fact in (
        # Residual networks on CIFAR (32x32): pytorch-cifar, 0.56 GMACs, 11.2 M parameters.
        ModelFacts("resnet18-cifar", 11.2e6, 0.56e9, 7e6, 12.3e3, 620),
        ModelFacts("resnet50-cifar", 23.5e6, 1.3e9, 26e6, 12.3e3, 1600),
        # Residual networks at 224x224: torchvision.
        _vision("resnet18", 11.7, 1.82, 25, 62),
        _vision("resnet34", 21.8, 3.67, 38, 110),
        _vision("resnet50", 25.6, 4.09, 95, 160),
        _vision("resnet101", 44.5, 7.80, 140, 310),
        _vision("resnet152", 60.2, 11.5, 200, 460),
        _vision("resnext50", 25.0, 4.23, 120, 160),
        _vision("wide-resnet50", 68.9, 11.4, 130, 160),
        _vision("densenet121", 8.0, 2.83, 130, 360),
        _vision("vgg11", 132.9, 7.61, 60, 25),
        _vision("vgg16", 138.4, 15.5, 105, 40),
        _vision("vgg19", 143.7, 19.6, 115, 45),
        _vision("alexnet", 61.1, 0.71, 6, 20),
        _vision("googlenet", 6.6, 1.50, 45, 190),
        _vision("inception3", 27.2, 5.71, 100, 280),
        _vision("squeezenet", 1.2, 0.82, 40, 65),
        _vision("mobilenetv2", 3.5, 0.30, 70, 155),
        _vision("mobilenetv3", 5.5, 0.22, 45, 180),
        _vision("shufflenetv2", 2.3, 0.15, 25, 170),
        _vision("efficientnet-b0", 5.3, 0.39, 80, 240),
        _vision("efficientnet-b4", 19.3, 4.39, 330, 470),
        _vision("efficientnet-b7", 66.3, 37.8, 1500, 820),
        _vision("regnet", 19.4, 3.18, 75, 170),
        _vision("convnext-tiny", 28.6, 4.46, 140, 180),
        _vision("convnext-base", 88.6, 15.4, 290, 340),
        _vision("vit-b16", 86.6, 17.6, 190, 150),
        _vision("vit-l16", 304.3, 61.6, 500, 290),
        _vision("deit-s", 22.1, 4.6, 95, 150),
        _vision("swin-t", 28.3, 4.49, 150, 260),
        # Detection and segmentation. YOLOv3 (Redmon 2018): 61.9 M, 65.9 GFLOPs at 416x416 (halved).
        ModelFacts("yolov3", 61.9e6, 33e9, 420e6, 2.1e6, 3200),
        ModelFacts("yolov5s", 7.2e6, 8.3e9, 200e6, 4.9e6, 2200),
        ModelFacts("ssd", 35.6e6, 35e9, 300e6, 1.1e6, 900),
        ModelFacts("maskrcnn", 44.4e6, 134e9, 1800e6, 9.6e6, 4000),
        ModelFacts("unet", 31.0e6, 55e9, 600e6, 0.8e6, 700),
        ModelFacts("deeplabv3", 42.0e6, 178e9, 900e6, 3.2e6, 1800),
        # CycleGAN (Zhu et al. 2017) at 256x256, batch 1: generator 11.4 M and 57 GMACs, six passes
        # a step; discriminator 2.8 M and 3.1 GMACs, six passes.
        ModelFacts("cyclegan", 28.3e6, 360e9, 2300e6, 1.6e6, 4500),
        ModelFacts("dcgan", 6.3e6, 1.1e9, 20e6, 49e3, 500),
        ModelFacts("stylegan2", 59e6, 90e9, 900e6, 0.8e6, 3500),
        # Word language model (PyTorch examples): LSTM 2 x 200, 35 tokens, vocabulary 33,278.
        ModelFacts("lstm-lm", 14.0e6, 0.257e9, 16e6, 560, 900),
        # GNMT: 4 x 1024 LSTM each side, 25 tokens (MLPerf reference).
        ModelFacts("gnmt", 160e6, 5.5e9, 60e6, 400, 6000),
        # Transformer base (Vaswani et al. 2017) on Multi30k: 49 M used per token, 30 tokens a pair.
        ModelFacts("transformer-base", 54e6, 1.5e9, 45e6, 480, 4200),
        ModelFacts("transformer-big", 213e6, 6.2e9, 100e6, 480, 4200),
        # BERT (Devlin et al. 2018), GPT-2 (Radford et al. 2019), others: parameters, layers, width.
        _language("bert-base", 110, 384, 12, 768),
        _language("bert-large", 335, 384, 24, 1024),
        _language("bert-sentence", 110, 128, 12, 768),
        _language("distilbert", 66, 128, 6, 768),
        _language("roberta-base", 125, 384, 12, 768),
        _language("electra", 14, 128, 12, 256),
        _language("albert", 110, 384, 12, 768),
        _language("gpt2", 124, 1024, 12, 768),
        _language("gpt2-medium", 355, 1024, 24, 1024),
        _language("gpt2-large", 774, 1024, 36, 1280),
        _language("gpt2-xl", 1558, 1024, 48, 1600),
        _language("opt-1.3b", 1300, 2048, 24, 2048),
        _language("t5-small", 60, 512, 12, 512),
        _language("t5-base", 220, 512, 24, 768),
        _language("llama-7b", 6700, 2048, 32, 4096),
        _language("llama-13b", 13000, 2048, 40, 5120),
        _language("llama-1b", 1200, 2048, 16, 2048),
        # DeepSpeech2 (Amodei et al. 2015): five bidirectional GRU layers of 800, 10 s of speech.
        ModelFacts("deepspeech2", 38e6, 13e9, 160e6, 640e3, 9000),
        _language("wav2vec2", 95, 500, 12, 768),
        _language("whisper-small", 244, 1500, 24, 768),
        # Recommendation. NCF (He et al. 2017): NeuMF, MLP of 256-128-64, one interaction a sample.
        ModelFacts("ncf", 31.8e6, 0.12e6, 4e3, 16, 150),
        # Recoder autoencoder on MovieLens-20M: 20,108 items in and out, hidden 200, dense rows.
        ModelFacts("autoencoder-ml20m", 8.1e6, 8.1e6, 400e3, 80.4e3, 120),
        ModelFacts("dlrm", 540e6, 2.2e6, 40e3, 300, 250),
        # A3C on Atari: 20 environment steps of 4 frames by 4 workers at about 3,000 frames/s.
        ModelFacts("a3c", 0.6e6, 1.0e6, 0.5e6, 28e3, 900, host_s=0.11),
        ModelFacts("ppo", 1.7e6, 10e6, 0.5e6, 28e3, 400, host_s=0.05),
        # Graph and point-cloud networks.
        ModelFacts("gcn", 0.1e6, 0.4e9, 30e6, 1e6, 60),
        ModelFacts("pointnet", 3.5e6, 0.45e9, 12e6, 12e3, 250),
    )
}

# Patterns on the name with every mark removed, the first that matches wins.
_PATTERNS: tuple[tuple[str, str], ...] = (
    (r"resnet50.*cifar", "resnet50-cifar"),
    (r"resnet18.*imagenet", "resnet18"),
    (r"^(resnet18|cifar10|resnet18.*cifar)", "resnet18-cifar"),
    (r"wide_?resnet", "wide-resnet50"),
    (r"resnext", "resnext50"),
    (r"resnet34", "resnet34"),
    (r"resnet101", "resnet101"),
    (r"resnet152", "resnet152"),
    (r"resnet50|^imagenet", "resnet50"),
    (r"densenet", "densenet121"),
    (r"vgg11", "vgg11"),
    (r"vgg19", "vgg19"),
    (r"vgg", "vgg16"),
    (r"alexnet", "alexnet"),
    (r"googlenet|inceptionv1", "googlenet"),
    (r"inception", "inception3"),
    (r"squeezenet", "squeezenet"),
    (r"mobilenetv?3", "mobilenetv3"),
    (r"mobilenet", "mobilenetv2"),
    (r"shufflenet", "shufflenetv2"),
    (r"efficientnet.*b?7", "efficientnet-b7"),
    (r"efficientnet.*b?4", "efficientnet-b4"),
    (r"efficientnet", "efficientnet-b0"),
    (r"regnet", "regnet"),
    (r"convnext.*(base|b$)", "convnext-base"),
    (r"convnext", "convnext-tiny"),
    (r"vit.*l", "vit-l16"),
    (r"deit", "deit-s"),
    (r"^vit|visiontransformer", "vit-b16"),
    (r"swin", "swin-t"),
    (r"yolov?[58x]", "yolov5s"),
    (r"yolo", "yolov3"),
    (r"maskrcnn|fasterrcnn", "maskrcnn"),
    (r"^ssd", "ssd"),
    (r"unet", "unet"),
    (r"deeplab", "deeplabv3"),
    (r"cyclegan", "cyclegan"),
    (r"stylegan", "stylegan2"),
    (r"dcgan|^gan$", "dcgan"),
    (r"gnmt|seq2seq", "gnmt"),
    (r"^lm$|lstm|wikitext|languagemodel", "lstm-lm"),
    (r"transformer.*big", "transformer-big"),
    (r"^transformer|multi30k", "transformer-base"),
    (r"distilbert", "distilbert"),
    (r"albert", "albert"),
    (r"roberta|xlmr", "roberta-base"),
    (r"electra", "electra"),
    (r"bert.*(sentiment|sst|mnli|cola|imdb)", "bert-sentence"),
    (r"bert.*large", "bert-large"),
    (r"bert", "bert-base"),
    (r"gpt2.*(xl|15b)", "gpt2-xl"),
    (r"gpt2.*large", "gpt2-large"),
    (r"gpt2.*medium", "gpt2-medium"),
    (r"gpt", "gpt2"),
    (r"^opt", "opt-1.3b"),
    (r"t5.*small", "t5-small"),
    (r"^t5|flant5", "t5-base"),
    (r"llama.*13b", "llama-13b"),
    (r"llama.*1b", "llama-1b"),
    (r"llama|mistral|vicuna", "llama-7b"),
    (r"deepspeech", "deepspeech2"),
    (r"wav2vec|hubert", "wav2vec2"),
    (r"whisper", "whisper-small"),
    (r"ncf|neumf", "ncf"),
    (r"recommend|recoder|autoencoder", "autoencoder-ml20m"),
    (r"dlrm|deepfm|widedeep", "dlrm"),
    (r"a3c|a2c|impala", "a3c"),
    (r"ppo|dqn", "ppo"),
    (r"pointnet", "pointnet"),
    (r"gcn|graphsage|gat$", "gcn"),
)
_COMPILED = tuple((re.compile(pattern), name) for pattern, name in _PATTERNS)


# Variants for CIFAR look at 32x32 pixels instead of 224x224 and leave out two halvings of them
# (two strides of two): a sixteenfold of the (32/224) squared that is left. It is what the two
# residual networks above need, within 6 %.
_CIFAR_SHARE, _CIFAR_INPUT = 16 * (32 / 224) ** 2, 12.3e3


def _on_cifar(facts: ModelFacts) -> ModelFacts:
    if facts.input_bytes != _IMAGE_BYTES:
        return facts
    return replace(
        facts,
        macs=facts.macs * _CIFAR_SHARE,
        activation_bytes=facts.activation_bytes * _CIFAR_SHARE,
        input_bytes=_CIFAR_INPUT,
    )


def resolve(model: str) -> ModelFacts | None:
    """The facts a model's name stands for; None when the name is not known."""
    key = re.sub(r"[^a-z0-9]", "", model.lower())
    for pattern, name in _COMPILED:
        if pattern.search(key):
            return _on_cifar(FACTS[name]) if "cifar" in key else FACTS[name]
    return None


@dataclass(frozen=True, slots=True)
class StepFacts:
    """One step of a job: what it computes, moves and holds. None: nobody knows."""

    flops: float
    traffic_bytes: float
    input_bytes: float
    kernels: float
    host_s: float
    memory_bytes: float | None
    memory_declared: bool


def step_facts(job: Descriptors, *, use_public: bool = True) -> StepFacts | None:
    """Declared descriptors first, public facts for what is not declared; None without either."""
    public = resolve(job.model) if use_public else None
    batch = float(job.batch_size or 1)
    passes = 1.0 if job.kind is JobKind.INFERENCE else 3.0
    flops = job.flops_per_step
    if flops is None and public is not None:
        flops = 2 * passes * public.macs * batch
    if flops is None:
        return None
    held = public.activation_bytes * batch * (1 if passes > 1 else 0.1) if public else None
    parameters = job.parameters or (public.parameters if public else None)
    traffic = job.bytes_per_step
    if traffic is None:
        # Each kept activation is written once and read about three times; weights likewise.
        traffic = 4 * (held or flops / 100) + 24 * (parameters or 0.0)
    memory = job.memory_bytes
    if memory is None and held is not None and parameters is not None:
        each = BYTES_PER_PARAMETER if passes > 1 else 4.0
        memory = CONTEXT_BYTES + each * parameters + held
    return StepFacts(
        flops=flops,
        traffic_bytes=traffic,
        input_bytes=public.input_bytes * batch if public else 0.0,
        kernels=(public.kernels if public else 500.0) * (1.0 if passes > 1 else 0.25),
        host_s=public.host_s if public else 0.0,
        memory_bytes=memory,
        memory_declared=job.memory_bytes is not None,
    )
