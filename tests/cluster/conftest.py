"""A store of its own for each test of this room, copied from one that was migrated once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gogh_core.settings import Settings, load
from gogh_core.store import Store


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = Store(load(home=tmp_path_factory.mktemp("migrated")))
    store.migrate()
    return store.path


@pytest.fixture
def store(settings: Settings, migrated: Path) -> Store:
    store = Store(settings)
    store.path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(migrated, store.path)
    return store
