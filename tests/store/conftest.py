"""A migrated database is made once and copied for each test."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gogh_core.settings import Settings, load
from gogh_core.store import Store


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without rows."""
    store = Store(load(home=tmp_path_factory.mktemp("migrated")))
    store.migrate()
    return store.path


@pytest.fixture
def store(settings: Settings, migrated: Path) -> Store:
    """A store without rows."""
    settings.home.mkdir(parents=True)
    shutil.copyfile(migrated, settings.database)
    return Store(settings)


@pytest.fixture(scope="session")
def published(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store without rows that is only read, with its snapshot."""
    store = Store(load(home=tmp_path_factory.mktemp("published")))
    shutil.copyfile(migrated, store.path)
    store.samples.mkdir()
    store.publish()
    return store
