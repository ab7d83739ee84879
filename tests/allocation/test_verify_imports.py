"""The verifier shares no code with the solver's path: what it imports is listed here."""

from __future__ import annotations

import ast
from pathlib import Path

import gogh_core.allocation

ROOM = Path(gogh_core.allocation.__file__).parent
TYPES = {"problem", "options", "validate"}


def test_the_verifier_knows_the_types_of_a_problem_and_itself_only():
    mine = {path.stem for path in ROOM.glob("verify*.py")}
    assert "verify" in mine
    assert "verify_bound" in mine
    looked = 0
    for name in sorted(mine | TYPES):
        for node in ast.walk(ast.parse((ROOM / f"{name}.py").read_text())):
            if isinstance(node, ast.Import):
                found = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found = [node.module or ""]
            else:
                continue
            for module in found:
                looked += 1
                if module.startswith("gogh_core.allocation"):
                    assert module.rsplit(".", 1)[-1] in mine | TYPES, (name, module)
                elif module.startswith("gogh_core"):
                    assert module in ("gogh_core.domain", "gogh_core.errors"), (name, module)
                else:
                    assert module.split(".")[0] not in {"pyomo", "highspy", "scipy"}
    assert looked > 50
