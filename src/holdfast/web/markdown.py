"""Markdown of a document as a page: what a stranger wrote becomes text, links and tables, and nothing that acts.

Two guards stand one behind the other. The parser knows no raw HTML and makes no link of an address that could act;
then all that is not on a short list is taken out. Pictures are never loaded: their words stand there instead.
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
    """Tell by the name of a file whether it is Markdown."""
    return PurePath(name).suffix.lower() in SUFFIXES


def render_markdown(text: str) -> Markup:
    """Return Markdown as HTML that can be put into a page."""
    made = _make_parser().render(text)
    return Markup(  # noqa: S704 - cleaned right here, by a list of what may stay
        nh3.clean(
            made,
            tags=TAGS,
            attributes=ATTRIBUTES,
            url_schemes=SCHEMES,
            url_relative="deny",
            link_rel=LINK_REL,
        )
    )


@cache
def _make_parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    made.core.ruler.push("lower_headings", _lower_headings)
    made.add_render_rule("image", _render_image)
    return made


def _lower_headings(state: StateCore) -> None:
    """Make each heading one step lower: the page itself has the first."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(int(token.tag[1:]) + 1, DEEPEST_HEADING)}"


def _render_image(self: RendererHTML, tokens: Sequence[Token], place: int, options: OptionsDict, env: EnvType) -> str:
    """Write the words of a picture in its place."""
    words = self.renderInlineAsText(tokens[place].children, options, env)
    return f"<em>{escape(words)}</em>" if words else ""
