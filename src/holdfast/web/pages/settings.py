"""The settings: bases, providers, keys, webhooks, the server. A part that needs another key says so."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse

from holdfast.api.auth import get_server_state
from holdfast.api.system import read_about
from holdfast.auth import Scope
from holdfast.catalog import CHAT_CHOICES, EMBEDDING_CHOICES, OnDuplicate
from holdfast.events import TOPICS
from holdfast.indexes import describe_not_enabled
from holdfast.service.schemas import ApiKey, Base, BaseSettings, BaseStatus, Webhook
from holdfast.web.render import CurrentPage, blank_row

if TYPE_CHECKING:
    from holdfast.service.local import LocalService
    from holdfast.service.schemas import Problem

router = APIRouter()

SHORTCUTS = {
    "/": "search",
    "?": "help",
    "↑ ↓": "move",
    "Enter": "open",
    "Space": "select",
    "Esc": "escape",
    "g …": "go",
}

BLANK_BASE = blank_row(Base, status=BaseStatus.READY, settings=BaseSettings())
BLANK_KEY = blank_row(ApiKey, scope=Scope.READ)
BLANK_WEBHOOK = blank_row(Webhook, enabled=True)


class Tab(StrEnum):
    BASES = "bases"
    PROVIDERS = "providers"
    KEYS = "keys"
    WEBHOOKS = "webhooks"
    SERVER = "server"


@router.get("/settings")
def settings_page(
    request: Request, context: CurrentPage, tab: Tab = Tab.BASES, base: Annotated[str, Query(max_length=200)] = ""
) -> HTMLResponse:
    """Show one tab of the settings, or one base."""
    service = context.service
    caller = service.authorization.caller
    admin = caller.may(Scope.ADMIN)
    common: dict[str, Any] = {
        "tabs": list(Tab),
        "tab": tab,
        "admin": admin,
        "everywhere": admin and caller.bases is None,
    }
    if tab is Tab.BASES and base:
        return context.render(
            "settings.html", part="base", base=service.bases.get(base), **common, **_base_values(service, base)
        )
    shown = _tab_values(tab, service, request, everywhere=common["everywhere"])
    data = {"everywhere": common["everywhere"], "me": caller.key_id, **shown.pop("data", {})}
    return context.render("settings.html", part=tab, data=data, **common, **shown)


def _base_values(service: LocalService, name: str) -> dict[str, Any]:
    base, counts = service.bases.get(name), service.bases.counts(name)
    reasons = _index_problems(service, name)
    return {
        "counts": counts,
        "kinds": reasons,
        "embeddings": EMBEDDING_CHOICES,
        "chats": CHAT_CHOICES,
        "duplicates": list(OnDuplicate),
        "data": {"one": base, "counts": counts},
    }


def _index_problems(service: LocalService, name: str) -> dict[str, Problem | None]:
    """Return all indexes, each with the reason why this base cannot have it, or None."""
    library = service.authorization.library
    base_info = service.authorization.find_base(name)
    kinds = list(dict.fromkeys([*base_info.settings.indexes, *library.indexes.kinds]))
    wanting_all = replace(base_info, settings=replace(base_info.settings, indexes=tuple(kinds)))
    return dict.fromkeys(kinds) | describe_not_enabled(library.bases.not_enabled(wanting_all))


def _tab_values(tab: Tab, service: LocalService, request: Request, *, everywhere: bool) -> dict[str, Any]:
    """Return the values of a tab, limited to the bases and rights of the caller."""
    match tab:
        case Tab.BASES:
            rows = [(base, service.bases.counts(base.name)) for base in service.bases.list()]
            kinds = service.authorization.library.indexes.kinds
            return {"rows": rows, "blank": BLANK_BASE, "data": {"kinds": kinds, "list": [base for base, _ in rows]}}
        case Tab.PROVIDERS:
            return {"rows": service.bases.list(), "endpoints": _endpoints(request) if everywhere else None}
        case Tab.KEYS:
            keys = service.keys.list() if everywhere else []
            return {"rows": keys, "blank": BLANK_KEY, "data": {"list": keys}}
        case Tab.WEBHOOKS:
            hooks = service.webhooks.list() if everywhere else []
            return {"rows": hooks, "blank": BLANK_WEBHOOK, "data": {"list": hooks, "topics": sorted(TOPICS)}}
        case Tab.SERVER:
            return {"about": read_about(service, request), "keyboard": SHORTCUTS}


def _endpoints(request: Request) -> dict[str, str]:
    """Return the server's default provider for each role; empty if it has none."""
    settings = get_server_state(request).settings
    roles = {
        "embedding": (settings.embedding_url, settings.embedding_model),
        "chat": (settings.chat_url, settings.chat_model),
    }
    return {role: f"{urlsplit(url).hostname} · {model}" if url else "" for role, (url, model) in roles.items()}
