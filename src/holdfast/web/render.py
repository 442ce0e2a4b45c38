"""Renders pages: a template, the texts of a language, and the navigation that every page has."""

from __future__ import annotations

from dataclasses import MISSING, fields
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin, get_type_hints
from urllib.parse import quote, urlencode

from fastapi import Depends, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from holdfast import __version__
from holdfast.api.auth import open_service
from holdfast.documents import BUTTONS
from holdfast.engine import MOMENT_PARAMS, WHOLE_QUEUE
from holdfast.messages import CAUSE, DEFAULT_LANGUAGE, LANGUAGES, fill_placeholders, translations_for
from holdfast.paging import MAX_COUNT
from holdfast.service.local import LocalService
from holdfast.service.schemas import Problem
from holdfast.web.i18n import choose_language, translations_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.messages import Translations
    from holdfast.service.schemas import Base

THEMES = ("system", "light", "dark")
UNIT_STEP = 1000
JOB_ID_CHARS = 8  # in tables
# Parameters of problems whose values the catalogue translates, with its section.
TRANSLATED_PARAMETERS = {"kind": "index", "state": "slot", "stage": "stage", "status": "status", "why": "why"}
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cache-Control": "no-store",
    "Vary": "Accept-Language, Cookie",
}

EMPTY_VALUES: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, list: [], dict: {}}

T = TypeVar("T")


class PageContext:
    """One request for a page: the service as its caller sees it, and the cursor from which its script follows events.

    The cursor is read before the data of the page, so that no event falls between the two.
    """

    def __init__(self, request: Request, service: Annotated[LocalService, Depends(open_service)]) -> None:
        self.service = service
        self._request = request
        self._cursor = service.events.after(None, limit=1).next_cursor

    def resolve_base(self, base: str) -> str | None:
        """Return the named base, or None for all bases. A key limited to some bases gets the first of them instead."""
        if base or self.service.authorization.caller.bases is None:
            return base or None
        return next((one.name for one in self.service.bases.list()), None)

    def render(
        self, template: str, *, base: Base | None = None, data: dict[str, Any] | None = None, **shown: Any
    ) -> HTMLResponse:
        """Render a page, of one base or of none; its script starts with `data`."""
        bases = self.service.bases.list()
        script = {
            "bases": {one.id: one.name for one in bases},
            "scope": str(self.service.authorization.caller.scope),
            "everywhere": self.service.authorization.caller.bases is None,
            "paused": self._pause_scope(base) if base else "",
            "cursor": self._cursor,
            "operations": BUTTONS if base else (),
            **jsonable_encoder(data or {}),
        }
        page = render_page(self._request, template, bases=bases, base=base, script=script, **shown)
        if base is not None:
            page.set_cookie("holdfast_base", quote(base.name), httponly=True, samesite="strict")
        return page

    def _pause_scope(self, base: Base) -> str:
        """Return which pause stops the work of a base: of the whole `queue`, of this `base`, or none (empty)."""
        paused = {pause.base for pause in self.service.authorization.library.store.pauses()}
        return "queue" if WHOLE_QUEUE in paused else "base" if str(base.id) in paused else ""


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
    """Render a page without a service: it also works for callers without a key."""
    language = choose_language(request.cookies.get("holdfast_language"), request.headers.get("accept-language", ""))
    theme = request.cookies.get("holdfast_theme", THEMES[0])
    translations = translations_for(language)
    body = (
        _make_environment()
        .get_template(template)
        .render(
            t=translations,
            looks=Formatter(translations),
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


def blank_row(kind: type[T], /, **given: Any) -> T:
    """Return a row without content. Templates render it into a `<template>`, from which scripts clone rows.

    Required fields get the empty value of their type, others None. Enumerations must be given, because templates look
    up their texts: `blank_row(Job, operation=Operation.INDEX, state=Status.QUEUED)`.
    """
    hints = get_type_hints(kind)
    required = [
        one.name
        for one in fields(kind)  # type: ignore[arg-type]
        if one.default is MISSING and one.default_factory is MISSING
    ]
    return kind(**{name: EMPTY_VALUES.get(get_origin(hints[name]) or hints[name]) for name in required} | given)


def page_path(base: str, *rest: object) -> str:
    return "/".join(["/bases", quote(base, safe=""), *(quote(str(one), safe="") for one in rest)])


def link_query(query: Mapping[str, Any]) -> str:
    """Encode a query string without its empty parameters."""
    return urlencode({name: value for name, value in query.items() if value not in (None, "")})


class Formatter:
    """Formats values on the server; scripts then format them again for the browser's locale."""

    def __init__(self, translations: Translations) -> None:
        self._translations = translations

    def size(self, count: int) -> str:
        value = float(count)
        for unit in ("B", "kB", "MB", "GB"):
            if value < UNIT_STEP:
                return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"  # noqa: PLR2004
            value /= UNIT_STEP
        return f"{value:.1f} TB"

    def time(self, at: datetime | None) -> str:
        return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M")

    def iso(self, at: datetime | None) -> str:
        return "" if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")

    def number(self, value: float) -> str:
        return f"{value:,}"

    def short_id(self, job: str) -> str:
        """Return the end of a job's id: it is random, while jobs of the same seconds begin alike."""
        return job[-JOB_ID_CHARS:]

    def explain(self, problem: Problem, prefix: str = "problem") -> str:
        """Explain a problem, or why work waits, in the reader's language if the catalogue has its code."""
        if problem.message and prefix == "problem" and self._translations.language == DEFAULT_LANGUAGE:
            return problem.message  # a plug-in may have its own message for a code of ours
        # Elsewhere a plug-in may use these names for anything.
        moments = MOMENT_PARAMS if prefix == "waits" else frozenset()
        values = {
            name: self.time(datetime.fromisoformat(value))
            if name in moments
            else self._translate_parameter(name, value)
            for name, value in problem.params.items()
        }
        if CAUSE in values:
            values[CAUSE] = self._translations.explain_cause(values)
        text = self._translations.get(f"{prefix}.{problem.code}", problem.message)
        return fill_placeholders(text, {**values, "message": problem.message})

    def explain_code(self, code: str) -> str:
        """Explain an error of which only the code is known, such as the result of a job.

        A text with parameters would have gaps, so the reader is sent to the document, which has the whole text.
        """
        text = self._translations.get(f"problem.{code}", code.replace("_", " "))
        return self._translations("error.see_document") if "{" in text else text

    def _translate_parameter(self, name: str, value: str) -> str:
        section = TRANSLATED_PARAMETERS.get(name)
        return self._translations.get(f"{section}.{value}", value) if section else value


def _last_used_base(request: Request, bases: Sequence[Base]) -> Base | None:
    """Return the base whose page was opened last, or the first base."""
    wanted = request.cookies.get("holdfast_base", "")
    return next((one for one in bases if quote(one.name) == wanted), bases[0] if bases else None)


@cache
def _make_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("holdfast.web"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["link_query"] = link_query
    environment.globals |= {"address": page_path, "words_address": translations_url, "max_count": MAX_COUNT}
    environment.globals["parts"] = environment.get_template("parts.html").module
    return environment
