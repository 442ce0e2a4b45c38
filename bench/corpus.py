"""Real texts and questions for measurements, without copies of the same text.

The texts come from public collections in a folder (`RETRIEVAL_DATA`, by default `../shared/data`: a book in three
languages, and sets in BEIR layout) and from documentation packages of Debian, in this order. Without both, the pages of
this repository's `docs/` are used, and no questions except sentences of these pages.

A paragraph that occurs a second time, in any document, is left out.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from eval.__main__ import lines, markdown
from holdfast.content.readers.base import ReadLimits
from holdfast.content.readers.documents import html_to_markdown
from holdfast.content.readers.main_part import extract_main_part
from holdfast.errors import Permanent
from tests.support.debian_packages import unpacking

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RETRIEVAL_DATA = Path(os.environ.get("RETRIEVAL_DATA", "../shared/data"))
OWN_PAGES = Path(__file__).parents[1] / "docs"
SETS = ("hotpotqa-300", "cmrc2018", "scifact")
BOOK = "documents/rustbook-en-zh-ja/files"
PACKAGES = (
    "postgresql-doc-15",
    "python3.11-doc",
    "debian-handbook",
    "linux-doc-6.1",
    "libreoffice-help-en-us",
    "libreoffice-help-zh-cn",
    "gimp-help-en",
    "git-doc",
    "python-django-doc",
    "apache2-doc",
    "llvm-14-doc",
    "erlang-doc",
    "cmake-doc",
    "debian-policy",
    "developers-reference",
    "installation-guide-amd64",
    "rust-doc",
)
MAX_PACKAGE_CHARACTERS = 25_000_000
MAX_CHARACTERS = 75_000_000  # of all texts; enough for 100,000 chunks
MIN_COMPARED_CHARACTERS = 40  # a shorter paragraph may occur again
MIN_DOCUMENT_CHARACTERS = 200
NO_WORD = re.compile(r"\W+")
SHORT, LONG = 60, 120  # characters of a short question, at most, and of a long one
SENTENCE = re.compile(r"[^.。!?\n|]+[.。!?]")


@dataclass(frozen=True)
class Questions:
    """Questions of each length, in random order, each once."""

    short: list[str]
    long: list[str]


class Corpus:
    """The texts in a folder, which are collected at the first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "corpus.jsonl"

    def documents(self) -> Iterator[tuple[str, str]]:
        """Yield names and texts, always in the same order."""
        if not self._file.exists():
            self._collect()
        for document in lines(self._file):
            yield document["name"], document["text"]

    def questions(self, count: int, documents: int) -> Questions:
        """Return questions; the long ones are sentences of the first documents, cut to `LONG` characters."""
        chance = random.Random(3)
        sentences: list[str] = []
        for place, (_, text) in enumerate(self.documents()):
            if place == documents:
                break
            found = [one.strip() for one in SENTENCE.findall(text) if len(one.strip()) >= LONG]
            sentences += chance.sample(found, min(2, len(found)))
        chance.shuffle(sentences)
        long = [sentence[:LONG] for sentence in sentences[:count]]
        short = [text for name in SETS for text in _short_questions(name, count // len(SETS) + 1)]
        short += [sentence[:SHORT].rpartition(" ")[0] for sentence in sentences[count : 2 * count - len(short)]]
        chance.shuffle(short)
        return Questions(short[:count], long)

    def _collect(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        seen: set[bytes] = set()
        written = 0
        part = self._file.with_suffix(".part")
        with part.open("w") as file:
            for name, text in self._sources():
                new = _without_known_paragraphs(text, seen)
                if len(new) >= MIN_DOCUMENT_CHARACTERS:
                    file.write(json.dumps({"name": name, "text": new}) + "\n")
                    written += len(new)
                if written >= MAX_CHARACTERS:
                    break
        part.rename(self._file)

    def _sources(self) -> Iterator[tuple[str, str]]:
        before = False
        for document in _collections():
            before = True
            yield document
        packages = self._folder / "packages"
        if not packages.exists():
            try:
                with unpacking(PACKAGES, packages):
                    pass
            except (SystemExit, OSError) as error:
                print(f"  no packages of Debian: {str(error).splitlines()[0]}")
                if not before:
                    yield from ((page.name, page.read_text()) for page in sorted(OWN_PAGES.glob("*.md")))
                return
        yield from _read_packages(packages / "usr/share")


def _collections() -> Iterator[tuple[str, str]]:
    book = RETRIEVAL_DATA / BOOK
    for page in sorted(book.rglob("*.md")):
        yield f"book/{'-'.join(page.relative_to(book).parts)}", page.read_text()
    for name in SETS:
        if (RETRIEVAL_DATA / "retrieval" / name).exists():
            for document in lines(RETRIEVAL_DATA / "retrieval" / name / "corpus.jsonl"):
                yield f"{name}/{document['_id']}.md", markdown(document)


def _read_packages(share: Path) -> Iterator[tuple[str, str]]:
    """Yield the pages of packages as Markdown, up to a limit for each folder of documentation."""
    written: Counter[Path] = Counter()
    for page in sorted(path for path in share.rglob("*.html") if path.is_file()):
        parts = page.relative_to(share).parts
        folder = Path(*parts[:2])
        if written[folder] > MAX_PACKAGE_CHARACTERS:
            continue
        with suppress(Permanent):
            text = html_to_markdown(extract_main_part(page.read_text(errors="replace")), ReadLimits())
            written[folder] += len(text)
            yield f"{'-'.join(parts[1:])}.md", text


def _without_known_paragraphs(text: str, seen: set[bytes]) -> str:
    kept = []
    for paragraph in text.split("\n\n"):
        words = NO_WORD.sub("", paragraph).lower()
        digest = blake2b(words.encode("utf-8", "replace"), digest_size=12).digest()
        if len(words) < MIN_COMPARED_CHARACTERS or digest not in seen:
            kept.append(paragraph)
        seen.add(digest)
    return "\n\n".join(kept)


def _short_questions(name: str, count: int) -> Sequence[str]:
    path = RETRIEVAL_DATA / "retrieval" / name / "queries.jsonl"
    if not path.exists():
        return []
    found = [question["text"] for question in lines(path) if len(question["text"]) <= SHORT]
    return random.Random(5).sample(found, min(count, len(found)))
