"""Sitemaps from a real server on loopback: which pages they list, and which are skipped."""

from __future__ import annotations

import gzip
import time
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import Permanent, Transient, WorkError
from holdfast.sources.address_policy import Reach
from holdfast.sources.sitemaps import Expansion, ListedPage, SitemapLimits, expand
from tests.support.scripted_site import Site, reply

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Reach.parse("127.0.0.1")
NAMESPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


def urlset(*entries: str) -> bytes:
    inside = "".join(
        f"<url>{entry}</url>" if entry.startswith("<") else f"<url><loc>{entry}</loc></url>" for entry in entries
    )
    return f'<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="{NAMESPACE}">{inside}</urlset>'.encode()


def index(*entries: str) -> bytes:
    inside = "".join(f"<sitemap><loc>{entry}</loc></sitemap>" for entry in entries)
    return f'<sitemapindex xmlns="{NAMESPACE}">{inside}</sitemapindex>'.encode()


def xml(body: bytes) -> bytes:
    return reply(body, mime="application/xml")


def expanded(site: Site, target: str = "/sitemap.xml", **options: Any) -> Expansion:
    return expand(site.url(target), **({"reach": HERE} | options))


def pages(expansion: Expansion, site: Site) -> list[str]:
    return [page.url.removeprefix(site.url("")) for page in expansion.pages]


def left(expansion: Expansion, site: Site) -> dict[str, str]:
    return {one.url.removeprefix(site.url("")): one.reason for one in expansion.skipped}


def refused(site: Site, code: str, error: type[WorkError] = Permanent, **options: Any) -> None:
    with pytest.raises(WorkError) as caught:
        expanded(site, **options)
    assert (type(caught.value), caught.value.code) == (error, code)


class TestLists:
    def test_pages_are_listed_once_in_order_with_their_dates(self, site: Site) -> None:
        entries = [
            f"<loc> {site.url('/b')} </loc><lastmod>2026-06-01</lastmod><priority>1</priority>",
            f"<loc>{site.url('/a?x=1&amp;y=2#part')}</loc>",
            site.url("/b#again"),
            f"<loc>{site.url('/c')}</loc><i:image xmlns:i='urn:i'><i:loc>{site.url('/i.png')}</i:loc></i:image>",
        ]
        site.says("/sitemap.xml", xml(urlset(*entries)))
        expansion = expanded(site)
        assert expansion == Expansion(
            pages=(
                ListedPage(url=site.url("/b"), modified="2026-06-01"),
                ListedPage(url=site.url("/a?x=1&y=2")),
                ListedPage(url=site.url("/c")),
            ),
            skipped=(),
            complete=True,
        )

    def test_sitemap_indexes_are_followed_also_compressed_and_as_plain_text(self, site: Site) -> None:
        site.says("/sitemap.xml", xml(index("/one.xml.gz", "/two.txt", "/sitemap.xml")))
        site.says("/one.xml.gz", reply(gzip.compress(urlset("/a")), mime="application/gzip"))
        site.says("/two.txt", reply(f"\ufeff{site.url('/b')}\r\n\r\n{site.url('/c')}\n".encode(), mime="text/plain"))
        expansion = expanded(site)
        assert pages(expansion, site) == ["/a", "/b", "/c"]
        assert expansion.complete
        assert len(site.targets) == 4  # robots.txt, and each list once

    def test_pages_on_other_hosts_are_skipped_unless_allowed(self, site: Site) -> None:
        site.says(
            "/sitemap.xml",
            xml(urlset("/a", f"http://other.test:{site.port}/b", "ftp://x/", f"http://127.0.0.2:{site.port}/c")),
        )
        expansion = expanded(site)
        assert pages(expansion, site) == ["/a"]
        assert sorted(left(expansion, site).values()) == ["bad_url", "elsewhere", "elsewhere"]
        assert expansion.complete
        options: dict[str, Any] = {"hosts": frozenset({"other.test"}), "resolve": lambda _: ["127.0.0.1"]}
        assert len(expanded(site, **options).pages) == 2

    def test_pages_with_secrets_in_their_addresses_are_skipped(self, site: Site) -> None:
        site.says("/sitemap.xml", xml(urlset("/a?page=2", "/b?token=swordfish")))
        expansion = expanded(site)
        assert pages(expansion, site) == ["/a?page=2"]
        assert list(left(expansion, site).values()) == ["secret_in_address"]
        assert "swordfish" not in str(expansion)
        assert expansion.complete

    def test_an_unreadable_part_is_reported_and_the_rest_is_kept(self, site: Site) -> None:
        site.says("/sitemap.xml", xml(index("/gone.xml", "/one.xml", "/page.html", "/bad.gz")))
        site.says("/one.xml", xml(urlset("/a")))
        site.says("/page.html", reply(b"<!doctype html><p>no sitemap"))
        site.says("/bad.gz", reply(gzip.compress(urlset("/z"))[:-9], mime="application/gzip"))
        expansion = expanded(site)
        assert pages(expansion, site) == ["/a"]
        assert left(expansion, site) == {
            "/gone.xml": "page_gone",
            "/page.html": "not_a_sitemap",
            "/bad.gz": "not_a_sitemap",
        }
        assert not expansion.complete

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"no addresses",
            b"<html><body>no sitemap</body></html>",
            b"<!doctype html><p>no sitemap",
            urlset("/a")[:-9],
            b'<?xml version="1.0" encoding="no-such"?><urlset/>',
            b'<!DOCTYPE urlset [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><urlset><url><loc>&b;</loc></url></urlset>',
            b'<!DOCTYPE urlset [<!ENTITY f SYSTEM "file:///etc/passwd">]><urlset><url><loc>&f;</loc></url></urlset>',
            b'<!DOCTYPE urlset SYSTEM "http://127.0.0.1/x.dtd"><urlset/>',
            b"<urlset>" + b"<a>" * 100_000 + b"</a>" * 100_000 + b"</urlset>",
            gzip.compress(b"x", mtime=0)[:-4],
        ],
    )
    def test_an_invalid_sitemap_is_refused(self, site: Site, body: bytes) -> None:
        site.says("/sitemap.xml", xml(body))
        refused(site, "not_a_sitemap")
        assert site.targets == ["/robots.txt", "/sitemap.xml"]

    def test_a_missing_sitemap_is_an_error(self, site: Site) -> None:
        refused(site, "page_gone")

    def test_an_empty_sitemap_lists_no_pages(self, site: Site) -> None:
        site.says("/sitemap.xml", xml(urlset()))
        assert expanded(site) == Expansion(pages=(), skipped=(), complete=True)


class TestLimits:
    def test_the_number_of_pages_is_limited(self, site: Site) -> None:
        site.says("/sitemap.xml", xml(urlset(*(f"/{number}" for number in range(30)))))
        expansion = expanded(site, limits=SitemapLimits(pages=10))
        assert len(expansion.pages) == 10
        assert not expansion.complete
        assert "too_many" in left(expansion, site).values()

    def test_the_depth_and_number_of_sitemaps_are_limited(self, site: Site) -> None:
        for number in range(10):
            site.says(f"/{number}.xml", xml(index(f"/{number + 1}.xml", f"/{number + 1}.xml?other")))
        expansion = expanded(site, "/0.xml", limits=SitemapLimits(depth=3))
        assert len(site.targets) == 1 + 1 + 2 + 2  # robots.txt and three levels; the other lists do not exist
        assert left(expansion, site)["/3.xml"] == "too_deep"
        site.asked.clear()
        expansion = expanded(site, "/0.xml", limits=SitemapLimits(depth=100, files=4))
        assert len(site.targets) == 1 + 4
        assert "too_many" in left(expansion, site).values()
        assert not expansion.complete

    def test_a_sitemap_index_that_contains_itself_terminates(self, site: Site) -> None:
        site.says("/sitemap.xml", xml(index("/sitemap.xml", "/sitemap.xml#x", "/other.xml")))
        site.says("/other.xml", xml(index("/sitemap.xml")))
        assert expanded(site).complete
        assert len(site.targets) == 3

    def test_bytes_are_also_limited_after_decompression(self, site: Site) -> None:
        bomb = gzip.compress(urlset() + b" " * (8 << 20))
        site.says("/sitemap.xml", reply(bomb, mime="application/gzip"))
        assert len(bomb) < 1 << 16
        refused(site, "page_too_large", limits=SitemapLimits(bytes=1 << 20))

    def test_the_total_bytes_are_limited(self, site: Site) -> None:
        site.says("/sitemap.xml", xml(index("/1.xml", "/2.xml", "/3.xml")))
        for number in (1, 2, 3):
            site.says(f"/{number}.xml", xml(urlset(f"/{number}") + b" " * 1000))
        expansion = expanded(site, limits=SitemapLimits(total=3000))
        assert pages(expansion, site) == ["/1", "/2"]
        assert left(expansion, site) == {"/3.xml": "page_too_large"}

    def test_the_total_time_is_limited(self, site: Site) -> None:
        site.says("/sitemap.xml", xml(urlset("/a")))
        refused(site, "response_too_slow", Transient, limits=SitemapLimits(seconds=0))

    def test_a_long_comment_is_parsed_in_bounded_time(self, site: Site) -> None:
        site.says("/sitemap.xml", xml(urlset() + b"<!--" + b"x" * (16 << 20) + b"-->"))
        began = time.process_time()
        assert expanded(site).complete
        assert time.process_time() - began < 60


class TestRobots:
    def test_pages_and_lists_disallowed_by_robots_txt_are_skipped(self, site: Site) -> None:
        site.says("/robots.txt", reply(b"User-agent: *\nDisallow: /private", mime="text/plain"))
        site.says("/sitemap.xml", xml(index("/private.xml", "/open.xml")))
        site.says("/open.xml", xml(urlset("/a", "/private/b")))
        expansion = expanded(site)
        assert pages(expansion, site) == ["/a"]
        assert left(expansion, site) == {"/private.xml": "robots_refuse", "/private/b": "robots_refuse"}
        assert site.targets == ["/robots.txt", "/sitemap.xml", "/open.xml"]

    def test_a_sitemap_disallowed_by_robots_txt_is_not_fetched(self, site: Site) -> None:
        site.says("/robots.txt", reply(b"User-agent: Holdfast\nDisallow: /", mime="text/plain"))
        refused(site, "robots_refuse")
        assert site.targets == ["/robots.txt"]

    @pytest.mark.parametrize("status", [500, 503, 429])
    def test_nothing_is_fetched_while_robots_txt_is_unavailable(self, site: Site, status: int) -> None:
        site.says("/robots.txt", reply(b"", status=status))
        refused(site, "server_busy", Transient)
        assert site.targets == ["/robots.txt"]

    def test_an_unavailable_robots_txt_of_another_host_is_requested_once(self, site: Site) -> None:
        other = f"http://other.test:{site.port}"
        site.answers["/robots.txt"] = lambda request: [
            reply(b"", status=503 if request.headers["host"].startswith("other") else 404)
        ]
        site.says("/sitemap.xml", xml(urlset("/a", f"{other}/b", f"{other}/c")))
        expansion = expanded(site, hosts=frozenset({"other.test"}), resolve=lambda _: ["127.0.0.1"])
        assert pages(expansion, site) == ["/a"]
        assert not expansion.complete
        assert site.targets.count("/robots.txt") == 2
