"""The page of contract runs: one HTML file without scripts that people can open."""

from __future__ import annotations

from html import escape

import pyarrow as pa

from gogh_core.store import Store, fetch

__all__ = ["page", "recent_runs"]

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;color:#1c2733}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #dde3ea;vertical-align:top}
td.n{text-align:right}.ok{color:#1b6e3c}.warn{color:#8a5a00}.bad{color:#a3201d}"""


def recent_runs(store: Store, *, limit: int = 50) -> pa.Table:
    """Every expectation of the last runs, newest first."""
    with store.read() as connection:
        return fetch(connection, "contracts_recent", limit=limit)


def page(store: Store, *, limit: int = 50) -> str:
    """The last runs as one HTML page: what was checked, what failed, what is held."""
    rows = recent_runs(store, limit=limit).to_pylist()
    with store.read() as connection:
        held = fetch(connection, "contracts_held").to_pylist()
        refused = fetch(connection, "contracts_refused", limit=limit).to_pylist()
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>Data contracts</title>",
        f"<style>{_STYLE}</style></head><body><h1>Data contracts</h1>",
        _table(
            "Held in quarantine",
            ("table", "reason", "rows"),
            [(row["table_name"], row["reason"], row["rows"]) for row in held],
        ),
        _table(
            "Refused batches",
            ("when", "source", "table", "why"),
            [(r["ingested_at"], r["source"], r["table_name"], r["detail"]) for r in refused],
        ),
    ]
    runs: dict[str, list[dict[str, object]]] = {}
    for row in rows:
        runs.setdefault(row["run_id"], []).append(row)
    for checks in runs.values():
        first = checks[0]
        title = f"{first['table_name']} at {_when(first['run_at'])}: {first['sources']}"
        parts.append(_run(title, checks))
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _when(value: object) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}Z" if hasattr(value, "strftime") else str(value)


def _table(title: str, head: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    if not rows:
        return f"<h2>{escape(title)}</h2><p class=ok>none</p>"
    cells = "".join(
        "<tr>" + "".join(f"<td>{escape(_when(cell))}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<h2>{escape(title)}</h2><table><tr>{names}</tr>{cells}</table>"


def _run(title: str, checks: list[dict[str, object]]) -> str:
    lines = []
    for check in checks:
        good = bool(check["success"])
        kind = "ok" if good else "warn" if check["level"] == "warn" else "bad"
        word = "holds" if good else "warned" if check["level"] == "warn" else "failed"
        observed = check["observed"] if check["observed"] is not None else ""
        lines.append(
            f"<tr><td class={kind}>{word}</td><td>{escape(str(check['expectation']))}</td>"
            f"<td>{escape(str(check['column_name'] or ''))}</td>"
            f"<td class=n>{check['rows_failed']}</td><td class=n>{check['rows_checked']}</td>"
            f"<td>{escape(str(observed))}</td></tr>"
        )
    names = ("", "expectation", "column", "failed", "rows", "observed")
    head = "<tr>" + "".join(f"<th>{name}</th>" for name in names) + "</tr>"
    return f"<h2>{escape(title)}</h2><table>{head}{''.join(lines)}</table>"
