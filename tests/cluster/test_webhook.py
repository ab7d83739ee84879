"""The webhook against hostile endpoints, names and settings.

No packet leaves loopback, also where the guard fails: names are resolved by the test, and a
connection to any other address is noted and refused before the kernel sees it.
"""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from standardwebhooks import Webhook, WebhookVerificationError

from gogh_core.cluster.outbound import LONGEST_ANSWER, forbidden
from gogh_core.cluster.webhook import post, read_answer, signature
from gogh_core.errors import ActionFailed, ClusterUnavailable, GoghError, InvalidSettings
from gogh_core.settings import WebhookSettings

SECRET = "whsec_" + base64.b64encode(b"between us and nobody else").decode()
GOOD = b'{"accepted": true}'
HEAD = b"HTTP/1.1 200 OK\r\n"


class Wire:
    """Names as the test has them, and the addresses that somebody wanted to connect to."""

    def __init__(self) -> None:
        self.names: dict[str, list[list[str]]] = {}
        """Answers of the name server, one after the other, the last again and again."""
        self.wanted: list[str] = []


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    found = Wire()
    resolve, connect = socket.getaddrinfo, socket.socket.connect

    def resolved(host, port, *args, **kwargs):
        answers = found.names.get(host)
        if answers is None:
            ipaddress.ip_address(host)  # a name that the test does not have is never asked for
            return resolve(host, port, *args, flags=socket.AI_NUMERICHOST, **kwargs)
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            entry
            for address in addresses
            for entry in resolve(address, port, *args, flags=socket.AI_NUMERICHOST, **kwargs)
        ]

    def connected(self, address):
        found.wanted.append(address[0])
        if not ipaddress.ip_address(address[0]).is_loopback:
            raise OSError("the test lets nothing out")
        return connect(self, address)

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(socket.socket, "connect", connected)
    return found


@contextlib.contextmanager
def endpoint(
    answer: Callable[[socket.socket], None], keep: Callable[[bytes], None] = lambda _: None
) -> Iterator[str]:
    """A server on loopback that reads a request and then does what it likes; its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(20)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with peer, contextlib.suppress(OSError):
                    asked = b""
                    while not asked.endswith(b"}"):
                        asked += peer.recv(65536)
                    keep(asked)
                    answer(peer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/plans"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(20)


def saying(content: bytes, head: bytes = HEAD) -> Callable[[socket.socket], None]:
    whole = head + b"Content-Length: %d\r\n\r\n" % len(content) + content
    return lambda peer: peer.sendall(whole)


def hook(url: str, **more) -> WebhookSettings:
    return WebhookSettings(**{"url": url, "secret": SecretStr(SECRET), "retries": 0, **more})


def sent(url: str, **more) -> str:
    return post(hook(url, **more), "{}", "p1", sleep=lambda _: None)


class TestAddresses:
    @pytest.mark.parametrize(
        "address",
        [
            "169.254.169.254",
            "169.254.0.1",
            "fe80::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "2002:a9fe:a9fe::1",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "255.255.255.255",
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
        ],
    )
    def test_a_name_that_leads_to_a_special_address_gets_nothing(self, wire, address) -> None:
        wire.names["plans.example"] = [[address]]
        with pytest.raises(ActionFailed, match="nothing was sent"):
            sent("http://plans.example/")
        assert wire.wanted == []

    @pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[::ffff:a9fe:a9fe]"])
    def test_a_metadata_address_in_the_url_gets_nothing_either(self, wire, host) -> None:
        with pytest.raises(ActionFailed, match="link-local or metadata"):
            sent(f"http://{host}/latest/meta-data/")
        assert wire.wanted == []

    def test_what_the_operator_lists_is_connected_to(self, wire) -> None:
        """And the test would see a guard that fails: this is how it looks."""
        wire.names["plans.example"] = [["169.254.7.7"]]
        with pytest.raises(ClusterUnavailable, match="gave no answer"):
            sent("http://plans.example/", allow=["169.254.7.0/24"])
        assert wire.wanted == ["169.254.7.7"]

    def test_with_a_list_no_other_address_is_connected_to(self, wire) -> None:
        wire.names["plans.example"] = [["10.2.3.4"]]
        with pytest.raises(ActionFailed, match=r"10\.2\.3\.4 is in none of the networks"):
            sent("http://plans.example/", allow=["10.9.0.0/16"])
        assert wire.wanted == []
        with pytest.raises(ClusterUnavailable):
            sent("http://plans.example/", allow=["10.9.0.0/16", "10.2.3.4"])
        assert wire.wanted == ["10.2.3.4"]

    def test_a_name_that_changes_after_the_look_is_not_looked_up_again(self, wire) -> None:
        wire.names["plans.example"] = [["10.2.3.4"], ["169.254.169.254"]]
        with pytest.raises(ClusterUnavailable):
            sent("http://plans.example/")
        assert wire.wanted == ["10.2.3.4"], "what was checked is what is connected to"

    def test_of_several_addresses_only_the_good_ones_are_tried(self, wire) -> None:
        wire.names["plans.example"] = [["169.254.169.254", "10.2.3.4"]]
        with pytest.raises(GoghError):
            sent("http://plans.example/")
        assert wire.wanted == ["10.2.3.4"]

    def test_a_redirect_is_a_refusal(self, wire) -> None:
        away = b"HTTP/1.1 307 Go\r\nLocation: http://169.254.169.254/latest/\r\n"
        with endpoint(saying(b"", away)) as url, pytest.raises(ActionFailed, match="307"):
            sent(url)
        assert set(wire.wanted) == {"127.0.0.1"}

    def test_a_proxy_of_the_environment_is_not_used(self, wire, monkeypatch) -> None:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://10.6.6.6:3128")
        with endpoint(saying(GOOD)) as url:
            assert sent(url) == "accepted"
        assert set(wire.wanted) == {"127.0.0.1"}

    @pytest.mark.parametrize(
        "url",
        [
            "file:///etc/passwd",
            "ftp://plans.example/",
            "gopher://127.0.0.1:70/",
            "http://",
            "http:///x",
            "plans.example",
            "http://plans.example:0/",
            "http://plans.example:99999/",
            "http://[::1/",
            "http://plans.example/\r\nX-Evil: 1",
            "http://plans.example/a b",
        ],
    )
    def test_only_http_addresses_are_addresses(self, wire, url) -> None:
        with pytest.raises(InvalidSettings, match=r"webhook\.url"):
            sent(url)
        assert wire.wanted == []

    def test_a_list_that_lists_nothing_is_told(self, wire) -> None:
        with pytest.raises(InvalidSettings, match=r"webhook\.allow"):
            sent("http://plans.example/", allow=["somewhere"])

    @given(st.ip_addresses(v=4), st.booleans())
    def test_wrapping_an_address_never_opens_a_way(self, address, mapped) -> None:
        plain = forbidden(address, [], "plans.example")
        number = int(address)
        wrapped = ipaddress.IPv6Address(
            (0xFFFF << 32) | number if mapped else (0x64FF9B << 96) | number
        )
        assert forbidden(wrapped, [], "plans.example") == plain


class TestAnswers:
    def test_a_long_answer_is_cut_off(self, wire) -> None:
        def flood(peer: socket.socket) -> None:
            peer.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(64):  # 64 MiB, if anybody read it
                peer.sendall(b"100000\r\n" + b" " * (1 << 20) + b"\r\n")

        with endpoint(flood) as url, pytest.raises(ClusterUnavailable, match="longer than"):
            sent(url)

    def test_an_answer_of_just_the_length_is_read(self, wire) -> None:
        with endpoint(saying(GOOD.ljust(LONGEST_ANSWER))) as url:
            assert sent(url) == "accepted"

    @pytest.mark.parametrize("start", [b"", HEAD, HEAD + b"Content-Length: 999\r\n\r\n{"])
    def test_a_byte_now_and_then_does_not_hold_us(self, wire, start) -> None:
        """Each byte comes within the time-out of a read; the whole does not."""
        ended = threading.Event()

        def drip(peer: socket.socket) -> None:
            peer.sendall(start)
            while not ended.wait(0.1):
                peer.sendall(b"H" if not start else b" ")

        with endpoint(drip) as url:
            began = time.monotonic()
            try:
                with pytest.raises(ClusterUnavailable, match=r"within 0\.6 s"):
                    sent(url, timeout_s=0.6)
                assert time.monotonic() - began < 3
            finally:
                ended.set()

    def test_a_slow_name_server_does_not_hold_us(self, wire, monkeypatch) -> None:
        ended = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: ended.wait(20) and [])
        began = time.monotonic()
        try:
            with pytest.raises(ClusterUnavailable, match=r"within 0\.3 s"):
                sent("http://plans.example/", timeout_s=0.3)
            assert time.monotonic() - began < 3
        finally:
            ended.set()

    @pytest.mark.parametrize(
        "raw",
        [
            b"[" * 500_000,
            b'{"a":' * 100_000,
            b'{"accepted": true, "message": ' + b"[" * 33 + b"]" * 33 + b"}",
            b'{"accepted": true, "n": ' + b"9" * 900_000 + b"}",
            GOOD.ljust(LONGEST_ANSWER + 1),
            b'"\\' * 400_000,
        ],
    )
    def test_a_bomb_is_no_acknowledgement(self, raw) -> None:
        began = time.monotonic()
        with pytest.raises(ClusterUnavailable, match="no acknowledgement"):
            read_answer(raw, where="there")
        assert time.monotonic() - began < 5

    def test_brackets_in_a_message_are_no_depth(self) -> None:
        said = json.dumps({"accepted": True, "message": '["\\"' + "[{" * 40}).encode()
        assert read_answer(said, where="there").startswith("accepted: ")

    @given(st.binary(max_size=300))
    def test_whatever_comes_is_an_answer_or_none(self, raw) -> None:
        with contextlib.suppress(ClusterUnavailable, ActionFailed):
            assert read_answer(raw, where="there").startswith("accepted")

    def test_a_server_without_a_trusted_certificate_gets_nothing(self, wire, tmp_path) -> None:
        key, certificate = tmp_path / "key", tmp_path / "certificate"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-keyout", key, "-out", certificate, "-subj", "/CN=127.0.0.1",
             "-addext", "subjectAltName=IP:127.0.0.1"],
            check=True, capture_output=True,
        )  # fmt: skip
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        listener = socket.create_server(("127.0.0.1", 0))
        got: list[bytes] = []

        def serve() -> None:
            peer, _ = listener.accept()
            with peer, contextlib.suppress(OSError), context.wrap_socket(peer, True) as stream:
                got.append(stream.recv(1))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}/"
        with pytest.raises(ClusterUnavailable, match="SSLCertVerificationError"):
            sent(url)
        thread.join(20)
        listener.close()
        assert got in ([], [b""])

    @pytest.mark.parametrize(
        "head", [b"", b"SSH-2.0\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\n"]
    )
    def test_what_is_no_http_is_no_answer(self, wire, head) -> None:
        silent = endpoint(lambda peer: peer.sendall(head))
        with silent as url, pytest.raises(ClusterUnavailable, match="gave no answer"):
            sent(url)


class TestSignature:
    def test_it_is_the_one_of_the_published_example(self) -> None:
        """The example in the tests of the specification's own libraries."""
        made = signature(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            b'{"test": 2432232314}',
        )
        assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

    def test_a_receiver_with_the_specifications_library_takes_it_and_nothing_else(
        self, wire
    ) -> None:
        got: list[bytes] = []
        with endpoint(saying(GOOD), got.append) as url:
            post(hook(url), '{"id": "é"}', "p1")
        head, _, body = got[0].partition(b"\r\n\r\n")
        lines = [line.partition(": ") for line in head.decode().split("\r\n")[1:]]
        headers = {name.lower(): value for name, _, value in lines}
        assert Webhook(SECRET).verify(body, headers) == {"id": "é"}
        later = {**headers, "webhook-timestamp": str(int(headers["webhook-timestamp"]) + 1)}
        other = {**headers, "webhook-id": "msg_other"}
        for wrong, sent_body in [(headers, body + b" "), (later, body), (other, body)]:
            with pytest.raises(WebhookVerificationError):
                Webhook(SECRET).verify(sent_body, wrong)
        with pytest.raises(WebhookVerificationError):
            Webhook("whsec_" + "A" * 40).verify(body, headers)

    @pytest.mark.parametrize(
        "secret", ["between us", "whsec_", "whsec_c2hvcnQ=", "whsec_%%%", "whsec_" + "A" * 200, ""]
    )
    def test_a_secret_of_another_form_is_told(self, wire, secret) -> None:
        with pytest.raises(InvalidSettings, match="openssl rand") as told:
            sent("http://127.0.0.1:9/", secret=SecretStr(secret))
        assert not secret or secret not in str(told.value).replace("whsec_", "")
        assert wire.wanted == []
