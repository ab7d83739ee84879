"""The comment by which a Slurm job opts in: its descriptors and its promise.

`gogh model=resnet50 batch_size=64 min_throughput=5.2 shareable`: the word `gogh`, then words with
blanks between them. A value with blanks or other marks is percent-encoded (`write_comment` does
it). The comment is written by anybody who may submit a job, so nothing of it is trusted: what is
not exactly this form is refused with the reason, and never reaches a shell or a query.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote, unquote

from gogh_core.domain import Descriptors, JobKind, utc
from gogh_core.errors import InvalidInput

__all__ = ["Promise", "opts_in", "read_comment", "write_comment"]

# Slurm's own limit.
LONGEST = 1024
_LONGEST_VALUE = 200
_WORD = re.compile(r"([a-z_]+)(?:=([A-Za-z0-9._~%:,+/@()\-]+))?")
_TEXT = ("model", "family", "precision", "unit")
_NUMBERS = ("parameters", "flops_per_step", "bytes_per_step", "memory_bytes")
_AMOUNTS = (
    "min_throughput",
    "total_steps",
    "priority",
    "move_cost_j",
    "surplus_j_per_step",
)
_KNOWN = (
    *_TEXT,
    *_NUMBERS,
    *_AMOUNTS,
    "batch_size",
    "kind",
    "gpus",
    "deadline",
    "shareable",
    "fixed",
)


@dataclass(frozen=True, slots=True)
class Promise:
    """What a comment says of its job."""

    descriptors: Descriptors
    required_throughput: float = 0.0
    unit: str = "steps/s"
    gpu_counts: tuple[int, ...] | None = None
    shareable: bool | Literal["owner"] = False
    movable: bool = True
    priority: float = 1.0
    total_steps: float | None = None
    deadline_at: datetime | None = None
    move_cost_j: float = 0.0
    surplus_j_per_step: float = 0.0


def opts_in(comment: str) -> bool:
    """Whether the comment's first word is `gogh`."""
    return comment[:5] in ("gogh", "gogh ")


def read_comment(comment: str, *, where: str = "comment") -> Promise:
    """The promise; a comment that is not exactly of the form is refused."""
    if len(comment) > LONGEST:
        raise InvalidInput(f"is {len(comment)} characters long, over {LONGEST}", where=where)
    if not opts_in(comment):
        raise InvalidInput("does not begin with the word gogh", where=where)
    words: dict[str, str] = {}
    for word in comment.split(" ")[1:]:
        if not word:
            continue
        match = _WORD.fullmatch(word)
        if match is None:
            raise InvalidInput(f"{_shown(word)} is not of the form name=value", where=where)
        name, value = match[1], match[2]
        if name not in _KNOWN:
            raise InvalidInput(f"{_shown(name)} is not known", where=where, todo=_HELP)
        if name in words:
            raise InvalidInput(f"{name} is given twice", where=where)
        words[name] = _decoded(name, value or "", where)
    try:
        return _promise(words)
    except (ValueError, OverflowError, InvalidInput) as error:
        reason = error.what if isinstance(error, InvalidInput) else str(error)
        raise InvalidInput(reason, where=where, todo=_HELP) from error


_HELP = f"known are {', '.join(_KNOWN)}"


def _shown(text: str) -> str:
    """A stranger's text for a message: short, and without marks that a terminal obeys."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _decoded(name: str, value: str, where: str) -> str:
    try:
        text = unquote(value, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8", where=where) from error
    if len(text) > _LONGEST_VALUE or not text.isprintable():
        raise InvalidInput(f"{name} is too long or has control characters", where=where)
    return text


def _promise(words: Mapping[str, str]) -> Promise:
    if not words.get("model"):
        raise ValueError("model is missing")
    numbers = {name: _number(name, words[name]) for name in _NUMBERS if name in words}
    amounts = {name: _number(name, words[name]) for name in _AMOUNTS if name in words}
    shareable: bool | Literal["owner"] = False
    if "shareable" in words:
        choices: dict[str, bool | Literal["owner"]] = {
            "": True,
            "true": True,
            "false": False,
            "owner": "owner",
        }
        if words["shareable"] not in choices:
            raise ValueError(f"shareable is {_shown(words['shareable'])}")
        shareable = choices[words["shareable"]]
    if words.get("fixed"):
        raise ValueError("fixed takes no value")
    descriptors = Descriptors(
        words["model"],
        _count("batch_size", words["batch_size"]) if "batch_size" in words else None,
        JobKind(words.get("kind", JobKind.TRAINING)),
        words.get("family") or None,
        words.get("precision") or None,
        **numbers,
    )
    return Promise(
        descriptors,
        amounts.get("min_throughput", 0.0),
        words.get("unit") or "steps/s",
        _counts(words["gpus"]) if "gpus" in words else None,
        shareable,
        "fixed" not in words,
        amounts.get("priority", 1.0),
        amounts.get("total_steps"),
        utc(datetime.fromisoformat(words["deadline"])) if "deadline" in words else None,
        amounts.get("move_cost_j", 0.0),
        amounts.get("surplus_j_per_step", 0.0),
    )


def _number(name: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?", text):
        raise ValueError(f"{name} is {_shown(text)}, not a number")
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{name} is {_shown(text)}, not a number")
    return number


def _count(name: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", text) or int(text) == 0:
        raise ValueError(f"{name} is {_shown(text)}, not a whole number from 1")
    return int(text)


def _counts(text: str) -> tuple[int, ...]:
    return tuple(sorted({_count("gpus", part) for part in text.split(",")}))


def write_comment(words: Mapping[str, Any]) -> str:
    """The comment with these words; None is left out, True is the bare word."""
    parts = ["gogh"]
    for name, value in words.items():
        if value is None or value is False:
            continue
        parts.append(name if value is True else f"{name}={quote(str(value), safe='.,:+/@')}")
    comment = " ".join(parts)
    read_comment(comment)
    return comment
