"""Parses one sitemap: XML without a document type, or one address per line."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from xml.parsers import expat

from holdfast.sources import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

UTF8_BOM = b"\xef\xbb\xbf"
NAMESPACE_END = "}"
PARSED_BYTES = 1 << 20  # smaller pieces make expat rescan long tokens
DEEPEST = 32
LONGEST_TEXT = 8192
ENTRY_TAG_BY_ROOT = {"urlset": "url", "sitemapindex": "sitemap"}
URL_PREFIXES = ("http://", "https://")
ENTRY_DEPTH, PART_DEPTH = 2, 3  # depths in the tree


class SitemapEntry(NamedTuple):
    is_list: bool  # another sitemap, not a page
    url: str
    modified: str | None


def parse_sitemap(body: bytes) -> Iterator[SitemapEntry]:
    """Yield the entries of a sitemap; raise `Permanent` if it is none."""
    start = body[:64].removeprefix(UTF8_BOM).lstrip()
    if start.startswith(b"<"):
        yield from _SitemapParser().read(body)
        return
    lines = [line for line in body.removeprefix(UTF8_BOM).decode("utf-8", "replace").split() if line]
    if not lines or not lines[0].lower().startswith(URL_PREFIXES):
        raise errors.not_a_sitemap()
    for line in lines:
        yield SitemapEntry(is_list=False, url=line, modified=None)


class _SitemapParser:
    """Parses sitemap XML. A document type is refused before its declarations are read."""

    def __init__(self) -> None:
        self._parser = expat.ParserCreate(namespace_separator=NAMESPACE_END)
        self._parser.buffer_text = True
        self._parser.StartDoctypeDeclHandler = self._refuse_doctype
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._path: list[str] = []
        self._parts: dict[str, str] = {}
        self._found: list[SitemapEntry] = []

    def read(self, body: bytes) -> Iterator[SitemapEntry]:
        try:
            for start in range(0, len(body), PARSED_BYTES):
                self._parser.Parse(body[start : start + PARSED_BYTES], start + PARSED_BYTES >= len(body))
                yield from self._found
                self._found.clear()
        except (expat.ExpatError, ValueError, LookupError):  # damaged, or in an unknown encoding
            raise errors.not_a_sitemap() from None

    def _refuse_doctype(self, *_: object) -> None:
        raise errors.not_a_sitemap()

    def _begin(self, name: str, _: object) -> None:
        self._path.append(name.rpartition(NAMESPACE_END)[2])
        if len(self._path) > DEEPEST or self._path[0] not in ENTRY_TAG_BY_ROOT:
            raise errors.not_a_sitemap()
        if len(self._path) == ENTRY_DEPTH:
            self._parts = {}

    def _text(self, text: str) -> None:
        if len(self._path) == PART_DEPTH:
            part = self._path[-1]
            self._parts[part] = (self._parts.get(part, "") + text)[:LONGEST_TEXT]

    def _end(self, _: str) -> None:
        root, *rest = self._path
        if rest == [ENTRY_TAG_BY_ROOT[root]] and self._parts.get("loc", "").strip():
            modified = self._parts.get("lastmod", "").strip()
            self._found.append(SitemapEntry(root == "sitemapindex", self._parts["loc"].strip(), modified or None))
        self._path.pop()
