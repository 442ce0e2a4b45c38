"""Identifies the format of a file by its first bytes, and for text by its name.

A wrong extension does not matter for formats with a signature. Text has no signature, so its extension decides between
Markdown, tables and programming languages. Only text without a known extension is identified by its first words. Zip
and OLE containers are opened later, in the sandbox.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from holdfast.content import errors
from holdfast.content.readers.decoding import is_text
from holdfast.content.readers.ole import root_names
from holdfast.errors import Permanent

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import BinaryIO

HEAD_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFormat:
    mime: str
    language: str = ""  # of source code
    plain: bool = False  # needs no parser, only decoding
    main: bool = False  # read only the main part of a web page

    @property
    def metadata(self) -> dict[str, str]:
        return {"mime": self.mime} | ({"programming_language": self.language} if self.language else {})


def _plain(mime: str) -> FileFormat:
    return FileFormat(mime=mime, plain=True)


def _office(part: str) -> FileFormat:
    return FileFormat(mime=f"application/vnd.openxmlformats-officedocument.{part}")


def _opendocument(part: str) -> FileFormat:
    return FileFormat(mime=f"application/vnd.oasis.opendocument.{part}")


TEXT, MARKDOWN = _plain("text/plain"), _plain("text/markdown")
HTML, MAIL = FileFormat(mime="text/html"), FileFormat(mime="message/rfc822")
FETCHED_HTML = FileFormat(mime="text/html", main=True)
NOTEBOOK = FileFormat(mime="application/x-ipynb+json")
PDF, RTF = FileFormat(mime="application/pdf"), FileFormat(mime="application/rtf")
ZIP, OLE = FileFormat(mime="application/zip"), FileFormat(mime="application/x-ole-storage")
DOCX, PPTX = _office("wordprocessingml.document"), _office("presentationml.presentation")
XLSX, EPUB = _office("spreadsheetml.sheet"), FileFormat(mime="application/epub+zip")
ODT, ODS, ODP = _opendocument("text"), _opendocument("spreadsheet"), _opendocument("presentation")
DOC, XLS = FileFormat(mime="application/msword"), FileFormat(mime="application/vnd.ms-excel")
PPT, MSG = FileFormat(mime="application/vnd.ms-powerpoint"), FileFormat(mime="application/vnd.ms-outlook")

SIGNATURES = (
    (b"%PDF-", PDF),
    (b"PK\x03\x04", ZIP),
    (b"PK\x05\x06", ZIP),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", OLE),
    (b"{\\rtf", RTF),
)
PDF_MARKS = (b"%PDF-", b"endobj")  # the signature of a PDF may be missing or preceded by junk

TEXT_EXTENSIONS = {
    "md markdown mdown mkd mdx qmd rmd": MARKDOWN,
    "txt text log rst adoc asciidoc org nfo srt vtt": TEXT,
    "csv": _plain("text/csv"),
    "tsv tab": _plain("text/tab-separated-values"),
    "json jsonl ndjson geojson json5": _plain("application/json"),
    "xml xsd xsl xslt rss atom svg opml plist": _plain("application/xml"),
    "yaml yml": _plain("application/yaml"),
    "toml": _plain("application/toml"),
    "ini cfg conf properties env": TEXT,
    "tex latex sty cls bib": _plain("application/x-latex"),
    "html htm xhtml shtml": HTML,
    "eml mht mhtml": MAIL,
    "ipynb": NOTEBOOK,
}
CODE_EXTENSIONS = {
    "ada adb ads": "ada",
    "asm s": "assembly",
    "bat cmd": "batch",
    "c h": "c",
    "cc cpp cxx hh hpp hxx": "cpp",
    "clj cljs cljc edn": "clojure",
    "cmake": "cmake",
    "coffee": "coffeescript",
    "cs csx": "csharp",
    "css": "css",
    "dart": "dart",
    "diff patch": "diff",
    "dockerfile containerfile": "dockerfile",
    "el lisp lsp cl scm rkt": "lisp",
    "erl hrl": "erlang",
    "ex exs": "elixir",
    "f f77 f90 f95 f03 for": "fortran",
    "fs fsi fsx": "fsharp",
    "go": "go",
    "gql graphql": "graphql",
    "gradle groovy": "groovy",
    "hs lhs": "haskell",
    "java": "java",
    "jl": "julia",
    "js cjs mjs jsx": "javascript",
    "kt kts": "kotlin",
    "less": "less",
    "lua": "lua",
    "m mm": "objective-c",
    "makefile mk gnumakefile": "makefile",
    "ml mli": "ocaml",
    "nim": "nim",
    "nix": "nix",
    "pas pp": "pascal",
    "php": "php",
    "pl pm t": "perl",
    "proto": "protobuf",
    "ps1 psm1": "powershell",
    "py pyi pyw pyx": "python",
    "r": "r",
    "rb rake gemfile rakefile": "ruby",
    "rs": "rust",
    "sass scss": "scss",
    "scala sc": "scala",
    "sh bash zsh fish ksh": "shell",
    "sol": "solidity",
    "sql": "sql",
    "svelte": "svelte",
    "swift": "swift",
    "tcl": "tcl",
    "tf hcl": "terraform",
    "ts tsx mts cts": "typescript",
    "v sv vhd vhdl": "hdl",
    "vb vbs bas": "basic",
    "vim": "vim",
    "vue": "vue",
    "wat": "webassembly",
    "zig": "zig",
}
FORMAT_BY_EXTENSION = {word: format_ for words, format_ in TEXT_EXTENSIONS.items() for word in words.split()} | {
    word: FileFormat(mime=f"text/x-{language}", language=language, plain=True)
    for words, language in CODE_EXTENSIONS.items()
    for word in words.split()
}
PARSED = "pdf docx docm dotx pptx pptm ppsx xlsx xlsm xlsb epub odt ods odp doc xls ppt pps msg rtf"
PARSED_EXTENSIONS = frozenset(PARSED.split())

HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
MAIL_HEADERS = frozenset(b"from to date subject message-id received return-path mime-version delivered-to".split())
ENOUGH_HEADERS = 3
UTF8_BOM = b"\xef\xbb\xbf"

ZIP_FOLDERS = (("word/", DOCX), ("ppt/", PPTX), ("xl/", XLSX))
ZIP_MIMES = {format_.mime.encode(): format_ for format_ in (EPUB, ODT, ODS, ODP)}
OLE_STREAMS = (
    ("__properties_version1.0", MSG),
    ("WordDocument", DOC),
    ("Workbook", XLS),
    ("Book", XLS),
    ("PowerPoint Document", PPT),
)
PROTECTED_STREAMS = frozenset({"EncryptedPackage", "EncryptedSummary", "\tDRMContent"})


def identify_format(head: bytes, name: str) -> FileFormat:
    """Return the format of a file by its first bytes and its name; refuse unsupported formats."""
    extension = _extension(name)
    start = head.removeprefix(UTF8_BOM).lstrip()
    for signature, format_ in SIGNATURES:
        if start.startswith(signature):
            return format_
    if extension == "pdf" and any(mark in head for mark in PDF_MARKS):
        return PDF
    if not is_text(head):
        raise errors.unreadable() if extension in PARSED_EXTENSIONS else Permanent("unsupported_format")
    return _identify_text(head, extension)


def identify_zip(names: Collection[str], mime: bytes) -> FileFormat:
    """Return the format of a zip container by the names of its entries and the content of its entry `mimetype`."""
    if mime.strip() in ZIP_MIMES:
        return ZIP_MIMES[mime.strip()]
    for folder, format_ in ZIP_FOLDERS:
        if any(name.lower().startswith(folder) for name in names):
            return format_
    if "META-INF/container.xml" in names:
        return EPUB
    raise Permanent("unsupported_archive")


def identify_ole(file: BinaryIO, name: str) -> FileFormat:
    """Return the format of an OLE container by the names under its root, or by its extension if they are unreadable."""
    names = root_names(file)
    if names & PROTECTED_STREAMS:
        raise errors.encrypted()
    for stream, format_ in OLE_STREAMS:
        if stream in names:
            return format_
    named = {"doc": DOC, "xls": XLS, "ppt": PPT, "pps": PPT, "msg": MSG}.get(_extension(name))
    if named is None:
        raise Permanent("unsupported_container")
    return named


def _identify_text(head: bytes, extension: str) -> FileFormat:
    named = FORMAT_BY_EXTENSION.get(extension, TEXT)
    if extension in FORMAT_BY_EXTENSION and extension != "txt":
        return named
    letters = head.replace(b"\0", b"")  # so that UTF-16 matches, too
    if HTML_START.match(letters.lstrip(b"\xef\xbb\xbf\xff\xfe")):
        return HTML
    if extension != "txt" and _looks_like_mail(letters):
        return MAIL
    return named


def _looks_like_mail(head: bytes) -> bool:
    top = re.split(rb"\r?\n\r?\n", head, maxsplit=1)[0]
    names = {line.split(b":", 1)[0].lower() for line in top.splitlines() if b":" in line}
    return len(names & MAIL_HEADERS) >= ENOUGH_HEADERS


def _extension(name: str) -> str:
    """Return the extension in lower case; the whole name if it has none, as `makefile`."""
    return PurePath(name).name.lower().rpartition(".")[2]
