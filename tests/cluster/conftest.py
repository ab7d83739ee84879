"""A store of its own for each test of this room."""

from __future__ import annotations

import pytest

from gogh_core.settings import Settings
from gogh_core.store import Store


@pytest.fixture
def store(settings: Settings) -> Store:
    store = Store(settings)
    store.migrate()
    return store
