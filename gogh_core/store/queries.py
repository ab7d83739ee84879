"""Named queries: `sql/queries/<name>.sql`, run on the snapshot with parameters that have defaults.

The first comment of a file says what one row is. A parameter is declared in a line such as
`-- parameter price_per_kwh DOUBLE 0.30`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from gogh_core.errors import InvalidInput, StoreError
from gogh_core.store.faults import is_damage
from gogh_core.store.people import answer
from gogh_core.store.texts import Text, texts

if TYPE_CHECKING:
    from gogh_core.store.database import Store

__all__ = ["Parameter", "Query", "ask", "queries", "query_names", "run_query"]

_PARAMETER = re.compile(r"^--\s*parameter\s+(\w+)\s+(DOUBLE|BIGINT|VARCHAR)\s+(.*)$", re.MULTILINE)
_KINDS: dict[str, type[float] | type[int] | type[str]] = {
    "DOUBLE": float,
    "BIGINT": int,
    "VARCHAR": str,
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query, with the value it has when nothing is given."""

    name: str
    kind: str
    default: float | int | str


@dataclass(frozen=True, slots=True)
class Query:
    """One named query."""

    name: str
    about: str
    parameters: tuple[Parameter, ...]
    sql: str

    def bind(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every parameter with its value, given or default."""
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                raise InvalidInput(
                    f"has no parameter {name!r}",
                    where=f"query {self.name}",
                    todo=f"it has {', '.join(known) or 'none'}",
                )
        return {
            name: _typed(parameter, given.get(name, parameter.default), self.name)
            for name, parameter in known.items()
        }


def queries() -> tuple[Query, ...]:
    """All named queries, by name."""
    return tuple(_parse(text) for text in texts("queries"))


def query_names() -> tuple[str, ...]:
    """Their names."""
    return tuple(text.name for text in texts("queries"))


def run_query(store: Store, name: str, /, **parameters: Any) -> pa.Table:
    """The answer of a named query on the snapshot, as Arrow."""
    query = _find(name)
    bound = query.bind(parameters)
    with store.snapshot() as connection:
        try:
            return answer(connection, query.sql, bound, store.settings.sql, where=f"query {name}")
        except duckdb.Error as error:
            if is_damage(error):
                raise
            raise StoreError(_first(error), where=f"query {name}") from error


def ask(store: Store, sql: str) -> pa.Table:
    """The answer of one SELECT of a person on the snapshot, as Arrow; nothing else is run."""
    try:
        parts = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise InvalidInput(_first(error), where="query") from error
    if len(parts) != 1 or parts[0].type != duckdb.StatementType.SELECT:
        raise InvalidInput(
            "is not one SELECT", where="query", todo="the snapshot can only be read, one at a time"
        )
    with store.snapshot() as connection:
        try:
            return answer(connection, sql, {}, store.settings.sql, where="query")
        except duckdb.Error as error:
            if is_damage(error):
                raise
            raise InvalidInput(_first(error), where="query") from error


def _find(name: str) -> Query:
    for text in texts("queries"):
        if text.name == name:
            return _parse(text)
    near = difflib.get_close_matches(name, query_names(), n=1)
    todo = f"did you mean {near[0]}?" if near else "`gogh query` lists them all"
    raise InvalidInput(f"there is no query {name!r}", todo=todo)


def _parse(text: Text) -> Query:
    parameters = tuple(
        _declared(name, kind, raw.strip(), text.name)
        for name, kind, raw in _PARAMETER.findall(text.sql)
    )
    about: list[str] = []
    for line in text.sql.splitlines():
        if not line.startswith("--") or _PARAMETER.match(line):
            break
        about.append(line.removeprefix("--").strip())
    return Query(text.name, " ".join(about), parameters, text.sql)


def _declared(name: str, kind: str, raw: str, query: str) -> Parameter:
    return Parameter(name, kind, _typed(Parameter(name, kind, 0), raw, query))


def _typed(parameter: Parameter, value: Any, query: str) -> float | int | str:
    try:
        return _KINDS[parameter.kind](value)
    except (TypeError, ValueError):
        raise InvalidInput(
            f"{parameter.name} is {value!r}, not a {parameter.kind}", where=f"query {query}"
        ) from None


def _first(error: duckdb.Error) -> str:
    return " ".join(str(error).strip().split("\n\n")[0].split())
