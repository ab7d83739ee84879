"""Telemetry: sources, ingest exactly once behind the contracts, observations."""

from gogh_core.telemetry.agent import AGENT_COLUMNS, Agent, Devices
from gogh_core.telemetry.ingest import ingest
from gogh_core.telemetry.measure import measure
from gogh_core.telemetry.observe import observe
from gogh_core.telemetry.quarantine import Readmission, drop, held, readmit, show
from gogh_core.telemetry.records import Trust, keep_records, record_state, trusted
from gogh_core.telemetry.report import IngestReport, SourceReport
from gogh_core.telemetry.trial import table_of, try_on_file, try_on_store

__all__ = [
    "AGENT_COLUMNS",
    "Agent",
    "Devices",
    "IngestReport",
    "Readmission",
    "SourceReport",
    "Trust",
    "drop",
    "held",
    "ingest",
    "keep_records",
    "measure",
    "observe",
    "readmit",
    "record_state",
    "show",
    "table_of",
    "trusted",
    "try_on_file",
    "try_on_store",
]
