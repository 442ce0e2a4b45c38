"""The pages that a site lists: sitemap.xml, lists of such lists, gzip, or one address a line.

What a list names is believed only so far: pages of the same site, a limited number of them, and none that robots.txt
asks programs to leave alone. A part that could not be read leaves the rest standing and is named, since pages that
were listed there before must not be taken for gone.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from holdfast.errors import Permanent, Transient, WorkError
from holdfast.sources import errors
from holdfast.sources.address_policy import PUBLIC, Reach
from holdfast.sources.gunzip import MAGIC, BadGzip, gathered, unpacked
from holdfast.sources.robots import MOST_BYTES, Robots
from holdfast.sources.safe_transport import Resolve, look_up
from holdfast.sources.sitemap_xml import Entry, entries
from holdfast.sources.urls import Url
from holdfast.sources.web import AGENT, MIB, FetchLimits, Page, fetch
from holdfast.url_secrets import masked, secret_in

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

ROBOTS_BYTES = 10 * MOST_BYTES  # a longer file is none
LONGEST_TEXT = 4096
LEFT_LISTED = 1000  # more reasons help nobody


@dataclass(frozen=True, slots=True, kw_only=True)
class SitemapLimits:
    """How much one expansion may cost."""

    pages: int = 10_000
    files: int = 100  # sitemaps in all
    depth: int = 3  # lists of lists of lists
    bytes: int = 50 * MIB  # of one sitemap, unpacked
    total: int = 200 * MIB  # of all
    seconds: float = 300  # for all; one file may take as long as a page
    file_seconds: float = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A page that a sitemap names."""

    url: str
    modified: str | None = None  # what the sitemap says, word for word


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """An address that was left out, and the code of the reason."""

    url: str
    why: str  # elsewhere, robots_refuse, bad_url, too_many, too_deep, or what a fetch refused with


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """What a sitemap came to."""

    pages: tuple[Listed, ...]
    left: tuple[Left, ...]
    complete: bool  # every part was read: a page that is not among these is not listed any more


class _Fetch(Protocol):
    def __call__(self, url: str, *, limits: FetchLimits) -> object: ...


USUAL = SitemapLimits()


def expand(
    url: str,
    *,
    hosts: frozenset[str] = frozenset(),
    limits: SitemapLimits = USUAL,
    reach: Reach = PUBLIC,
    resolve: Resolve = look_up,
    tls: ssl.SSLContext | None = None,
) -> Expansion:
    """List the pages of a sitemap, each once, in its order. Besides its own host, pages of `hosts` are listed.

    Raises what fetching raises if the sitemap itself cannot be had, and `Permanent` if it is none.
    """
    first = Url.parse(url)
    asking = partial(fetch, reach=reach, resolve=resolve, tls=tls)
    return _Expanding(first, hosts | {first.host}, limits, asking).run()


@dataclass(slots=True)
class _Expanding:
    """One expansion under way."""

    first: Url
    hosts: frozenset[str]
    limits: SitemapLimits
    asking: _Fetch
    pages: dict[str, Listed] = field(default_factory=dict)
    left: dict[str, Left] = field(default_factory=dict)
    robots: dict[str, Robots | WorkError] = field(default_factory=dict)
    complete: bool = True
    read: int = 0  # bytes
    end: float = 0.0

    def run(self) -> Expansion:
        """Read one list after the other."""
        self.end = time.monotonic() + self.limits.seconds
        if not self._welcome(self.first):
            raise errors.robots_refuse()
        lists: deque[tuple[Url, int]] = deque([(self.first, 1)])
        seen = {self.first}
        while lists:
            here, depth = lists.popleft()
            for entry in self._entries(here):
                found = self._judged(here, entry)
                if found is None or found in seen:
                    continue
                if not entry.is_list:
                    self._list(found, entry)
                elif depth >= self.limits.depth or len(seen) >= self.limits.files:
                    self._leave(str(found), "too_deep" if depth >= self.limits.depth else "too_many", cut=True)
                else:
                    seen.add(found)
                    lists.append((found, depth + 1))
        return Expansion(pages=tuple(self.pages.values()), left=tuple(self.left.values()), complete=self.complete)

    def _entries(self, here: Url) -> Iterator[Entry]:
        """Read one list. Only the first one must be readable; what went wrong with another is noted."""
        try:
            for entry in entries(self._got(here)):
                if len(self.pages) >= self.limits.pages and entry.url not in self.pages:
                    self._leave(entry.url, "too_many", cut=True)
                    return
                self._time_left()
                yield entry
        except WorkError as error:
            if here == self.first and not self.pages:
                raise
            self._leave(str(here), error.code, cut=True)

    def _got(self, here: Url) -> bytes:
        """Fetch one list, and unpack it if it is packed."""
        most = min(self.limits.bytes, self.limits.total - self.read)
        seconds = min(self._time_left(), self.limits.file_seconds)
        page = self.asking(str(here), limits=FetchLimits(seconds=seconds, bytes=most))
        body = page.body if isinstance(page, Page) else b""
        if body.startswith(MAGIC):
            try:
                body = gathered(unpacked([body], most), most)
            except BadGzip:
                raise errors.not_a_sitemap() from None
        self.read += len(body)
        return body

    def _time_left(self) -> float:
        left = self.end - time.monotonic()
        if left <= 0:
            raise errors.fetched_too_slowly(self.limits.seconds)
        return left

    def _list(self, found: Url, entry: Entry) -> None:
        self.pages.setdefault(str(found), Listed(url=str(found), modified=entry.modified))

    def _judged(self, here: Url, entry: Entry) -> Url | None:
        """Return the address of an entry if it may be asked."""
        try:
            found = here.join(entry.url)
        except Permanent as error:
            self._leave(entry.url, error.code)
            return None
        if secret_in(str(found)):  # the address of a page is stored
            self._leave(masked(str(found)), "secret_in_address")
            return None
        if found.host not in self.hosts:
            self._leave(str(found), "elsewhere")
            return None
        try:
            welcome = self._welcome(found)
        except Transient as error:
            self._leave(str(found), error.code, cut=True)
            return None
        if not welcome:
            self._leave(str(found), "robots_refuse")
        return found if welcome else None

    def _welcome(self, url: Url) -> bool:
        """Tell whether the site lets programs read an address; its rules are asked for once."""
        origin = f"{url.scheme}://{url.authority}"
        if origin not in self.robots:
            self.robots[origin] = self._rules(origin)
        rules = self.robots[origin]
        if isinstance(rules, WorkError):
            raise rules
        return rules.allows(url.target)

    def _rules(self, origin: str) -> Robots | WorkError:
        """Ask for the rules of a site: where there are none all is allowed, where they cannot be had nothing is."""
        limits = FetchLimits(seconds=min(self._time_left(), self.limits.file_seconds), bytes=ROBOTS_BYTES)
        try:
            page = self.asking(f"{origin}/robots.txt", limits=limits)
        except Transient as error:
            return error
        except Permanent:
            return Robots()
        return Robots.read(page.body.decode("utf-8", "replace") if isinstance(page, Page) else "", AGENT)

    def _leave(self, url: str, why: str, *, cut: bool = False) -> None:
        self.complete = self.complete and not cut
        if len(self.left) < LEFT_LISTED:
            self.left.setdefault(url[:LONGEST_TEXT], Left(url=url[:LONGEST_TEXT], why=why))
