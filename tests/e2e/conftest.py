"""What the end-to-end tests share: one whole stack for all that need no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.stack import Stack, free_port, running


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Server, deployments and one worker on the embedded cluster; started once."""
    home = tmp_path_factory.mktemp("stack")
    with running(home, prefect={"metrics_port": free_port(), "damper_s": 20.0}) as found:
        yield found
