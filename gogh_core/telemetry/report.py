"""What one ingest did: by source, and as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

__all__ = ["Counts", "IngestReport", "SourceReport"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Where the rows of one source went; `rows_in` is always the sum of the other four."""

    rows_in: int = 0
    rows_clean: int = 0
    rows_quarantined: int = 0
    rows_duplicate: int = 0
    rows_late: int = 0


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What one source brought and what became of it."""

    name: str
    rows_in: int = 0
    rows_clean: int = 0
    rows_quarantined: int = 0
    rows_duplicate: int = 0
    rows_late: int = 0
    unavailable: str | None = None
    refused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    batches: int = 0

    @property
    def ok(self) -> bool:
        """Whether it answered and nothing was refused as a whole."""
        return self.unavailable is None and not self.refused

    def plus(self, counts: Counts, warnings: tuple[str, ...] = ()) -> SourceReport:
        """With one more batch."""
        return replace(
            self,
            rows_in=self.rows_in + counts.rows_in,
            rows_clean=self.rows_clean + counts.rows_clean,
            rows_quarantined=self.rows_quarantined + counts.rows_quarantined,
            rows_duplicate=self.rows_duplicate + counts.rows_duplicate,
            rows_late=self.rows_late + counts.rows_late,
            warnings=tuple(dict.fromkeys((*self.warnings, *warnings))),
            batches=self.batches + 1,
        )


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What one ingest did, by source."""

    sources: tuple[SourceReport, ...]
    observations: int = 0
    skews: Mapping[str, float] | None = None
    """Servers whose clock is off, in seconds (positive: ahead), as corrected."""
    files_removed: int = 0
    """Files of the spool that had been wholly taken in long ago."""

    @property
    def ok(self) -> bool:
        """Whether every source answered and nothing was refused."""
        return all(source.ok for source in self.sources)

    @property
    def rows_in(self) -> int:
        """Rows of all sources."""
        return sum(source.rows_in for source in self.sources)

    @property
    def faults(self) -> tuple[str, ...]:
        """Everything refused or unavailable, one line each."""
        lines = [f"{s.name} unavailable: {s.unavailable}" for s in self.sources if s.unavailable]
        return tuple(lines + [f"{s.name} refused: {r}" for s in self.sources for r in s.refused])

    def to_dict(self) -> dict[str, Any]:
        """As JSON for commands and artifacts."""
        return {
            "ok": self.ok,
            "sources": [asdict(source) for source in self.sources],
            "observations": self.observations,
            "skews": dict(self.skews or {}),
            "files_removed": self.files_removed,
        }
