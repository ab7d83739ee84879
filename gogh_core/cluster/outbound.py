"""One request to an address that the operator allows: bounded in bytes and in time.

The address is checked after DNS has answered, on the very address that is connected to, so that a
name cannot point elsewhere between look and connection. Nothing is followed elsewhere (redirects,
proxies of the environment). The time-out spans the whole exchange: names, connection, TLS, request
and answer, however slowly each byte comes.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import ipaddress
import queue
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit

from gogh_core.errors import ActionFailed, ClusterUnavailable, GoghError, InvalidSettings

__all__ = ["LONGEST_ANSWER", "Answer", "fetch_bytes", "forbidden", "send"]

LONGEST_ANSWER = 1 << 20
"""Bytes of an answer; a longer one is refused."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Where clouds answer their own machines: credentials for whoever asks.
_METADATA = tuple(
    ipaddress.ip_address(text)
    for text in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back."""

    status: int
    content: bytes


def send(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    allow: Sequence[str] = (),
    timeout_s: float,
    method: str = "POST",
    section: str = "webhook",
) -> Answer:
    """Send the body; ClusterUnavailable without a whole answer, ActionFailed when not allowed.

    `section` has the settings that errors point to.
    """
    target, networks = _target(url, section), _networks(allow, section)
    post = _Request(target, networks, timeout_s, method, section)
    outcome: queue.SimpleQueue[Answer | Exception] = queue.SimpleQueue()

    def exchange() -> None:
        try:
            outcome.put(post.exchange(body, headers))
        except Exception as error:  # noqa: BLE001 - raised again by the caller's thread
            outcome.put(error)

    # Neither a name server nor a drop of one byte a second can hold the caller longer.
    threading.Thread(target=exchange, name=section, daemon=True).start()
    where = _shown(target)
    try:
        found = outcome.get(timeout=timeout_s)
    except queue.Empty:
        post.cut()
        raise ClusterUnavailable(
            f"gave no whole answer within {timeout_s:g} s", where=where, todo=f"{section}.timeout_s"
        ) from None
    if isinstance(found, GoghError):
        raise found
    if isinstance(found, OSError | http.client.HTTPException | UnicodeError):
        raise ClusterUnavailable(f"gave no answer: {type(found).__name__}", where=where) from found
    if isinstance(found, Exception):
        raise found
    return found


def fetch_bytes(url: str, *, allow: Sequence[str], timeout_s: float, section: str) -> bytes:
    """What a GET of that address answers, within the same limits; any answer but 200 is none."""
    answer = send(url, b"", {}, allow=allow, timeout_s=timeout_s, method="GET", section=section)
    if answer.status != 200:
        raise ClusterUnavailable(f"answered {answer.status}", where=_shown(_target(url, section)))
    return answer.content


def forbidden(
    address: Address, networks: Sequence[Network], host: str, section: str = "webhook"
) -> str | None:
    """Why nothing is sent to that address of `host`; None when it may be."""
    if any(address in network for network in networks):
        return None
    for inner in _meant(address):
        if inner in _METADATA or inner.is_link_local:
            return "is a link-local or metadata address"
        if inner.is_multicast or inner.is_unspecified or inner.is_reserved:
            return "is no address of one machine"
        if inner.is_loopback and not _says_loopback(host):
            return f"is this very machine, which {section}'s address does not say"
    if networks:
        return f"is in none of the networks of {section}.allow"
    return None


def _meant(address: Address) -> list[Address]:
    """Every address that packets to this one may arrive at: IPv4 may be wrapped in IPv6."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped or address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address, *(inner for inner in (address.sixtofour, *(address.teredo or ())) if inner)]


def _says_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _networks(allow: Sequence[str], section: str) -> list[Network]:
    try:
        return [ipaddress.ip_network(text, strict=False) for text in allow]
    except ValueError as error:
        raise InvalidSettings(
            f"{error}",
            where=f"{section}.allow",
            todo="list addresses or networks such as 10.2.0.0/16",
        ) from None


def _target(url: str, section: str) -> SplitResult:
    try:
        target = urlsplit(url)
        usable = target.scheme in ("http", "https") and target.hostname and target.port != 0
    except ValueError:
        usable = False
    if not usable or any(ord(sign) <= 32 or ord(sign) > 126 for sign in url):
        raise InvalidSettings(
            "is no http or https address",
            where="webhook.url" if section == "webhook" else section,
            todo="as in https://host/path",
        )
    return target


def _shown(target: SplitResult) -> str:
    return target._replace(netloc=target.netloc.rpartition("@")[2]).geturl()


class _Request:
    """One exchange, on one connection that can be cut from another thread."""

    def __init__(
        self,
        target: SplitResult,
        networks: list[Network],
        timeout_s: float,
        method: str,
        section: str,
    ) -> None:
        self._target = target
        self._host = str(target.hostname)
        self._networks = networks
        self._timeout_s = timeout_s
        self._method = method
        self._section = section
        self._socket: socket.socket | None = None
        self._cut = threading.Event()

    def cut(self) -> None:
        """End it, wherever it is."""
        self._cut.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def exchange(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Resolve, check, connect, send, and read no more than allowed."""
        secure = self._target.scheme == "https"
        port = self._target.port or (443 if secure else 80)
        with contextlib.closing(self._connected(port)) as plain:
            stream = plain
            if secure:
                import httpx

                context = httpx.create_ssl_context()
                stream = context.wrap_socket(plain, server_hostname=self._host)
                self._socket = stream
            try:
                return self._asked(stream, port, body, headers)
            finally:
                self.cut()  # what is left unread would keep the connection open
                stream.close()

    def _connected(self, port: int) -> socket.socket:
        found = socket.getaddrinfo(self._host, port, type=socket.SOCK_STREAM)
        refused, fault = "", OSError(f"no address of {self._host}")
        for family, kind, protocol, _, place in found:
            address = ipaddress.ip_address(str(place[0]).partition("%")[0])
            why = forbidden(address, self._networks, self._host, self._section)
            if why is not None:
                refused = f"{address} {why}"
                continue
            if self._cut.is_set():
                break
            self._socket = socket.socket(family, kind, protocol)
            self._socket.settimeout(self._timeout_s)
            try:
                self._socket.connect(place)
            except OSError as error:
                self._socket.close()
                fault = error
                continue
            return self._socket
        if refused:
            raise ActionFailed(
                f"nothing was sent: {refused}",
                where=_shown(self._target),
                todo=f"the operator lists what is meant in {self._section}.allow",
            )
        raise fault

    def _asked(
        self, stream: socket.socket, port: int, body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        connection = http.client.HTTPConnection(self._host, port, timeout=self._timeout_s)
        connection.sock = stream
        path = self._target.path or "/"
        connection.request(
            self._method,
            f"{path}?{self._target.query}" if self._target.query else path,
            body,
            {**_signed_in(self._target), **headers, "Connection": "close"},
        )
        answer = connection.getresponse()
        content = bytearray()
        while part := answer.read(min(65536, LONGEST_ANSWER + 1 - len(content))):
            content += part
            if len(content) > LONGEST_ANSWER:
                raise ClusterUnavailable(
                    f"the answer is longer than {LONGEST_ANSWER} bytes", where=_shown(self._target)
                )
        return Answer(answer.status, bytes(content))


def _signed_in(target: SplitResult) -> dict[str, str]:
    """User and password of the address, as a header."""
    if target.username is None:
        return {}
    pair = f"{unquote(target.username)}:{unquote(target.password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}
