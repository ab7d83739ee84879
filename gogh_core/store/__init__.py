"""The store: the one way to the database, its snapshot, its Parquet samples and its queries."""

from gogh_core.store.ageing import AgeReport
from gogh_core.store.database import Store, append_rows, now_utc
from gogh_core.store.queries import Parameter, Query, ask, queries, query_names, run_query
from gogh_core.store.texts import fetch, statement

__all__ = [
    "AgeReport",
    "Parameter",
    "Query",
    "Store",
    "append_rows",
    "ask",
    "fetch",
    "now_utc",
    "queries",
    "query_names",
    "run_query",
    "statement",
]
