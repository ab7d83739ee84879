"""Descriptors of a user's own model, counted by torch: work and memory of one step."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from gogh_core.errors import InvalidInput
from gogh_core.estimation.facts import BYTES_PER_PARAMETER, CONTEXT_BYTES

__all__ = ["describe_factory", "parse_shape"]


def parse_shape(text: str) -> tuple[int, ...]:
    """`64x3x224x224` as numbers; the first is the batch size."""
    try:
        shape = tuple(int(part) for part in text.lower().split("x"))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise InvalidInput(f"shape {text!r} is not like 64x3x224x224", where="--input")
    return shape


def describe_factory(factory: str, shape: str, *, integers: bool = False) -> dict[str, float]:
    """One training step of `module:function` on an input of that shape, as declared descriptors."""
    size = parse_shape(shape)
    module_name, _, function = factory.partition(":")
    if not module_name or not function:
        raise InvalidInput(f"{factory!r} is not module:function", where="describe")
    sys.path.insert(0, os.getcwd())
    try:
        made = getattr(importlib.import_module(module_name), function)()
    except (ImportError, AttributeError, TypeError) as error:
        raise InvalidInput(f"cannot be built: {error}", where=factory) from error
    finally:
        sys.path.pop(0)
    return _count(made, size, integers=integers, where=factory)


def _count(model: Any, size: tuple[int, ...], *, integers: bool, where: str) -> dict[str, float]:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    if not isinstance(model, torch.nn.Module):
        raise InvalidInput(f"gave a {type(model).__name__}, not a torch module", where=where)
    kept = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += tensor.numel() * tensor.element_size()
        return tensor

    batch = torch.zeros(size, dtype=torch.long) if integers else torch.zeros(size)
    parameters = sum(p.numel() for p in model.parameters())
    counter = FlopCounterMode(display=False)
    try:
        with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            answer = model(batch)
            first = answer[0] if isinstance(answer, tuple) else answer
            if isinstance(first, dict):
                first = next(iter(first.values()))
            first.sum().backward()
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        line = str(error).splitlines()[0]
        raise InvalidInput(f"does not run on this input: {line}", where=where) from error
    return {
        "batch_size": float(size[0]),
        "parameters": float(parameters),
        "flops_per_step": float(counter.get_total_flops()),
        "bytes_per_step": float(4 * kept + 24 * parameters),
        "memory_bytes": float(CONTEXT_BYTES + BYTES_PER_PARAMETER * parameters + kept),
    }
