"""Renders untrusted Markdown as safe HTML: text, links and tables, no scripts.

There are two layers. The parser accepts no raw HTML and makes no link of an unsafe address; then a sanitizer removes
every tag and attribute that is not on a short list. Images are never loaded: their alternative text replaces them.
"""

from __future__ import annotations

from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING

import nh3
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.renderer import RendererHTML
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token
    from markdown_it.utils import EnvType, OptionsDict

SUFFIXES = frozenset({".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".rmd"})
SCHEMES = {"http", "https", "mailto"}
TAGS = {
    *("h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "blockquote", "pre", "code", "em", "strong", "s", "a"),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
LINK_REL = "noopener noreferrer nofollow"
DEEPEST_HEADING = 6


def is_markdown(name: str) -> bool:
    return PurePath(name).suffix.lower() in SUFFIXES


def render_markdown(text: str) -> Markup:
    return Markup(  # noqa: S704 - sanitised right here, by a list of allowed tags
        nh3.clean(
            _make_parser().render(text),
            tags=TAGS,
            attributes=ATTRIBUTES,
            url_schemes=SCHEMES,
            url_relative="deny",
            link_rel=LINK_REL,
        )
    )


@cache
def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    parser.core.ruler.push("lower_headings", _lower_headings)
    parser.add_render_rule("image", _render_image)
    return parser


def _lower_headings(state: StateCore) -> None:
    """Lower each heading by one level: the page itself has the h1."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + 1, DEEPEST_HEADING)}"


def _render_image(self: RendererHTML, tokens: Sequence[Token], place: int, options: OptionsDict, env: EnvType) -> str:
    """Replace an image by its alternative text."""
    words = self.renderInlineAsText(tokens[place].children, options, env)
    return f"<em>{escape(words)}</em>" if words else ""
