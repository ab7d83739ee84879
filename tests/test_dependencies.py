"""What GOGH depends on: licences, pins, and the hashes of the files that set-up installs."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import PROJECT

COPYLEFT = re.compile(
    r"\b([AL]?GPL|GNU|MPL|Mozilla|EPL|Eclipse|CDDL|EUPL|OSL|SSPL|CC-BY-SA|Sleepycat)", re.I
)
# Copyleft that may stay, and why. Whoever adds a line here has read the licence.
ALLOWED = {
    "certifi": "MPL-2.0: copyleft by file, used unchanged; brought by httpx and requests",
    "hypothesis": "MPL-2.0: for tests only, never shipped",
    "orjson": "MPL-2.0 and (Apache-2.0 or MIT): by file, used unchanged; brought by Prefect",
    "pathspec": "MPL-2.0: for checks only (mypy), never shipped",
    "tqdm": "MPL-2.0 and MIT: copyleft by file, used unchanged; brought by Great Expectations",
    "text-unidecode": "Artistic or GPL at our choice: Artistic; brought by python-slugify",
}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def dependencies() -> set[str]:
    """Every installed package that GOGH or one of its extras brings, by canonical name."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    todo = [*project["dependencies"], *(entry for extra in extras for entry in extra)]
    seen: dict[str, set[str]] = {}
    while todo:
        needed = Requirement(todo.pop())
        name = canonical(needed.name)
        if name in seen and needed.extras <= seen[name]:
            continue
        try:
            brings = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        mine = seen.setdefault(name, set())
        mine |= needed.extras
        for text in brings:
            marker = Requirement(text).marker
            if marker is None or any(marker.evaluate({"extra": e}) for e in (*mine, "")):
                todo.append(text)
    return set(seen)


def licence(name: str) -> str:
    """What a package says of its licence: expression, or classifiers and the first line."""
    about = metadata.metadata(name)
    if about.get("License-Expression"):
        return about["License-Expression"]
    listed = about.get_all("Classifier") or ()
    classes = [line.split("::")[-1].strip() for line in listed if line.startswith("License ::")]
    text = (about.get("License") or "").strip().splitlines()
    return "; ".join([*classes, *text[:1]])


def pins(path: Path) -> dict[str, str]:
    found = re.findall(r"^([\w.\-]+)==(\S+)", path.read_text(), re.M)
    return {canonical(name): version for name, version in found}


def test_every_dependency_says_its_licence() -> None:
    names = dependencies()
    assert len(names) > 100
    assert [name for name in sorted(names) if not licence(name)] == []


def test_no_dependency_is_copyleft_without_a_reason() -> None:
    found = {name: licence(name) for name in dependencies()}
    copyleft = {name for name, text in found.items() if COPYLEFT.search(text)}
    assert copyleft - set(ALLOWED) == set(), "read the licence; see ALLOWED"
    assert set(ALLOWED) - copyleft == set(), "no longer needed in ALLOWED"


def test_a_gpl_package_would_be_noticed() -> None:
    for text in ("GPL-3.0-or-later", "GNU Lesser General Public License v3 (LGPLv3)", "AGPL-3.0"):
        assert COPYLEFT.search(text)
    for text in ("MIT", "BSD-3-Clause AND Zlib", "Apache-2.0 WITH LLVM-exception", "PSF-2.0"):
        assert not COPYLEFT.search(text)


def test_no_glpk_in_process_is_pinned() -> None:
    assert "swiglpk" not in pins(PROJECT / "constraints.txt")
    assert "highspy" in pins(PROJECT / "constraints.txt")


def test_every_pin_but_torch_has_hashes() -> None:
    pinned = pins(PROJECT / "constraints.txt")
    path = PROJECT / "constraints-hashes.txt"
    del pinned["torch"]
    assert pins(path) == pinned, "run .ci/hashes"
    for entry in re.split(r"^(?=\S)", path.read_text(), flags=re.M)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


class TestTamperedWheel:
    """A wheel of our own, served from a folder: nothing leaves this machine."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        self.wheel(tmp_path, "good = True\n")
        found = hashlib.sha256(next(tmp_path.glob("*.whl")).read_bytes()).hexdigest()
        (tmp_path / "hashes.txt").write_text(f"goghtoy==1.0 \\\n    --hash=sha256:{found}\n")
        return tmp_path

    def wheel(self, folder: Path, code: str) -> None:
        about = "goghtoy-1.0.dist-info"
        with zipfile.ZipFile(folder / "goghtoy-1.0-py3-none-any.whl", "w") as file:
            file.writestr("goghtoy.py", code)
            file.writestr(
                f"{about}/METADATA", "Metadata-Version: 2.1\nName: goghtoy\nVersion: 1.0\n"
            )
            file.writestr(
                f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            file.writestr(f"{about}/RECORD", "")

    def install(self, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
        where = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PIP_CONFIG_FILE": os.devnull}
        return subprocess.run(
            ["sh", str(PROJECT / ".ci" / "hashed"), sys.executable, str(folder / "hashes.txt")],
            env={**os.environ, **where, "PIP_TARGET": str(folder / "there"), **more},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def test_the_right_file_is_installed_without_a_word(self, folder: Path) -> None:
        done = self.install(folder, HASHES="require")
        assert (done.returncode, done.stderr) == (0, "")
        assert (folder / "there" / "goghtoy.py").exists()

    def test_a_tampered_file_is_refused_where_hashes_are_required(self, folder: Path) -> None:
        self.wheel(folder, "evil = True\n")
        done = self.install(folder, HASHES="require")
        assert done.returncode != 0
        assert "NOT CHECKED" in done.stderr
        assert "goghtoy" in done.stderr
        assert not (folder / "there").exists()

    def test_a_tampered_file_is_named_where_they_are_not(self, folder: Path) -> None:
        self.wheel(folder, "evil = True\n")
        done = self.install(folder, HASHES="")
        assert done.returncode == 0
        assert "NOT CHECKED" in done.stderr
        assert "goghtoy" in done.stderr
