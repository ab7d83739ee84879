"""Home and what is below it are GOGH's user's own, unless the operator says otherwise."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gogh_core.errors import StoreError
from gogh_core.settings import load
from gogh_core.store import make_home
from tests.conftest import own_settings


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def gogh(home: Path, *arguments: str, **variables: str) -> None:
    """A command as people give it: with a wide umask of their own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GOGH_")}
    subprocess.run(
        [sys.executable, "-m", "gogh_core.cli", *arguments],
        env={**kept, "GOGH_HOME": str(home), "GOGH_SIMULATION__SERVERS": "2", **variables},
        check=True, capture_output=True, timeout=120, umask=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("umask", "folders", "files"), [("077", 0o700, 0o600), ("027", 0o750, 0o640)]
)
def test_a_command_makes_home_and_files_with_the_rights_of_the_settings(
    tmp_path, umask, folders, files
):
    home = tmp_path / "home"
    variables = {} if umask == "077" else {"GOGH_UMASK": umask}
    gogh(home, "ingest", **variables)
    gogh(home, "snapshot", **variables)
    assert mode(home) == folders
    made = list(home.rglob("*"))
    assert len(made) > 3
    wide = [path for path in made if mode(path) & ~(folders if path.is_dir() else files)]
    assert wide == []


def test_owners_may_be_let_through_to_their_folders_and_see_no_file(tmp_path):
    make_home(own_settings(tmp_path / "home", umask="066"))
    assert mode(tmp_path / "home") == 0o711


def test_a_home_that_was_open_is_closed(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o755)
    make_home(own_settings(home))
    assert mode(home) == 0o700


@pytest.mark.parametrize("kind", ["current folder", "user's home", "sticky"])
def test_a_folder_that_is_more_than_a_home_of_ours_is_left_alone(tmp_path, monkeypatch, kind):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777 if kind == "sticky" else 0o755)
    before = mode(shared)
    if kind == "current folder":
        monkeypatch.chdir(shared)
    if kind == "user's home":
        monkeypatch.setenv("HOME", str(shared))
    make_home(own_settings(shared))
    assert mode(shared) == before


def test_a_file_in_the_place_of_home_is_told_and_left(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    file.chmod(0o644)
    with pytest.raises(StoreError, match="cannot be made: File exists"):
        make_home(own_settings(file))
    assert (mode(file), file.read_text()) == (0o644, "mine")


def test_a_library_leaves_the_umask_of_its_program_alone(tmp_path):
    old = os.umask(0o022)
    try:
        load(home=tmp_path)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(old)
