"""Fetches pages from a real server on loopback: valid results, refused answers, and forbidden addresses."""

from __future__ import annotations

import gzip
import shutil
import socket
import ssl
import threading
import time
import tracemalloc
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.content.reading import read
from holdfast.errors import Permanent, Transient, WorkError
from holdfast.sources.address_policy import PUBLIC_ONLY, Reach
from holdfast.sources.web import FetchedPage, FetchLimits, Unchanged, Validators, fetch
from tests.support.scripted_site import Site, certificate, reply
from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

HERE = Reach.parse("127.0.0.1")
OUTSIDE = Reach.parse("127.0.0.2")  # represents the public internet; 127.0.0.1 represents the private network
QUICK = FetchLimits(seconds=0.4)


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def two_sites() -> Iterator[tuple[Site, Site]]:
    """Return an allowed site and a forbidden one on the same port."""
    with Site(address="127.0.0.2") as public, Site(address="127.0.0.1", port=public.port) as private:
        private.says("/", reply(b"secret"))
        yield public, private


def got(url: str, known: Validators | None = None, **options: Any) -> FetchedPage:
    page = fetch(url, known, **({"reach": HERE} | options))
    assert isinstance(page, FetchedPage)
    return page


def refused(url: str, code: str, error: type[WorkError] = Permanent, **options: Any) -> WorkError:
    with pytest.raises(WorkError) as caught:
        fetch(url, **({"reach": HERE} | options))
    assert (type(caught.value), caught.value.code) == (error, code)
    return caught.value


class TestAPage:
    def test_arrives_with_its_address_type_and_name(self, site: Site) -> None:
        site.says("/guide/intro.php?page=2", reply(b"<p>Hello</p>", mime="text/html; charset=UTF-8"))
        page = got(site.url("/guide/./intro.php?page=2#part"))
        assert page.body == b"<p>Hello</p>"
        assert (page.mime, page.charset, page.name) == ("text/html", "utf-8", "intro.php.html")
        assert page.url == site.url("/guide/intro.php?page=2")

    def test_is_requested_without_cookies_or_credentials(self, site: Site) -> None:
        site.says("/", reply(b"x", Set_Cookie="a=b"))
        got(site.url("/"))
        got(site.url("/"))
        for request in site.asked:
            assert request.headers["host"] == f"127.0.0.1:{site.port}"
            assert request.headers["user-agent"].startswith("Holdfast/")
            assert {"cookie", "authorization", "referer"}.isdisjoint(request.headers)

    def test_proxy_settings_of_the_environment_are_ignored(
        self, two_sites: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        public, private = two_sites
        public.says("/", reply(b"direct"))
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, private.url())
        assert got(public.url("/"), reach=OUTSIDE).body == b"direct"
        assert not private.asked

    def test_compressed_with_gzip_is_unpacked_even_with_several_members(self, site: Site) -> None:
        packed = gzip.compress(b"one ") + gzip.compress(b"two")
        site.says("/", reply(packed, Content_Encoding="gzip"))
        assert got(site.url("/")).body == b"one two"

    def test_in_an_encoding_named_only_in_the_header_is_converted_to_utf8(self, site: Site) -> None:
        text = "<p>Владение</p>"
        site.says("/", reply(text.encode("koi8-r"), mime="text/html; charset=koi8-r"))
        assert got(site.url("/")).body.decode() == text

    @pytest.mark.parametrize("charset", ["utf-8", "no-such", "base64", "idna"])
    def test_a_wrong_charset_leaves_the_bytes_alone(self, site: Site, charset: str) -> None:
        site.says("/", reply(b"caf\xe9 au lait", mime=f"text/html; charset={charset}"))
        assert got(site.url("/")).body == b"caf\xe9 au lait"

    @pytest.mark.parametrize("mime", ["text/plain", "text/html", "application/pdf", "application/octet-stream"])
    @pytest.mark.parametrize(
        "body", [b"PK\x03\x04\xe9", b"%PDF-1.7\n\xe2\xe3\n", b"\x00\x01\xff\xfe", b"{\\rtf1 \xe9}"]
    )
    def test_binary_content_stays_unchanged_whatever_charset_the_header_names(
        self, site: Site, mime: str, body: bytes
    ) -> None:
        site.says("/", reply(body, mime=f"{mime}; charset=iso-8859-1"))
        assert got(site.url("/")).body == body

    @pytest.mark.parametrize(
        ("target", "mime", "disposition", "name"),
        [
            ("/", "text/html", "", "127.0.0.1.html"),
            ("/a/b/", "text/html", "", "b.html"),
            ("/caf%C3%A9", "text/html", "", "café.html"),
            ("/get", "application/pdf", 'attachment; filename="../../etc/report.pdf"', "report.pdf"),
            ("/get", "application/pdf", "attachment; filename*=UTF-8''caf%C3%A9%E2%80%AEfdp.exe", "caféfdp.exe.pdf"),
            ("/get", "text/plain", "", "get.txt"),
            ("/a.PDF", "application/pdf", "", "a.PDF"),
            ("/%00%2e%2e", "application/octet-stream", "", "127.0.0.1"),
        ],
    )
    def test_has_a_safe_file_name(self, site: Site, target: str, mime: str, disposition: str, name: str) -> None:
        site.answers = dict.fromkeys(
            [target, "/%00.."], lambda _: [reply(b"x", mime=mime, Content_Disposition=disposition)]
        )
        assert got(site.url(target)).name == name

    def test_is_read_in_the_sandbox_without_its_menus(self, site: Site, tmp_path: Path) -> None:
        text = "The anchor holds the ship while the storm lasts. " * 5
        html = f"<nav><a href=/>Home</a> <a href=/x>Products</a></nav><main><h1>Anchors</h1><p>{text}</p></main>"
        site.says("/", reply(f"<html><title>T</title>{html}<footer>All rights reserved</footer></html>".encode()))
        page = got(site.url("/"))
        path = tmp_path / "page"
        path.write_bytes(page.body)
        main, whole = read(path, page.name, fetched=True), read(path, page.name)
        assert main.text.startswith("# Anchors\n\nThe anchor holds")
        assert "Products" not in main.text
        assert "rights" not in main.text
        assert "rights" in whole.text
        assert (main.title, main.metadata) == ("T", whole.metadata)


class TestAskedAgain:
    def test_an_unchanged_page_is_not_sent_again(self, site: Site) -> None:
        def answer(request: Any) -> list[bytes]:
            same = request.headers.get("if-none-match") == '"v1"'
            return [reply(b"", status=304) if same else reply(b"text", ETag='"v1"')]

        site.answers["/"] = answer
        page = got(site.url("/"))
        assert page.validators == Validators(url=site.url("/"), etag='"v1"')
        assert fetch(site.url("/"), page.validators, reach=HERE) == Unchanged(url=site.url("/"))

    def test_the_last_modified_date_is_sent_back(self, site: Site) -> None:
        date = "Mon, 01 Jun 2026 10:00:00 GMT"
        site.says("/", reply(b"text", Last_Modified=date))
        got(site.url("/"), got(site.url("/")).validators)
        assert [request.headers.get("if-modified-since") for request in site.asked] == [None, date]

    def test_validators_are_sent_only_to_the_address_they_came_from(self, site: Site) -> None:
        site.says("/", reply(b"", status=302, Location="/there"))
        site.says("/there", reply(b"text", ETag='"v1"'))
        known = got(site.url("/")).validators
        got(site.url("/"), known)
        assert [request.headers.get("if-none-match") for request in site.asked] == [None, None, None, '"v1"']

    def test_a_304_to_an_unconditional_request_is_an_error(self, site: Site) -> None:
        site.says("/", reply(b"", status=304))
        refused(site.url("/"), "invalid_response", Transient)


class TestStatuses:
    @pytest.mark.parametrize(
        ("status", "code", "error"),
        [
            (404, "page_gone", Permanent),
            (410, "page_gone", Permanent),
            (401, "page_forbidden", Permanent),
            (403, "page_forbidden", Permanent),
            (418, "page_refused", Permanent),
            (408, "server_busy", Transient),
            (429, "server_busy", Transient),
            (500, "server_busy", Transient),
            (503, "server_busy", Transient),
            (206, "invalid_response", Transient),
            (302, "invalid_response", Transient),
        ],
    )
    def test_are_mapped_to_our_errors(self, site: Site, status: int, code: str, error: type[WorkError]) -> None:
        site.says("/", reply(b"", status=status))
        assert str(refused(site.url("/"), code, error)).endswith(".")

    @pytest.mark.parametrize(
        ("said", "least", "most"),
        [
            ("120", 120, 120),
            ("0", 0, 0),
            ("99999999999", 86400, 86400),
            ("Fri, 01 Jan 2100 00:00:00 GMT", 86400, 86400),
            ("Mon, 01 Jan 2001 00:00:00 GMT", 0, 0),
        ],
    )
    def test_retry_after_of_the_server_is_respected(self, site: Site, said: str, least: int, most: int) -> None:
        site.says("/", reply(b"", status=429, Retry_After=said))
        error = refused(site.url("/"), "server_busy", Transient)
        assert isinstance(error, Transient)
        assert error.retry_after is not None
        assert timedelta(seconds=least) <= error.retry_after <= timedelta(seconds=most)

    @pytest.mark.parametrize("said", ["soon", "", "-5", "1e9", "9" * 5000])
    def test_an_invalid_retry_after_is_ignored(self, site: Site, said: str) -> None:
        site.says("/", reply(b"", status=503, Retry_After=said))
        error = refused(site.url("/"), "server_busy", Transient)
        assert isinstance(error, Transient)
        assert error.retry_after is None

    @pytest.mark.parametrize("mime", ["image/png", "video/mp4", "audio/mpeg", "font/woff2", "text/event-stream"])
    def test_content_without_text_is_not_fetched(self, site: Site, mime: str) -> None:
        site.says("/", reply(b"x", mime=mime))
        refused(site.url("/"), "unsupported_page_type")


class TestServersThatMeanHarm:
    """Covers the threats `Huge upload` and decompression bombs for fetched pages."""

    def test_an_endless_body_is_cut_off(self, site: Site) -> None:
        sent = []

        def endless(_: Any) -> Iterator[bytes]:
            yield b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
            while True:
                sent.append(1)
                yield b"x" * 65536

        site.answers["/"] = endless
        refused(site.url("/"), "page_too_large", limits=FetchLimits(bytes=1 << 20))
        assert len(sent) < 500  # only what fits into the buffers

    def test_a_body_with_a_too_large_content_length_is_not_read(self, site: Site) -> None:
        site.says("/", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 99999999999\r\n\r\n")
        refused(site.url("/"), "page_too_large")

    def test_a_gzip_bomb_is_not_unpacked(self, site: Site) -> None:
        bomb = gzip.compress(bytes(64 << 20))
        assert len(bomb) < 100_000
        site.says("/", reply(bomb, Content_Encoding="gzip"))
        tracemalloc.start()
        try:
            refused(site.url("/"), "page_too_large", limits=FetchLimits(bytes=1 << 20))
            assert tracemalloc.get_traced_memory()[1] < 16 << 20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("coding", ["gzip, gzip", "br", "deflate", "compress"])
    def test_an_encoding_that_was_not_requested_is_not_unpacked(self, site: Site, coding: str) -> None:
        site.says("/", reply(gzip.compress(gzip.compress(b"x")), Content_Encoding=coding))
        refused(site.url("/"), "invalid_response", Transient)

    @pytest.mark.parametrize("body", [gzip.compress(b"x" * 1000, mtime=0)[:-9], b"no gzip at all"], ids=["cut", "none"])
    def test_damaged_gzip_is_reported(self, site: Site, body: bytes) -> None:
        site.says("/", reply(body, Content_Encoding="gzip"))
        refused(site.url("/"), "invalid_response", Transient)

    @pytest.mark.parametrize(
        "start", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"]
    )
    def test_a_server_that_sends_too_slowly_is_abandoned(self, site: Site, start: bytes) -> None:
        gate = threading.Event()

        def dripping(_: Any) -> Iterator[bytes]:
            yield start
            while not gate.wait(0.02):
                yield b"x"

        site.answers["/"] = dripping
        began = time.monotonic()
        refused(site.url("/"), "response_too_slow", Transient, limits=QUICK)
        assert time.monotonic() - began < PATIENCE_SECONDS
        gate.set()

    def test_a_server_that_never_completes_the_tls_handshake_is_abandoned(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            began = time.monotonic()
            refused(f"https://127.0.0.1:{silent.getsockname()[1]}/", "response_too_slow", Transient, limits=QUICK)
            assert time.monotonic() - began < PATIENCE_SECONDS

    def test_redirects_share_one_deadline(self, site: Site) -> None:
        gate = threading.Event()

        def late(_: Any) -> Iterator[bytes]:
            gate.wait(0.25)
            yield reply(b"", status=302, Location="/")

        site.answers["/"] = late
        refused(site.url("/"), "response_too_slow", Transient, limits=FetchLimits(seconds=0.4, redirects=50))

    def test_a_resolver_that_never_answers_is_abandoned(self) -> None:
        gate = threading.Event()

        def stuck(_: str) -> Sequence[str]:
            gate.wait(PATIENCE_SECONDS)
            return []

        refused("http://pages.test/", "response_too_slow", Transient, limits=QUICK, resolve=stuck)
        gate.set()

    @pytest.mark.parametrize(
        "answer",
        [
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 200_000 + b"\r\n\r\n",
            b"",
        ],
    )
    def test_an_invalid_http_response_is_reported(self, site: Site, answer: bytes) -> None:
        site.says("/", answer)
        refused(site.url("/"), "invalid_response", Transient)

    def test_the_number_of_redirects_is_limited(self, site: Site) -> None:
        site.answers["/"] = lambda _: [reply(b"", status=302, Location="/")]
        refused(site.url("/"), "too_many_redirects", limits=FetchLimits(redirects=3))
        assert len(site.asked) == 4


class TestForgedRequests:
    """Covers the threats `SSRF via URL ingestion` and `SSRF parsing gaps`."""

    @pytest.mark.parametrize(
        "url",
        [
            "file:///etc/passwd",
            "gopher://127.0.0.1:6379/_FLUSHALL",
            "ftp://127.0.0.1/",
            "dict://127.0.0.1:11211/",
            "data:text/html,x",
            "http://user:secret@127.0.0.1/",
            "http://127.0.0.1\\@example.org/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://127.1/",
            "http://127.0.0.1%2eexample.org/",
            "http://[::1%25lo]/",
            "http:///path",
            "http://exa mple.org/",
            "http://example.org:0/",
            "http://example.org:99999/",
            "",
        ],
    )
    def test_an_address_that_is_not_plain_http_is_refused(self, url: str) -> None:
        refused(url, "bad_url", reach=PUBLIC_ONLY, resolve=_never)

    @pytest.mark.parametrize("host", ["127.0.0.1", "①②⑦.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.1", "[::]"])
    def test_addresses_of_this_machine_are_refused(self, site: Site, host: str) -> None:
        site.says("/", reply(b"secret"))
        refused(f"http://{host}:{site.port}/", "refused_address", reach=_any_public(site), resolve=_never)
        assert not site.asked

    @pytest.mark.parametrize("host", ["localhost", "localhost.", "LOCALHOST"])
    def test_names_of_this_machine_are_refused(self, site: Site, host: str) -> None:
        refused(f"http://{host}:{site.port}/", "refused_address", reach=_any_public(site))
        assert not site.asked

    @pytest.mark.parametrize(
        "answers",
        [
            ["127.0.0.1"],
            ["93.184.216.34", "127.0.0.1"],
            ["127.0.0.1", "93.184.216.34"],
            ["::ffff:127.0.0.1"],
            ["64:ff9b::7f00:1"],
            ["2002:7f00:1::"],
            ["169.254.169.254"],
        ],
    )
    def test_one_forbidden_address_of_a_name_refuses_the_name(self, site: Site, answers: list[str]) -> None:
        reach = _any_public(site)
        refused(
            f"http://pages.test:{site.port}/", "refused_address", reach=reach, resolve=lambda _: answers, limits=QUICK
        )
        assert not site.asked

    def test_a_name_is_resolved_once_and_only_the_checked_address_is_contacted(
        self, two_sites: tuple[Site, Site], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        public, private = two_sites
        public.says("/", reply(b"public"))
        lookups: list[str] = []

        def rebinding(name: str) -> Sequence[str]:
            lookups.append(name)
            return ["127.0.0.2"] if len(lookups) == 1 else ["127.0.0.1"]

        real = socket.getaddrinfo

        def system(host: Any, *args: Any, **kwargs: Any) -> Any:
            return real("127.0.0.1" if host == "pages.test" else host, *args, **kwargs)

        monkeypatch.setattr(socket, "getaddrinfo", system)
        page = got(public.url("/", host="pages.test"), reach=OUTSIDE, resolve=rebinding)
        assert page.body == b"public"
        assert lookups == ["pages.test"]
        assert public.asked[0].headers["host"] == f"pages.test:{public.port}"
        assert not private.asked

    def test_each_redirect_is_resolved_and_checked_again(self, two_sites: tuple[Site, Site]) -> None:
        public, private = two_sites
        public.says("/", reply(b"", status=302, Location="/again"))
        lookups: list[str] = []

        def rebinding(name: str) -> Sequence[str]:
            lookups.append(name)
            return ["127.0.0.2"] if len(lookups) == 1 else ["127.0.0.1"]

        refused(public.url("/", host="pages.test"), "refused_address", reach=OUTSIDE, resolve=rebinding)
        assert len(lookups) == 2
        assert not private.asked

    def test_a_redirect_to_a_private_server_is_not_followed(self, two_sites: tuple[Site, Site]) -> None:
        public, private = two_sites
        public.says("/", reply(b"", status=302, Location=private.url("/")))
        refused(public.url("/"), "refused_address", reach=OUTSIDE)
        assert not private.asked

    @pytest.mark.parametrize(
        ("location", "code"),
        [
            ("http://169.254.169.254/latest/meta-data/", "refused_address"),
            ("//[fd00:ec2::254]/", "refused_address"),
            ("http://0x7f.1/", "bad_url"),
            ("file:///etc/passwd", "bad_url"),
            ("gopher://127.0.0.1/", "bad_url"),
            ("http://a:b@127.0.0.2/", "bad_url"),
            ("http://[broken/", "bad_url"),
        ],
    )
    def test_a_redirect_to_a_forbidden_address_is_refused(self, site: Site, location: str, code: str) -> None:
        site.says("/", reply(b"", status=307, Location=location))
        refused(site.url("/"), code)

    def test_an_unusual_port_is_refused(self) -> None:
        error = refused("http://pages.test:25/", "refused_port", reach=PUBLIC_ONLY, resolve=lambda _: ["93.184.216.34"])
        assert "port 25" in str(error)

    def test_a_refusal_does_not_repeat_the_query(self, site: Site) -> None:
        site.says("/?key=canary", reply(b"", status=403))
        error = refused(site.url("/?key=canary"), "page_forbidden")
        assert "canary" not in f"{error} {error.params}"


class TestNetworks:
    def test_a_name_that_does_not_resolve_is_a_transient_error(self) -> None:
        def unknown(_: str) -> Sequence[str]:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")

        refused("http://pages.test/", "unknown_host", Transient, resolve=unknown)
        refused("http://pages.test/", "unknown_host", Transient, resolve=lambda _: [])

    def test_the_next_address_is_tried_if_one_does_not_answer(self, site: Site) -> None:
        site.says("/", reply(b"found"))
        reach = Reach.parse("127.0.0.0/8")
        page = got(
            site.url("/", host="pages.test"), reach=reach, resolve=lambda _: ["127.0.0.9", "127.0.0.9", "127.0.0.1"]
        )
        assert page.body == b"found"

    def test_an_unreachable_server_is_a_transient_error(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        refused(f"http://127.0.0.1:{port}/", "unreachable", Transient)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
class TestSecureServers:
    @pytest.fixture
    def secure(self, tmp_path: Path) -> Iterator[tuple[Site, ssl.SSLContext, list[str | None]]]:
        made, key = certificate(tmp_path, "pages.test")
        named: list[str | None] = []
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(made, key)
        server.sni_callback = lambda _, name, __: named.append(name)
        with Site(tls=server) as site:
            site.says("/", reply(b"secure"))
            yield site, ssl.create_default_context(cafile=str(made)), named

    def test_the_certificate_is_checked_for_the_name_and_not_for_the_address(
        self, secure: tuple[Site, ssl.SSLContext, list[str | None]]
    ) -> None:
        site, trusting, named = secure
        page = got(site.url("/", host="pages.test"), tls=trusting, resolve=lambda _: ["127.0.0.1"])
        assert page.body == b"secure"
        assert named == ["pages.test"]

    def test_a_certificate_for_another_name_is_refused(
        self, secure: tuple[Site, ssl.SSLContext, list[str | None]]
    ) -> None:
        site, trusting, _ = secure
        resolve = lambda _: ["127.0.0.1"]  # noqa: E731 - shorter than a function
        refused(site.url("/", host="other.test"), "tls_failed", tls=trusting, resolve=resolve)
        assert not site.asked

    def test_an_untrusted_certificate_is_refused(self, secure: tuple[Site, ssl.SSLContext, list[str | None]]) -> None:
        site, _, _ = secure
        refused(site.url("/", host="pages.test"), "tls_failed", resolve=lambda _: ["127.0.0.1"])
        assert not site.asked


def _any_public(site: Site) -> Reach:
    """Allow public addresses on the port of this site, so that only the address can be the reason for a refusal."""
    return Reach(ports=frozenset({site.port}))


def _never(name: str) -> Sequence[str]:
    raise AssertionError(name)
