"""A journal of 10,000 actions."""

from __future__ import annotations

import pytest

from gogh_core.bench.journal import journal_load
from gogh_core.store import fetch


@pytest.mark.e2e
def test_ten_thousand_actions_are_all_in_the_journal(settings, store) -> None:
    done = journal_load(settings, 10_000)
    assert done.report.state == "done"
    assert done.report.confirmed == 10_000
    for record in done.report.records:
        assert record.sent_at is not None
        assert record.settled_at is not None
    with store.read() as connection:
        rows = fetch(connection, "cluster_executions", limit=1).to_pylist()
    assert rows[0]["actions"] == rows[0]["confirmed"] == 10_000
