"""Lists the pages of a sitemap: sitemap.xml, sitemap indexes, gzip, or one address per line.

Only pages of the same site are listed, a limited number of them, and none that robots.txt disallows. If a part cannot
be read, the other parts are still listed and the failure is reported, so that pages of that part are not taken for
deleted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from holdfast.content import MIB
from holdfast.errors import Permanent, Transient, WorkError
from holdfast.sources import errors
from holdfast.sources.address_policy import PUBLIC_ONLY, Reach
from holdfast.sources.gunzip import GZIP_MAGIC, BadGzip, decompress, join_limited
from holdfast.sources.robots import MOST_BYTES, Robots
from holdfast.sources.safe_transport import USER_AGENT, Deadline, Resolver, resolve_host
from holdfast.sources.sitemap_xml import SitemapEntry, parse_sitemap
from holdfast.sources.urls import Url
from holdfast.sources.web import FetchedPage, FetchLimits, Unchanged, fetch
from holdfast.url_secrets import find_secret, mask_secrets

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator

ROBOTS_BYTES = 10 * MOST_BYTES  # a larger file is not a robots.txt
LONGEST_TEXT = 4096
MAX_SKIPPED = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SitemapLimits:
    pages: int = 10_000
    files: int = 100  # sitemaps in all
    depth: int = 3  # of nested sitemap indexes
    bytes: int = 50 * MIB  # of one sitemap, unpacked
    total: int = 200 * MIB  # of all sitemaps
    seconds: float = 300  # for all sitemaps
    file_seconds: float = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPage:
    url: str
    modified: str | None = None  # exactly as in the sitemap


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedUrl:
    url: str
    reason: str  # elsewhere, robots_refuse, bad_url, too_many, too_deep, or the code of a failed fetch


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    pages: tuple[ListedPage, ...]
    skipped: tuple[SkippedUrl, ...]
    complete: bool  # every part was read, so a page that is missing here is no longer listed


DEFAULT_LIMITS = SitemapLimits()


def expand(
    url: str,
    *,
    hosts: frozenset[str] = frozenset(),
    limits: SitemapLimits = DEFAULT_LIMITS,
    reach: Reach = PUBLIC_ONLY,
    resolve: Resolver = resolve_host,
    tls: ssl.SSLContext | None = None,
) -> Expansion:
    """List the pages of a sitemap, each once, in order; pages on its own host and on `hosts`.

        expansion = expand("https://example.org/sitemap.xml")
        [page.url for page in expansion.pages]

    Raises the error of `fetch` if the sitemap itself cannot be fetched, and `Permanent` if it is not a sitemap.
    """
    first = Url.parse(url)
    fetcher = partial(fetch, reach=reach, resolve=resolve, tls=tls)
    return _SitemapExpander(first, hosts | {first.host}, limits, fetcher, Deadline(limits.seconds)).run()


@dataclass(slots=True)
class _SitemapExpander:
    first: Url
    hosts: frozenset[str]
    limits: SitemapLimits
    fetcher: Callable[..., FetchedPage | Unchanged]
    deadline: Deadline
    pages: dict[str, ListedPage] = field(default_factory=dict)
    skipped: dict[str, SkippedUrl] = field(default_factory=dict)
    robots: dict[str, Robots | WorkError] = field(default_factory=dict)
    complete: bool = True
    bytes_read: int = 0

    def run(self) -> Expansion:
        if not self._is_allowed(self.first):
            raise Permanent("robots_refuse")
        lists: deque[tuple[Url, int]] = deque([(self.first, 1)])
        seen = {self.first}
        while lists:
            here, depth = lists.popleft()
            for entry in self._entries(here):
                found = self._resolve_entry(here, entry)
                if found is None or found in seen:
                    continue
                if not entry.is_list:
                    self._add_page(found, entry)
                elif depth >= self.limits.depth or len(seen) >= self.limits.files:
                    self._skip(str(found), "too_deep" if depth >= self.limits.depth else "too_many", cut=True)
                else:
                    seen.add(found)
                    lists.append((found, depth + 1))
        return Expansion(pages=tuple(self.pages.values()), skipped=tuple(self.skipped.values()), complete=self.complete)

    def _entries(self, here: Url) -> Iterator[SitemapEntry]:
        """Yield the entries of one sitemap. Only the first sitemap must be readable; other failures are recorded."""
        try:
            for entry in parse_sitemap(self._fetch_list(here)):
                if len(self.pages) >= self.limits.pages and entry.url not in self.pages:
                    self._skip(entry.url, "too_many", cut=True)
                    return
                self.deadline.seconds_left()
                yield entry
        except WorkError as error:
            if here == self.first and not self.pages:
                raise
            self._skip(str(here), error.code, cut=True)

    def _fetch_list(self, here: Url) -> bytes:
        most = min(self.limits.bytes, self.limits.total - self.bytes_read)
        seconds = min(self.deadline.seconds_left(), self.limits.file_seconds)
        page = self.fetcher(str(here), limits=FetchLimits(seconds=seconds, bytes=most))
        body = page.body if isinstance(page, FetchedPage) else b""
        if body.startswith(GZIP_MAGIC):
            try:
                body = join_limited(decompress([body], most), most)
            except BadGzip:
                raise errors.not_a_sitemap() from None
        self.bytes_read += len(body)
        return body

    def _add_page(self, found: Url, entry: SitemapEntry) -> None:
        self.pages.setdefault(str(found), ListedPage(url=str(found), modified=entry.modified))

    def _resolve_entry(self, here: Url, entry: SitemapEntry) -> Url | None:
        """Return the address of an entry if it may be fetched; otherwise record why not."""
        try:
            found = here.join(entry.url)
        except Permanent as error:
            self._skip(entry.url, error.code)
            return None
        if find_secret(str(found)):  # the address of a page is stored
            self._skip(mask_secrets(str(found)), "secret_in_address")
            return None
        if found.host not in self.hosts:
            self._skip(str(found), "elsewhere")
            return None
        try:
            allowed = self._is_allowed(found)
        except Transient as error:
            self._skip(str(found), error.code, cut=True)
            return None
        if not allowed:
            self._skip(str(found), "robots_refuse")
        return found if allowed else None

    def _is_allowed(self, url: Url) -> bool:
        """Return whether robots.txt allows an address; each robots.txt is fetched once."""
        origin = f"{url.scheme}://{url.authority}"
        if origin not in self.robots:
            self.robots[origin] = self._fetch_robots(origin)
        rules = self.robots[origin]
        if isinstance(rules, WorkError):
            raise rules
        return rules.allows(url.target)

    def _fetch_robots(self, origin: str) -> Robots | WorkError:
        """Fetch robots.txt. A site without one allows everything; if it cannot be fetched now, nothing is allowed."""
        limits = FetchLimits(seconds=min(self.deadline.seconds_left(), self.limits.file_seconds), bytes=ROBOTS_BYTES)
        try:
            page = self.fetcher(f"{origin}/robots.txt", limits=limits)
        except Transient as error:
            return error
        except Permanent:
            return Robots()
        return Robots.parse(page.body.decode("utf-8", "replace") if isinstance(page, FetchedPage) else "", USER_AGENT)

    def _skip(self, url: str, why: str, *, cut: bool = False) -> None:
        self.complete = self.complete and not cut
        if len(self.skipped) < MAX_SKIPPED:
            self.skipped.setdefault(url[:LONGEST_TEXT], SkippedUrl(url=url[:LONGEST_TEXT], reason=why))
