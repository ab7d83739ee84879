"""The README's commands, exactly as they stand, in the folder of somebody who follows it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests.conftest import PROJECT

LEFT_OUT = {
    "make run": "it is `gogh demo`, which tests/e2e/planning/test_demo.py runs",
    "make test": "it runs the tests, this one among them",
}
CASE = PROJECT / "tests/allocation/cases/a_host_who_does_not_consent.json"


def commands() -> list[str]:
    """Lines of the fenced blocks that are commands; what stands behind # is for people."""
    blocks = re.findall(r"^```\n(.*?)^```", (PROJECT / "README.md").read_text(), re.M | re.S)
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if re.match(r"(gogh|make) ?[a-z]*", line)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a demo has run, with the files that the README's reader has."""
    here = tmp_path_factory.mktemp("readme")
    done = run("gogh demo --cycles 1 --home .gogh --json", here)
    assert done.returncode == 0, done.stderr
    rows = [
        {"gpu_type": kind, "job_type": f"ResNet-50 (batch size {size})", "model": "ResNet-50",
         "batch_size": size, "scale_factor": 1, "throughput": speed / size, "unit": "steps/s",
         "feasible": True}
        for kind, speed in (("v100", 400.0), ("k80", 60.0))
        for size in (16, 64)
    ]  # fmt: skip
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), here / "measured.parquet")
    wanted = [{**rows[0], "gpu_type": "p100"}]
    for row in wanted:
        del row["throughput"], row["feasible"]
    pyarrow.csv.write_csv(pa.Table.from_pylist(wanted), here / "wanted.csv")
    shutil.copy(CASE, here / "problem.json")
    return here


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GOGH_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**clean, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def test_the_readme_has_commands_and_the_exceptions_are_among_them() -> None:
    found = commands()
    assert len(found) > 8
    assert set(LEFT_OUT) <= set(found)


@pytest.mark.e2e
@pytest.mark.parametrize("command", [line for line in commands() if line not in LEFT_OUT])
def test_a_command_of_the_readme_does_what_it_says(command: str, folder: Path) -> None:
    done = run(command, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
