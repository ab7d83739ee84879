"""The error tree is the one drawn at its top, and every error is one clear line."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from gogh_core import errors
from gogh_core.errors import GoghError, InvalidInput, InvalidPlan, StoreLocked


def drawn() -> dict[str, str]:
    """Each class with its parent, from the drawing."""
    parents: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"^([│├└─ ]*)([A-Z]\w+)(\s|$)", line)
        if match and (match[1] or match[2] == "GoghError"):
            depth = len(match[1]) // 4
            parents[match[2]] = above[depth - 1] if depth else "Exception"
            above[depth:] = [match[2]]
    return parents


def real() -> dict[str, str]:
    parents = {}
    for name, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, GoghError) and not name.startswith("_"):
            (parent,) = kind.__bases__
            while parent.__name__.startswith("_"):
                (parent,) = parent.__bases__
            parents[name] = parent.__name__
    return parents


def test_the_tree_is_as_drawn() -> None:
    assert drawn() == real()


def test_every_error_is_exported() -> None:
    assert set(errors.__all__) == set(real())


def test_an_error_says_what_where_and_what_to_do() -> None:
    error = StoreLocked("held by process 7", where="gogh.duckdb", todo="wait for it to end")
    assert str(error) == "gogh.duckdb: held by process 7; wait for it to end"
    assert str(GoghError("just this")) == "just this"


def test_all_faults_are_listed() -> None:
    error = InvalidPlan(["a is missing", "b is missing"], where="plan.json")
    assert str(error) == "plan.json: plan cannot be used: 2 faults: a is missing; b is missing"
    assert error.faults == ("a is missing", "b is missing")


@pytest.mark.parametrize("name", sorted(real()))
def test_errors_are_one_line_of_ours(name: str) -> None:
    kind = getattr(errors, name)
    faults = name in ("InvalidProblem", "InvalidPlan", "InvalidCatalog", "InvalidContract")
    error = kind(["x"]) if faults else kind("x", where="here", todo="do that")
    assert "\n" not in str(error)
    assert isinstance(error, GoghError)


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("what", where="here", todo="do that"),
        InvalidPlan(["a", "b"], where="plan.json"),
    ],
)
def test_an_error_survives_another_process(error: GoghError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_an_error_never_tells_the_password_of_an_address() -> None:
    error = GoghError("no answer from http://ada:secret@host:9/x", where="https://tok@host/")
    assert str(error) == "https://***@host/: no answer from http://***@host:9/x"
    assert "secret" not in repr(error.args)
