"""First lines that tell what to do about a failed run."""

from __future__ import annotations

from gogh_core.errors import GoghError, InvalidInput

__all__ = ["advice"]


def advice(error: GoghError) -> str:
    """The first line of a failed run: what to do, then what was wrong."""
    kind = "the form cannot be used" if isinstance(error, InvalidInput) else type(error).__name__
    todo = error.todo or "run `gogh replan --dry-run` to see whether it still holds"
    what = f"{error.where}: {error.what}" if error.where else error.what
    return f"To do: {todo}. Why: {what} ({kind})"
