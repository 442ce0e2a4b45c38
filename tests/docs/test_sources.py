"""docs/sources.md describes the limits and errors of folders, pages and sitemaps as the code has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.content.errors import MIB
from holdfast.sources.address_policy import WEB_PORTS
from holdfast.sources.folder import FolderRules, SkipReason
from holdfast.sources.sitemaps import SitemapLimits
from holdfast.sources.web import FetchLimits

LONGEST = round(SitemapLimits().seconds / 60)
ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/sources.md").read_text()
CODES = [
    code
    for module in (ROOT / "src/holdfast/sources").glob("*.py")
    for code in re.findall(r'(?:Permanent|Transient)\(\s*"(\w+)"', module.read_text())
]


@pytest.mark.parametrize("name", sorted({*SkipReason, *CODES}))
def test_every_reason_is_explained(name: str) -> None:
    assert re.search(rf"^\|[^|]*`{name}`", TEXT, re.MULTILINE)


@pytest.mark.parametrize(
    "words",
    [
        f"{FolderRules().depth} folders deep, {FolderRules().files:,} files",
        f"take {FetchLimits().seconds} seconds in all and have {FetchLimits().bytes // MIB} MiB",
        f"each redirect ({FetchLimits().redirects} at most)",
        "ports other than {}, {}, {} and {}".format(*sorted(WEB_PORTS)),
        f"At most {SitemapLimits().pages:,} pages, {SitemapLimits().files}",
        f"{SitemapLimits().depth} levels, {SitemapLimits().bytes // MIB} MiB a file and {LONGEST} minutes",
    ],
)
def test_every_documented_limit_is_that_of_the_code(words: str) -> None:
    assert words in " ".join(TEXT.split())
