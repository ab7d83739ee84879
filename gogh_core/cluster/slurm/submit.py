"""`gogh submit`: sbatch with the opt-in comment written for people.

A job that may share asks for shards, one that may not for whole GPUs, neither by type; it is
submitted held (the next plan starts it) and may be requeued.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gogh_core.cluster.slurm.commands import Commands
from gogh_core.cluster.slurm.comment import read_comment, write_comment
from gogh_core.errors import ClusterError, InvalidInput
from gogh_core.settings import Settings

__all__ = ["arguments", "submit"]


def arguments(words: Mapping[str, Any], command: Sequence[str], partition: str | None) -> list[str]:
    """What sbatch is called with: the comment of these words, and the script with its own."""
    if not command:
        raise InvalidInput("no script was given", todo="gogh submit --model M SCRIPT [ARGUMENT]…")
    comment = write_comment(words)
    promise = read_comment(comment)
    shares = promise.shareable is not False
    counts = promise.gpu_counts or (1,)
    if shares and counts != (1,):
        raise InvalidInput(
            "a job on several GPUs cannot share them on Slurm", todo="leave out --shareable"
        )
    gres = "shard:1" if shares else f"gpu:{counts[0]}"
    options = ["--parsable", "--hold", "--requeue", f"--gres={gres}", f"--comment={comment}"]
    if partition:
        options.append(f"--partition={partition}")
    return [*options, *command]


def submit(
    settings: Settings,
    words: Mapping[str, Any],
    command: Sequence[str],
    options: Sequence[str] = (),
) -> str:
    """Submit and return the job's number; more options of sbatch go in front."""
    own = arguments(words, command, settings.slurm.partition)
    out = Commands(settings.slurm).do("sbatch", *options, *own, cwd=os.getcwd())
    match = re.match(r"(\d+)", out.strip())
    if match is None:
        raise ClusterError(f"sbatch said {out.strip()[:80]!r}, not the number of a job")
    return match[1]
