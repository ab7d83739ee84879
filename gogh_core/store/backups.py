"""Backups: a folder with a consistent copy of the database and its samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gogh_core.store.database import Store

__all__ = ["backup", "restore"]


def backup(store: Store, to: Path) -> Path:
    """Write a backup."""
    raise NotImplementedError


def restore(store: Store, source: Path) -> None:
    """Restore one."""
    raise NotImplementedError
