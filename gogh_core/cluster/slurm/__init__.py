"""Slurm: reads squeue and sinfo, drives scontrol (tested on Debian's 22.05)."""

from gogh_core.cluster.slurm.comment import Promise, read_comment, write_comment
from gogh_core.cluster.slurm.manager import SlurmManager
from gogh_core.cluster.slurm.submit import submit

__all__ = ["Promise", "SlurmManager", "read_comment", "submit", "write_comment"]
