"""Markdown of untrusted documents becomes text, links and tables, and no active content."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from holdfast.web.markdown import ATTRIBUTES, SCHEMES, TAGS, is_markdown, render_markdown

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<svg onload=alert(1)><a xlink:href='javascript:alert(1)'>x</a></svg>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<a href='javascript:alert(1)' onclick=alert(1)>x</a>",
    "<form action='https://evil.example'><button>x</button></form>",
    "<base href='https://evil.example/'><meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<div style='position:fixed;inset:0'>x</div>",
    "<!-- --!><img src=x onerror=alert(1)> -->",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](java&Tab;script:alert(1))",
    "[x](<java\tscript:alert(1)>)",
    "[x](\x01javascript:alert(1))",
    "[x](vbscript:x)",
    "[x](data:text/html;base64,PHNjcmlwdD4=)",
    "[x](data:image/svg+xml,<svg onload=alert(1)>)",
    "[x](file:///etc/passwd)",
    "[x](blob:https://example.org/1)",
    "<javascript:alert(1)>",
    "[x][1]\n\n[1]: javascript:alert(1)",
    '[x](https://example.org "\\" onmouseover=alert(1) x=\'")',
    "![x](https://evil.example/track.png)",
    '![x" onerror=alert(1)](x)',
    "![<img src=x onerror=alert(1)>](data:image/svg+xml,x)",
    "[![x](https://evil.example/p.png)](javascript:alert(1))",
    "`<img src=x onerror=alert(1)>`",
    "```html onload=alert(1)\n<script>alert(1)</script>\n```",
    "| <img src=x onerror=alert(1)> |\n|---|\n| [x](javascript:alert(1)) |",
    "# <img src=x onerror=alert(1)>",
    "> <details open ontoggle=alert(1)>\n> - <input autofocus onfocus=alert(1)>",
    "&lt;img src=x onerror=alert(1)&gt;",
]


class Elements(HTMLParser):
    """Collects the elements of a piece of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_yields_no_active_content(text: str) -> None:
    for tag, attributes in Elements(render_markdown(text)).found:
        assert tag in TAGS
        assert set(attributes) <= {*ATTRIBUTES.get(tag, ()), "rel"}
        target = attributes.get("href")
        assert target is None or re.match(r"[a-z]+", target)[0] in SCHEMES  # type: ignore[index]


def test_the_source_of_hostile_markdown_is_shown_as_text() -> None:
    assert "&lt;img src=x onerror=alert(1)&gt;" in render_markdown("<img src=x onerror=alert(1)>")


def test_an_external_link_sends_no_referrer() -> None:
    made = render_markdown("[x](https://example.org/a?b=1)")
    assert made == '<p><a href="https://example.org/a?b=1" rel="noopener noreferrer nofollow">x</a></p>\n'


@pytest.mark.parametrize("target", ["/api/v1/bases", "other.md", "//evil.example/x", "?a=b", "#a"])
def test_a_document_cannot_link_to_a_page_of_the_server(target: str) -> None:
    assert "href" not in render_markdown(f"[x]({target})")


def test_an_image_is_replaced_by_its_description() -> None:
    assert render_markdown("![A *map* of <the> harbour](https://example.org/x.png)") == (
        "<p><em>A map of &lt;the&gt; harbour</em></p>\n"
    )


def test_headings_of_a_document_are_one_level_below_the_heading_of_the_page() -> None:
    assert render_markdown("# a\n\n###### b") == "<h2>a</h2>\n<h6>b</h6>\n"


def test_lists_tables_and_code_are_kept() -> None:
    made = render_markdown("3. x\n\n| a |\n|---|\n| ~~b~~ |\n\n```\n<c>\n```")
    assert '<ol start="3">' in made
    assert "<td><s>b</s></td>" in made
    assert "<pre><code>&lt;c&gt;\n</code></pre>" in made


@pytest.mark.parametrize(("name", "said"), [("a.md", True), ("A.MARKDOWN", True), ("md", False), ("a.md.txt", False)])
def test_markdown_is_recognised_by_the_file_name(name: str, *, said: bool) -> None:
    assert is_markdown(name) is said
