"""P1 and P2: small torch networks that correct the process's beliefs.

A job is a row of tokens, one for each column. A token holds what the process believes of the three
quantities (and how surely), what simple methods say instead, how much was measured, and facts of
job and column. A network answers for each token with a correction of each quantity in units of its
spread, and a factor for that spread. Feed-forward, recurrent and Transformer variants take and give
the same; torch is imported only when a network is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gogh_core.estimation.beliefs import Beliefs
from gogh_core.estimation.jobset import JobSet
from gogh_core.estimation.roofline import column_speed

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["FEATURES", "KINDS", "OUTPUTS", "Kind", "build", "run", "tokens"]

Array = np.ndarray[Any, Any]
Kind = Literal["feed-forward", "gru", "transformer"]
KINDS: tuple[Kind, ...] = ("feed-forward", "gru", "transformer")

FEATURES = 24
OUTPUTS = 6
# The largest correction, in spreads of the process.
REACH = 1.5


def tokens(beliefs: Beliefs, jobs: JobSet, who: Array) -> Array:
    """What the networks see, [asked jobs, columns, FEATURES], all within -3 to 3."""
    mean, sd = beliefs.mean[:, who], np.sqrt(beliefs.variance[:, who])
    count, columns = mean.shape[1:]
    seen = beliefs.observed[:, who]
    centre = np.where(np.isnan(beliefs.centre), np.nanmean(np.append(beliefs.centre, 0.0)),
                      beliefs.centre)  # fmt: skip
    out = np.zeros((count, columns, FEATURES), np.float32)
    speed = column_speed(beliefs.columns)
    family = jobs.families[who][:, None] == jobs.families[None]
    known = (beliefs.observed[0] > 0).any(axis=1)
    siblings = (family & known[None]).sum(axis=1) - known[who]
    batch = np.nan_to_num(jobs.log_batch)
    apart = np.where(family & known[None], np.abs(batch[who][:, None] - batch[None]), 9.0)
    apart[np.arange(count), who] = 9.0
    roof = beliefs.roofline[who]
    parts: list[Array] = [
        (mean[0] - centre) / 3,
        np.log(sd[0]),
        (beliefs.simple[0][who] - mean[0]) / np.maximum(sd[0], 0.05) / 2,
        np.where(np.isnan(roof), 0.0, np.nan_to_num(roof - mean[0])) / 2,
        mean[0] - mean[0].mean(axis=1, keepdims=True),
        seen[0] > 0,
        mean[1] * 4,
        np.log(sd[1]) + 2,
        (beliefs.simple[1][who] - mean[1]) / np.maximum(sd[1], 0.01) / 2,
        np.log1p(seen[1]) / 2,
        mean[2] * 4,
        np.log(sd[2]) + 2,
        (beliefs.simple[2][who] - mean[2]) / np.maximum(sd[2], 0.01) / 2,
        np.log1p(seen[2]) / 2,
        beliefs.cell[who][..., 0] - 1,
        beliefs.cell[who][..., 1] - 1,
    ]
    by_column = [speed - speed.mean(), beliefs.ratio * 2 - 1, np.log(beliefs.ratio_variance) + 4]
    by_job = [
        np.log1p(siblings) / 2,
        np.minimum(apart.min(axis=1), 4.0) / 2,
        jobs.has_facts[who],
        np.log1p((seen[0] > 0).sum(axis=1)),
        np.log1p(known.sum()) * np.ones(count) / 3,
    ]
    for i, part in enumerate(parts):
        out[..., i] = part
    for i, part in enumerate(by_column):
        out[..., len(parts) + i] = part[None]
    for i, part in enumerate(by_job):
        out[..., len(parts) + len(by_column) + i] = part[:, None]
    return np.clip(np.nan_to_num(out), -3, 3)


def build(kind: Kind, *, width: int = 48, seed: int = 0) -> nn.Module:
    """A fresh network of a kind; its first answer is no correction at all."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(seed)

    class Row(nn.Module):
        """Tokens in, corrections out; `middle` is what the kinds differ in."""

        def __init__(self) -> None:
            super().__init__()
            self.enter = nn.Linear(FEATURES, width)
            if kind == "feed-forward":
                self.middle: nn.Module = nn.Sequential(
                    nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, width), nn.GELU()
                )
            elif kind == "gru":
                self.middle = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
            else:
                layer = nn.TransformerEncoderLayer(
                    width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True
                )
                self.middle = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.leave = nn.Linear(width, OUTPUTS)
            nn.init.zeros_(self.leave.weight)
            nn.init.zeros_(self.leave.bias)

        def forward(self, rows: Tensor) -> Tensor:
            hidden = torch.nn.functional.gelu(self.enter(rows))
            if kind == "feed-forward":
                pooled = hidden.mean(dim=1, keepdim=True).expand_as(hidden)
                hidden = self.middle(torch.cat([hidden, pooled], dim=-1))
            elif kind == "gru":
                hidden = self.middle(hidden)[0] + hidden
            else:
                hidden = self.middle(hidden)
            answer = torch.tanh(self.leave(hidden))
            return answer

    return Row()


def run(network: nn.Module, rows: Array) -> tuple[Array, Array]:
    """Corrections in spreads and log factors of spreads, each [3, jobs, columns]."""
    import torch

    torch.set_num_threads(1)
    if not len(rows):
        empty = np.zeros((3, 0, rows.shape[1]))
        return empty, empty
    with torch.no_grad():
        answer = network(torch.from_numpy(np.ascontiguousarray(rows))).numpy()
    shift = REACH * np.moveaxis(answer[..., :3], -1, 0)
    return shift.astype(float), np.moveaxis(answer[..., 3:], -1, 0).astype(float)
