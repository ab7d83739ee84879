"""Plans by POST: signed, with an idempotency key, tried again, and the answer checked.

Signed as the Standard Webhooks specification has it (version 1.0.0, symmetric), so that receivers
have libraries: `webhook-id` is the same each time the same document is sent, `webhook-timestamp`
is the time of sending, `webhook-signature: v1,<base64>` is the HMAC-SHA256 of
`<id>.<timestamp>.<body>` under the key of `whsec_<base64>`. An answer of 2xx must be JSON with
`"accepted": true` or `false`; 408, 425, 429 and 5xx are tried again, other answers are a refusal.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable

from gogh_core.cluster.outbound import LONGEST_ANSWER, send
from gogh_core.errors import ActionFailed, ClusterUnavailable, InvalidSettings
from gogh_core.settings import WebhookSettings

__all__ = ["post", "read_answer", "signature"]

_AGAIN = (408, 425, 429)
_DEEPEST = 32
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.?)*+"?|[\[{\]}]', re.DOTALL)
_KEY_BYTES = range(24, 65)
"""What the specification allows."""


def signature(secret: str, ident: str, timestamp: str, body: bytes) -> str:
    """What the receiver compares with, in constant time."""
    signed = f"{ident}.{timestamp}.".encode() + body
    mac = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(mac).decode()}"


def _key(secret: str) -> bytes:
    head, _, encoded = secret.partition("_")
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if head != "whsec" or len(key) not in _KEY_BYTES:
        raise InvalidSettings(
            "is not whsec_ and the base64 of 24 to 64 bytes",
            where="webhook.secret",
            todo='`echo "whsec_$(openssl rand -base64 32)"` makes one',
        )
    return key


def read_answer(raw: bytes, *, where: str) -> str:
    """What the site said; nonsense is ClusterUnavailable, a refusal ActionFailed."""
    try:
        if len(raw) > LONGEST_ANSWER or _depth(raw) > _DEEPEST:
            raise ValueError("too long or too deep")
        answer = json.loads(raw.decode())
        accepted = answer["accepted"]
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterUnavailable(
            "the answer is no acknowledgement",
            where=where,
            todo='it has to be JSON with "accepted": true or false',
        ) from error
    said = " ".join(str(answer.get("message") or "").split())[:200]
    if accepted is True:
        return f"accepted{': ' if said else ''}{said}"
    if accepted is False:
        raise ActionFailed(f"the site refused{': ' if said else ''}{said}", where=where)
    raise ClusterUnavailable('"accepted" is neither true nor false', where=where)


def _depth(raw: bytes) -> int:
    """How deep lists and objects are nested; nesting without end would end the process.

    A string always matches, closed or not, and never again: the time is linear.
    """
    deepest = depth = 0
    for sign in _BRACKETS.findall(raw):
        if sign in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif sign in (b"]", b"}"):
            depth -= 1
    return deepest


def post(
    settings: WebhookSettings,
    text: str,
    key: str,
    *,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> str:
    """Post a document; what the endpoint said. Twice is harmless: the key is the same."""
    if settings.url is None or settings.secret is None:
        raise InvalidSettings(
            "webhook.secret is missing", todo="set webhook.secret (GOGH_WEBHOOK__SECRET)"
        )
    body = text.encode()
    wait_s = 0.2
    for attempt in range(settings.retries + 1):
        try:
            return _once(settings, settings.secret.get_secret_value(), body, key, str(int(clock())))
        except ClusterUnavailable:
            if attempt == settings.retries:
                raise
        sleep(wait_s)
        wait_s = min(10.0, wait_s * 2)
    raise AssertionError("unreachable")


def _once(settings: WebhookSettings, secret: str, body: bytes, key: str, timestamp: str) -> str:
    url, digest = str(settings.url), hashlib.sha256(key.encode()).hexdigest()
    ident = f"msg_{digest}"
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": digest,
        "webhook-id": ident,
        "webhook-timestamp": timestamp,
        "webhook-signature": signature(secret, ident, timestamp, body),
    }
    answer = send(url, body, headers, allow=settings.allow, timeout_s=settings.timeout_s)
    if answer.status in _AGAIN or answer.status >= 500:
        raise ClusterUnavailable(f"answered {answer.status}", where=url)
    if not 200 <= answer.status < 300:
        raise ActionFailed(f"answered {answer.status}", where=url)
    return read_answer(answer.content, where=url)
