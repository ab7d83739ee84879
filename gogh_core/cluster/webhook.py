"""Plans by POST: signed, with an idempotency key, tried again, and the answer checked.

`X-Gogh-Signature: sha256=<hex>` is the HMAC-SHA256 of `<timestamp>.<body>` under the shared
secret; `X-Gogh-Timestamp` is the time of sending, so that a receiver can refuse old requests;
`Idempotency-Key` is the same each time the same document is sent. An answer of 2xx must be JSON
with `"accepted": true` or `false`; 408, 425, 429 and 5xx are tried again, other answers are a
refusal.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable

import httpx

from gogh_core.errors import ActionFailed, ClusterUnavailable, InvalidSettings
from gogh_core.settings import WebhookSettings

__all__ = ["post", "read_answer", "signature"]

_LONGEST_ANSWER = 65536
_AGAIN = (408, 425, 429)


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """What the receiver compares with, in constant time."""
    mac = hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={mac.hexdigest()}"


def read_answer(raw: bytes, *, where: str) -> str:
    """What the site said; nonsense is ClusterUnavailable, a refusal ActionFailed."""
    try:
        answer = json.loads(raw[:_LONGEST_ANSWER].decode())
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
    url = str(settings.url)
    headers = {
        "Content-Type": "application/json",
        "Idempotency-Key": hashlib.sha256(key.encode()).hexdigest(),
        "X-Gogh-Timestamp": timestamp,
        "X-Gogh-Signature": signature(secret, timestamp, body),
    }
    try:
        answer = httpx.post(
            url, content=body, headers=headers, timeout=settings.timeout_s, follow_redirects=False
        )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ClusterUnavailable(f"gave no answer: {type(error).__name__}", where=url) from error
    if answer.status_code in _AGAIN or answer.status_code >= 500:
        raise ClusterUnavailable(f"answered {answer.status_code}", where=url)
    if not answer.is_success:
        raise ActionFailed(f"answered {answer.status_code}", where=url)
    return read_answer(answer.content, where=url)
