"""The objective of one plan: the request's or the settings', with its curve.

`aim_of` finds the curve in a file, or fetches it from the address that the settings list. What was
fetched is kept below home (`curves/`) and used for `objective.refresh_s`, for as long as the source
is down, and by every increment: those fetch nothing. A person who asks for `cost` or `carbon` where
no curve can be had is told so; the cadence plans for `energy` meanwhile and says that it does.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from gogh_core.cluster import fetch_bytes
from gogh_core.errors import GoghError, InvalidInput
from gogh_core.planning.curves import Curve, CurveKind, read_curve, zone_of
from gogh_core.planning.objectives import Aim
from gogh_core.planning.request import Request
from gogh_core.settings import Settings
from gogh_core.store import file_errors, whole_or_gone

__all__ = ["aim_of"]

MOST_BYTES = 16 << 20
"""Of a curve in a file; an answer may have what any answer may have."""
TRY_AGAIN_S = 300.0
"""A source that was down is left alone for this long."""


def aim_of(settings: Settings, request: Request, now: datetime) -> Aim:
    """What a plan made now minimises; InvalidInput where a person asks for what cannot be had."""
    name = request.objective or settings.objective.name
    horizon_s = settings.objective.horizon_s
    if name not in ("cost", "carbon"):
        return Aim(name, horizon_s=horizon_s)
    kind: CurveKind = "price" if name == "cost" else "carbon"
    try:
        curve, notes = _curve(settings, kind, now, fetch=not request.increment)
    except GoghError as error:
        if request.objective is not None:
            raise
        told = f"no {kind} curve ({error}): planned for energy, not for {name}"
        return Aim("energy", horizon_s=horizon_s, degraded=(told,))
    return Aim(name, curve, horizon_s, notes)


def _curve(
    settings: Settings, kind: CurveKind, now: datetime, *, fetch: bool
) -> tuple[Curve, tuple[str, ...]]:
    source = getattr(settings.objective, kind)
    if source is None:
        raise InvalidInput(
            f"objective.{kind} is not set", where="settings", todo="name a file or an address"
        )
    if source.startswith(("http://", "https://")):
        return _from_address(settings, kind, source, now, fetch=fetch)
    path = settings.below_home(Path(source))
    zone = zone_of(settings.objective.zone)
    return read_curve(_content(path, kind), kind, source=str(path), zone=zone), ()


def _content(path: Path, kind: CurveKind) -> bytes:
    todo = f"see objective.{kind}"
    try:
        if not path.is_file():
            raise InvalidInput("is no file", where=str(path), todo=todo)
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(
            f"cannot be read: {error.strerror}", where=str(path), todo=todo
        ) from error
    if len(raw) > MOST_BYTES:
        raise InvalidInput(f"is larger than {MOST_BYTES >> 20} MiB", where=str(path), todo=todo)
    return raw


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was fetched last, and how the last try ended."""

    address: str = ""
    """Its hash: an address may hold a password."""
    content: str = ""
    fetched_at: str = ""
    tried_at: str = ""
    fault: str = ""

    @classmethod
    def load(cls, path: Path, address: str) -> Self:
        """The copy of that address; an empty one where there is none."""
        try:
            found = cls(**json.loads(path.read_text(encoding="utf-8")))
            base64.b64decode(found.content, validate=True)
            for text in (found.fetched_at, found.tried_at):
                datetime.fromisoformat(text or "2000-01-01")
        except (OSError, ValueError, TypeError, binascii.Error):
            return cls(address)
        return found if found.address == address else cls(address)

    def save(self, path: Path) -> None:
        """Keep it for the plans to come."""
        part = path.with_suffix(".part")
        with file_errors(path), whole_or_gone(part):
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(json.dumps(asdict(self)), encoding="utf-8")
            part.replace(path)

    @property
    def raw(self) -> bytes:
        return base64.b64decode(self.content)

    def old(self, now: datetime, refresh_s: float) -> bool:
        """Whether it is time to fetch it again, and the source may be asked."""
        return _past(self.fetched_at, now, refresh_s) and _past(
            self.tried_at if self.fault else "", now, TRY_AGAIN_S
        )


def _past(moment: str, now: datetime, seconds: float) -> bool:
    """Whether that long has passed since then; a clock that went back counts as passed."""
    if not moment:
        return True
    return not 0 <= (now - datetime.fromisoformat(moment)).total_seconds() < seconds


def _from_address(
    settings: Settings, kind: CurveKind, url: str, now: datetime, *, fetch: bool
) -> tuple[Curve, tuple[str, ...]]:
    rules = settings.objective
    shown, zone = _without_password(url), zone_of(rules.zone)
    path = settings.below_home(Path("curves") / f"{kind}.json")
    kept = _Kept.load(path, hashlib.sha256(url.encode()).hexdigest())
    if fetch and kept.old(now, rules.refresh_s):
        try:
            raw = fetch_bytes(
                url, allow=rules.allow, timeout_s=rules.timeout_s, section="objective"
            )
            curve = read_curve(raw, kind, source=shown, zone=zone)
        except GoghError as error:
            kept = _Kept(kept.address, kept.content, kept.fetched_at, now.isoformat(), str(error))
            kept.save(path)
        else:
            content, at = base64.b64encode(raw).decode(), now.isoformat()
            _Kept(kept.address, content, at, at).save(path)
            return curve, ()
    if not kept.content:
        raise InvalidInput(
            kept.fault or "was not fetched yet", where=f"objective.{kind}", todo="see its source"
        )
    since = f"{datetime.fromisoformat(kept.fetched_at):%Y-%m-%d %H:%M} UTC"
    told = f"the {kind} source is down ({kept.fault}): its answer of {since} counts"
    return read_curve(kept.raw, kind, source=shown, zone=zone), (told,) if kept.fault else ()


def _without_password(url: str) -> str:
    head, mark, rest = url.partition("://")
    return f"{head}{mark}{rest.rpartition('@')[2]}"
