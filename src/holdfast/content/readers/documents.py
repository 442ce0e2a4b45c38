"""Formats that kreuzberg parses: PDF, Word, Excel, PowerPoint, OpenDocument, EPUB, RTF, Outlook messages and HTML.

kreuzberg is native code that parses hostile files, so this module runs only in the sandbox. It produces Markdown,
without text recognition, without its cache and without opening embedded files. For old Word and Outlook files it
produces plain text, because its Markdown joins their lines into one paragraph. Its additions are removed afterwards:
pictures, slide separators, the metadata of web pages.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.content import errors
from holdfast.content.readers.base import ExtractedText, ReadLimits
from holdfast.content.readers.cleaning import (
    clean,
    collapse_blank_lines,
    drop_placeholder,
    first_heading,
    has_words,
    to_short_line,
)
from holdfast.content.readers.decoding import decode
from holdfast.content.readers.files import BoundedFile, read_bytes
from holdfast.content.readers.formats import DOC, EPUB, HTML, MSG, ODS, PDF, PPT, PPTX, XLS, XLSX, FileFormat
from holdfast.content.readers.main_part import extract_main_part
from holdfast.content.readers.ole import is_intact, pad_to_fat
from holdfast.content.readers.pdf_pages import page_starts
from holdfast.content.readers.plain import encoding_warnings
from holdfast.errors import Permanent, Transient

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PLAIN_OUTPUT = (DOC, MSG)
SLIDES = (PPT, PPTX)
SHEETS = (XLS, XLSX, ODS)
COMPOUND = (DOC, MSG, PPT, XLS)
MARKER = "\ue000slide {page_num}\ue000"
MARKERS = re.compile(r"\ue000slide \d+\ue000")
SLIDE_RULE = re.compile(r"^-{5}$", re.MULTILINE)
LIMIT_MESSAGE = re.compile(r"security limit exceeded|exceeds (?:the )?(?:limit|maximum)", re.IGNORECASE)
PROTECTION_MESSAGE = re.compile(r"password.protected|password required|encrypted", re.IGNORECASE)

# Pictures and script links are reduced to their text, and dropped if that is only a file name. These patterns run on
# hostile text, so none of them may scan far for a missing end.
LINK_TEXT = r"\[([^\[\]\n]*)\]"
LINK_TARGET = r"\((?:<[^<>\n]*>|(?:[^()\n]|\([^()\n]*\))*)\)"
PICTURE = re.compile(rf"\\?!{LINK_TEXT}{LINK_TARGET}")
SCRIPT_LINK = re.compile(rf"{LINK_TEXT}(?=\(\s*(?:javascript|vbscript|data):){LINK_TARGET}", re.IGNORECASE)
PICTURE_NAME = re.compile(r"\S+\.(?:png|jpe?g|gif|bmp|tiff?|svg|emf|wmf|webp)", re.IGNORECASE)
# kreuzberg turns the HTML head of each chapter into a block of `key: value` lines between rules.
CHAPTER_HEAD = re.compile(r"^---\n(?=(?:[\w:.-]+: .*\n)*?(?:meta-|title:))(?:[\w:.-]+: .*\n)+---\n", re.MULTILINE)

PROBE_WORD = "heron"
PROBE = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R/Resources<</Font<</F 5 0 R>>>>>>endobj\n"
    b"4 0 obj<</Length 38>>stream\nBT /F 12 Tf 20 100 Td (heron) Tj ET   \nendstream endobj\n"
    b"5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF"
)

DECLARED_CHARSET = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]*?(?:charset|encoding)\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE
)
DECLARED_WITHIN = 4096
TITLE = re.compile(r"<title\b[^<>]*>([^<]*)</title", re.IGNORECASE)
NON_TEXT_TAG = re.compile(r"<(/?)(title|script|style|svg|iframe|template|noscript)\b[^<>]*>", re.IGNORECASE)
HEAD_TAG = re.compile(r"<(?:meta|link|base)\b[^<>]*>", re.IGNORECASE)


def read_with_kreuzberg(path: Path, format_: FileFormat, limits: ReadLimits) -> ExtractedText:
    return _KreuzbergReader(path, format_, limits).read()


@dataclass(frozen=True, slots=True)
class _KreuzbergReader:
    path: Path
    format: FileFormat
    limits: ReadLimits

    def read(self) -> ExtractedText:
        kreuzberg = _import_kreuzberg()
        try:
            return self._build_text(self._extract(kreuzberg))
        except (kreuzberg.KreuzbergError, RuntimeError, ValueError, OSError) as error:
            raise self._explain_failure(error) from None

    def _extract(self, kreuzberg: Any) -> Any:
        mime, config = self.format.mime, self._config(kreuzberg)
        if self.format in (*COMPOUND, *SHEETS):  # from a path kreuzberg reports a protected sheet as a broken one
            data = read_bytes(self.path, self.limits)
            if self.format in COMPOUND and _is_intact_ole(self.path):
                data = pad_to_fat(data)
            return kreuzberg.extract_bytes_sync(data, mime, config)
        with self.path.open("rb") as file:
            place = f"/dev/fd/{file.fileno()}"  # kreuzberg accepts only UTF-8 paths
            if self.format == PDF:
                self._check_pages(len(kreuzberg.PdfPageIterator(place)))
            return kreuzberg.extract_file_sync(place, mime, config)

    def _explain_failure(self, error: Exception) -> Exception:
        """Find out whether the disk, PDFium or the file is at fault. Zip containers were checked before."""
        read_bytes(self.path, self.limits)  # raises if the disk is at fault
        if self.format == PDF and (fault := find_pdfium_fault()):
            return Transient("reader_broken", params={"library": "PDFium", "detail": fault})
        damaged = self.format == PDF or (self.format in COMPOUND and not _is_intact_ole(self.path))
        return _classify_error(error, self.limits, damaged=damaged)

    def _check_pages(self, count: int) -> None:
        if count > self.limits.pages:
            raise Permanent("too_many_pages", params={"pages": f"{count:,}", "most": f"{self.limits.pages:,}"})

    def _config(self, kreuzberg: Any) -> Any:
        slides = kreuzberg.PageConfig(insert_page_markers=True, marker_format=f"\n\n{MARKER}\n\n")
        config = _config(kreuzberg, "plain" if self.format in PLAIN_OUTPUT else "markdown")
        config.pages = slides if self.format == PPTX else None
        config.include_document_structure = self.format == PDF
        return config

    def _build_text(self, result: Any) -> ExtractedText:
        parts = [_clean_output(part, self.format) for part in MARKERS.split(result.content)]
        first, *slides = parts
        text = collapse_blank_lines("\n\n".join(part for part in parts if part))
        if not has_words(text):
            raise errors.no_text()
        pages = page_starts(text, result.document["nodes"]) if self.format == PDF else _slide_starts(slides, first)
        self._check_pages(len(pages))
        return ExtractedText(
            text=text,
            title=self._title(result.metadata, text),
            pages=pages,
            metadata={"mime": self.format.mime} | _metadata(result.metadata),
            warnings=tuple(
                f"A part was not read: {to_short_line(note.source)}." for note in result.processing_warnings
            ),
        )

    def _title(self, found: Mapping[str, Any], text: str) -> str | None:
        """Return the title from the metadata, else the first heading; headings of spreadsheets are only sheet names."""
        title = drop_placeholder(found.get("subject" if self.format == MSG else "title"))
        return title if title or self.format in SHEETS else first_heading(text)


def read_html(path: Path, format_: FileFormat, limits: ReadLimits) -> ExtractedText:
    """Decode a web page here, since kreuzberg assumes UTF-8, and let kreuzberg convert it to Markdown.

    Of a fetched page (`format_.main`) only the main part is converted.
    """
    data = read_bytes(path, limits)
    declared = DECLARED_CHARSET.search(data[:DECLARED_WITHIN])
    decoded = decode(data, declared[1].decode("ascii") if declared else None)
    page = extract_main_part(_drop_non_text(decoded.text)) if format_.main else decoded.text
    text = html_to_markdown(page, limits)
    if not has_words(text):
        raise errors.no_text()
    title = TITLE.search(decoded.text)
    return ExtractedText(
        text=text,
        title=(drop_placeholder(html.unescape(title[1])) if title else None) or first_heading(text),
        metadata=format_.metadata,
        warnings=encoding_warnings(decoded),
    )


def find_pdfium_fault() -> str | None:
    """Read a known PDF, which loads PDFium; return why that failed, or None if PDFium works.

    The error message of kreuzberg is not compared, so the check does not depend on its version.
    """
    try:
        kreuzberg = _import_kreuzberg()
        found = kreuzberg.extract_bytes_sync(PROBE, PDF.mime, _config(kreuzberg, "plain")).content
    except Permanent:  # kreuzberg is not installed; that is reported separately
        return None
    except (kreuzberg.KreuzbergError, RuntimeError, ValueError, OSError) as error:
        return to_short_line(str(error))
    return None if PROBE_WORD in found else "a known file was read without its text"


def html_to_markdown(page: str, limits: ReadLimits) -> str:
    """Convert HTML to Markdown without scripts, styles and pictures."""
    kreuzberg = _import_kreuzberg()
    body = HEAD_TAG.sub(" ", _drop_non_text(page)).encode("utf-8", "replace")
    try:
        result = kreuzberg.extract_bytes_sync(body, HTML.mime, _config(kreuzberg, "markdown"))
    except (kreuzberg.KreuzbergError, RuntimeError, ValueError) as error:
        raise _classify_error(error, limits, damaged=False) from None
    return collapse_blank_lines(_clean_output(result.content, HTML))


def _drop_non_text(page: str) -> str:
    """Remove elements without visible text. An element without an end tag reaches to the end of the page."""
    parts, here, inside = [], 0, ""
    for tag in NON_TEXT_TAG.finditer(page):
        name = tag[2].lower()
        if inside == name and tag[1]:
            inside, here = "", tag.end()
        elif not inside and not tag[1] and not tag[0].endswith("/>"):
            parts.append(page[here : tag.start()])
            inside = name
    return " ".join(parts if inside else [*parts, page[here:]])


def _import_kreuzberg() -> Any:
    try:
        return import_module("kreuzberg")
    except ModuleNotFoundError:
        raise Permanent("reader_missing") from None


def _config(kreuzberg: Any, output: str) -> Any:
    """Configure kreuzberg for text only. Embedded files stay closed, because they were not checked for zip bombs."""
    config = kreuzberg.ExtractionConfig(
        use_cache=False,
        disable_ocr=True,
        output_format=output,
        concurrency=kreuzberg.ConcurrencyConfig(max_threads=1),
    )
    config.max_archive_depth = 0
    return config


def _classify_error(error: Exception, limits: ReadLimits, *, damaged: bool) -> Exception:
    """Classify an error by the message of kreuzberg. The message is not passed on: it may quote the file."""
    if LIMIT_MESSAGE.search(str(error)):
        return errors.unpacked_too_large(limits.expanded)
    if PROTECTION_MESSAGE.search(str(error)):
        return errors.encrypted()
    return errors.unreadable() if damaged else errors.reader_failed()


def _is_intact_ole(path: Path) -> bool:
    with BoundedFile(path) as file:
        return is_intact(file)


def _clean_output(text: str, kind: FileFormat) -> str:
    text = clean(text)
    if kind in SLIDES:
        text = SLIDE_RULE.sub("", text)
    if kind == EPUB:
        text = CHAPTER_HEAD.sub("", text)
    if kind in PLAIN_OUTPUT:
        return collapse_blank_lines(text)
    return collapse_blank_lines(clean(SCRIPT_LINK.sub(r"\1", PICTURE.sub(_picture_text, text))))


def _picture_text(picture: re.Match[str]) -> str:
    return "" if PICTURE_NAME.fullmatch(picture[1]) else picture[1]


def _slide_starts(slides: list[str], before: str) -> tuple[int, ...]:
    """Return the offset of each slide in the parts joined by an empty line."""
    starts = []
    offset = len(before) + 2 if before else 0
    for slide in slides:
        starts.append(offset)
        offset += len(slide) + 2 if slide else 0
    return tuple(starts)


def _metadata(found: Mapping[str, Any]) -> dict[str, str]:
    facts = {
        "author": ", ".join(str(author) for author in found.get("authors") or ()),
        "created": found.get("created_at"),
        "modified": found.get("modified_at"),
        "language": found.get("language"),
        "subject": found.get("subject"),
    }
    return {key: line for key, value in facts.items() if (line := drop_placeholder(value))}
