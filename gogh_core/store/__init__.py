"""The store: the one way to the database, its snapshot, its Parquet samples and its queries."""

from gogh_core.store.ageing import AgeReport
from gogh_core.store.database import Glance, Store, append_rows
from gogh_core.store.faults import file_errors
from gogh_core.store.files import make_home, now_utc, whole_or_gone
from gogh_core.store.people import bounded_process
from gogh_core.store.queries import Parameter, Query, ask, queries, query_names, run_query
from gogh_core.store.texts import fetch, fetch_rows, fill, run, statement

__all__ = [
    "AgeReport",
    "Glance",
    "Parameter",
    "Query",
    "Store",
    "append_rows",
    "ask",
    "bounded_process",
    "fetch",
    "fetch_rows",
    "file_errors",
    "fill",
    "make_home",
    "now_utc",
    "queries",
    "query_names",
    "run",
    "run_query",
    "statement",
    "whole_or_gone",
]
