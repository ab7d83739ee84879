"""Telemetry: sources, ingest exactly once behind the contracts, observations."""

from gogh_core.telemetry.ingest import ingest
from gogh_core.telemetry.observe import observe
from gogh_core.telemetry.records import Trust, record_state, trusted
from gogh_core.telemetry.report import IngestReport, SourceReport

__all__ = ["IngestReport", "SourceReport", "Trust", "ingest", "observe", "record_state", "trusted"]
