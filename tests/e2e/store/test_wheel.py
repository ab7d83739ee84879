"""SQL, contracts and all are found in a wheel too, where there is no source tree."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]

_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import gogh_core
assert gogh_core.__file__.startswith(sys.argv[1]), gogh_core.__file__
from gogh_core.settings import load
from gogh_core.store import Store, query_names, run_query
store = Store(load(home=sys.argv[2]))
store.migrate()
store.publish()
print(len([run_query(store, name) for name in query_names()]))
"""


@pytest.mark.e2e
def test_a_store_works_from_a_wheel(tmp_path: Path) -> None:
    build = ["-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--quiet"]
    source = tmp_path / "source"
    source.mkdir()
    for path in PROJECT.iterdir():
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    for name in ("gogh_core", "flows", "sql", "data_contracts"):
        for path in (PROJECT / name).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                target = source / path.relative_to(PROJECT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(path.read_bytes())
    subprocess.run(
        [sys.executable, *build, "--wheel-dir", str(tmp_path), str(source)], check=True, timeout=300
    )
    (wheel,) = tmp_path.glob("gogh-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    for path in (PROJECT / "sql").rglob("*.sql"):
        assert str(path.relative_to(PROJECT)) in held
    said = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(wheel), str(tmp_path / "home")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert said.returncode == 0, said.stderr
    assert int(said.stdout) >= 12
