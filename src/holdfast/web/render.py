"""Painting a page: a template, the words of a language, and what every page shows around its own."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import Depends, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from holdfast import __version__
from holdfast.api.auth import open_service as entered
from holdfast.engine import MOMENT_PARAMS, WHOLE_QUEUE
from holdfast.service.local import LocalService
from holdfast.web.i18n import LANGUAGES, Translations, choose_language, translations_for, translations_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.service.schemas import Base, Problem

THEMES = ("system", "light", "dark")
UNIT_STEP = 1000
JOB_ID_CHARS = 8  # characters of a job's id that a table shows
TRANSLATED_PARAMETERS = {
    "kind": "index",
    "state": "slot",
    "stage": "stage",
}  # parameters that are words of the catalogue
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cache-Control": "no-store",
    "Vary": "Accept-Language, Cookie",
}


class PageContext:
    """One reader at one page: the library as he sees it, from the place in the log that his script reads on from.

    The place is noted before anything is read, so that nothing can happen in between and be shown by neither.
    """

    def __init__(self, request: Request, front: Annotated[LocalService, Depends(entered)]) -> None:
        self.service = front
        self._request = request
        self._cursor = front.events.after(None, limit=1).next_cursor

    def resolve_base(self, base: str) -> str | None:
        """Return the base that is meant: the one named, or all; for a key that is limited, the first that it sees."""
        if base or self.service.authorization.caller.bases is None:
            return base or None
        return next((one.name for one in self.service.bases.list()), None)

    def render(
        self, template: str, *, base: Base | None = None, data: dict[str, Any] | None = None, **shown: Any
    ) -> HTMLResponse:
        """Paint a page, of a base or of all; `data` is what its script begins with."""
        bases = self.service.bases.list()
        script = {
            "bases": {one.id: one.name for one in bases},
            "scope": str(self.service.authorization.caller.scope),
            "everywhere": self.service.authorization.caller.bases is None,
            "paused": self._pause_scope(base) if base else "",
            "cursor": self._cursor,
            **jsonable_encoder(data or {}),
        }
        painted = render_page(self._request, template, bases=bases, base=base, script=script, **shown)
        if base is not None:
            painted.set_cookie("holdfast_base", quote(base.name), httponly=True, samesite="strict")
        return painted

    def _pause_scope(self, base: Base) -> str:
        """Return what keeps the work of a base from starting: a pause of the whole `queue`, or of this `base`."""
        held = {pause.base for pause in self.service.authorization.library.store.pauses()}
        return "queue" if WHOLE_QUEUE in held else "base" if str(base.id) in held else ""


CurrentPage = Annotated[PageContext, Depends()]


def render_page(
    request: Request,
    template: str,
    *,
    status: int = HTTPStatus.OK,
    bases: Sequence[Base] = (),
    base: Base | None = None,
    script: dict[str, Any] | None = None,
    **shown: Any,
) -> HTMLResponse:
    """Paint a page, also for somebody who was not let in."""
    language = choose_language(request.cookies.get("holdfast_language"), request.headers.get("accept-language", ""))
    theme = request.cookies.get("holdfast_theme", THEMES[0])
    say = translations_for(language)
    body = (
        _make_environment()
        .get_template(template)
        .render(
            t=say,
            looks=Formatter(say),
            languages=LANGUAGES,
            theme=theme if theme in THEMES else THEMES[0],
            version=__version__,
            path=request.url.path,
            bases=bases,
            base=base or _last_used_base(request, bases),
            chosen=base,
            page=template.removesuffix(".html"),
            script={"base": base.name if base else None, "base_failed": bool(base and base.problem), **(script or {})},
            **shown,
        )
    )
    return HTMLResponse(body, status, PAGE_HEADERS)


def page_path(base: str, *rest: object) -> str:
    """Return where a page of a base is."""
    return "/".join(["/bases", quote(base, safe=""), *(quote(str(one), safe="") for one in rest)])


def link_query(asked: Mapping[str, Any]) -> str:
    """Write what a page is asked for; what is empty is left out."""
    return urlencode({name: one for name, one in asked.items() if one not in (None, "")})


class Formatter:
    """How values are written before a script writes them as the reader's locale does."""

    def __init__(self, say: Translations) -> None:
        self._translations = say

    def size(self, count: int) -> str:
        """Write a number of bytes."""
        value = float(count)
        for unit in ("B", "kB", "MB", "GB"):
            if value < UNIT_STEP:
                return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"  # noqa: PLR2004
            value /= UNIT_STEP
        return f"{value:.1f} TB"

    def time(self, at: datetime | None) -> str:
        """Write a moment."""
        return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")

    def iso(self, at: datetime | None) -> str:
        """Write a moment for a program."""
        return "" if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")

    def number(self, value: float) -> str:
        """Write a number."""
        return f"{value:,}"

    def short_id(self, job: str) -> str:
        """Write the end of a job's id, which is random: all jobs of the same seconds begin alike."""
        return job[-JOB_ID_CHARS:]

    def explain(self, problem: Problem, prefix: str = "problem") -> str:
        """Write what went wrong, or why something waits: in the reader's language where the catalogue has the code."""
        moments = (
            MOMENT_PARAMS if prefix == "waits" else frozenset()
        )  # elsewhere a plug-in may mean anything by these names
        values = {
            name: self.time(datetime.fromisoformat(value))
            if name in moments
            else self._translate_parameter(name, value)
            for name, value in problem.params.items()
        }
        return self._translations.explain(f"{prefix}.{problem.code}", problem.message, **values)

    def explain_code(self, code: str) -> str:
        """Write what is only known by its code."""
        return self._translations.explain(f"problem.{code}", code.replace("_", " "))

    def _translate_parameter(self, name: str, value: str) -> str:
        """Write a parameter for people: indexes, states and stages by their names."""
        return (
            self._translations.get(f"{TRANSLATED_PARAMETERS[name]}.{value}", value)
            if name in TRANSLATED_PARAMETERS
            else value
        )


def _last_used_base(request: Request, bases: Sequence[Base]) -> Base | None:
    """Return the base that was looked at last, or the first."""
    wanted = request.cookies.get("holdfast_base", "")
    return next((one for one in bases if quote(one.name) == wanted), bases[0] if bases else None)


@cache
def _make_environment() -> Environment:
    made = Environment(
        loader=PackageLoader("holdfast.web"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["link_query"] = link_query
    made.globals |= {"address": page_path, "words_address": translations_url}
    made.globals["parts"] = made.get_template("parts.html").module
    return made
