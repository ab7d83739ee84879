"""Every package exports exactly what its `__init__` offers, and nobody goes past a front door."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = sorted(
    path.parent for top in ("gogh_core", "flows") for path in (PROJECT / top).rglob("__init__.py")
)
MODULES = sorted(path for top in ("gogh_core", "flows") for path in (PROJECT / top).rglob("*.py"))
ROOMS = sorted(path.parent.name for path in (PROJECT / "gogh_core").glob("*/__init__.py"))


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(PROJECT).parts)


def offered(tree: ast.Module, package: str) -> set[str]:
    """Public names that are made here or taken over from the package's own modules."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_") or name == "__version__"}


def exported(tree: ast.Module) -> list[str] | None:
    """What stands in `__all__`."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            found: list[str] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            return found
    return None


@pytest.mark.parametrize("package", PACKAGES, ids=dotted)
def test_what_is_exported_is_exactly_what_is_offered(package: Path) -> None:
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    names = exported(tree)
    assert names is not None, "it has no __all__"
    assert len(names) == len(set(names))
    assert set(names) == offered(tree, dotted(package))


def _door(room: Path) -> list[str]:
    door = room / "__init__.py"
    return exported(ast.parse(door.read_text(encoding="utf-8"))) or [] if door.exists() else []


def trespasses(path: Path) -> list[str]:
    """Imports that reach into another room."""
    parts = path.relative_to(PROJECT).parts
    own = parts[1] if parts[0] == "gogh_core" and len(parts) > 2 else ""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module]
            if node.module.startswith("gogh_core."):
                room = PROJECT.joinpath(*node.module.split("."))
                modules += [
                    f"{node.module}.{alias.name}"
                    for alias in node.names
                    if (room / f"{alias.name}.py").exists() and alias.name not in _door(room)
                ]
        for module in modules:
            way = module.split(".")
            if way[0] == "gogh_core" and len(way) > 2 and way[1] in ROOMS and way[1] != own:
                found.append(f"line {node.lineno}: {module}")  # type: ignore[attr-defined]
    return found


def test_nobody_goes_past_a_front_door() -> None:
    found = {dotted(path): trespasses(path) for path in MODULES}
    assert {path: where for path, where in found.items() if where} == {}
