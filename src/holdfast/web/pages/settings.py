"""The settings: bases, providers, keys, webhooks, the server. Each part says which key it would need."""

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
from holdfast.service.schemas import BaseStatus
from holdfast.web.render import CurrentPage

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

# What scripts clone rows from.
BLANK_BASE = {
    "id": "",
    "name": "",
    "status": BaseStatus.READY,
    "problem": None,
    "settings": {"indexes": ()},
    "rollout": None,
}
BLANK_KEY: dict[str, Any] = dict.fromkeys(("bases", "created_at", "expires_at", "revoked_at", "used_at")) | {
    "id": "",
    "name": "",
    "prefix": "",
    "scope": Scope.READ,
}
BLANK_WEBHOOK: dict[str, Any] = {
    **dict.fromkeys(("bases", "disabled_reason", "failing_since", "retry_at", "created_at")),
    "id": "",
    "url": "",
    "types": (),
    "state": "healthy",
    "waiting": 0,
    "enabled": True,
    "failures": 0,
}


class Tab(StrEnum):
    """The parts of the page."""

    BASES = "bases"
    PROVIDERS = "providers"
    KEYS = "keys"
    WEBHOOKS = "webhooks"
    SERVER = "server"


@router.get("/settings")
def settings_page(
    request: Request, visit: CurrentPage, tab: Tab = Tab.BASES, base: Annotated[str, Query(max_length=200)] = ""
) -> HTMLResponse:
    """Show one part of the settings; of the bases one, where it is named."""
    front = visit.service
    caller = front.authorization.caller
    admin = caller.may(Scope.ADMIN)
    common: dict[str, Any] = {
        "tabs": list(Tab),
        "tab": tab,
        "admin": admin,
        "everywhere": admin and caller.bases is None,
    }
    if tab is Tab.BASES and base:
        return visit.render(
            "settings.html", part="base", base=front.bases.get(base), **common, **_base_values(front, base)
        )
    shown = _tab_values(tab, front, request, everywhere=common["everywhere"])
    data = {"everywhere": common["everywhere"], "me": caller.key_id, **shown.pop("data", {})}
    return visit.render("settings.html", part=tab, data=data, **common, **shown)


def _base_values(front: LocalService, name: str) -> dict[str, Any]:
    """Return what the page of one base shows."""
    base, counts = front.bases.get(name), front.bases.counts(name)
    reasons = _index_problems(front, name)
    return {
        "counts": counts,
        "kinds": reasons,
        "embeddings": EMBEDDING_CHOICES,
        "chats": CHAT_CHOICES,
        "duplicates": list(OnDuplicate),
        "data": {"one": base, "counts": counts},
    }


def _index_problems(front: LocalService, name: str) -> dict[str, Problem | None]:
    """Return each index that there is, with the reason why this base could not have it, if there is one."""
    library = front.authorization.library
    shelf = front.authorization.find_base(name)
    kinds = list(dict.fromkeys([*shelf.settings.indexes, *library.indexes.kinds]))
    wanting_all = replace(shelf, settings=replace(shelf.settings, indexes=tuple(kinds)))
    return dict.fromkeys(kinds) | describe_not_enabled(library.bases.not_enabled(wanting_all))


def _tab_values(tab: Tab, front: LocalService, request: Request, *, everywhere: bool) -> dict[str, Any]:
    """Return what a part shows, as far as the caller may see it."""
    match tab:
        case Tab.BASES:
            rows = [(base, front.bases.counts(base.name)) for base in front.bases.list()]
            kinds = front.authorization.library.indexes.kinds
            return {"rows": rows, "blank": BLANK_BASE, "data": {"kinds": kinds, "list": [base for base, _ in rows]}}
        case Tab.PROVIDERS:
            return {"rows": front.bases.list(), "endpoints": _endpoints(request) if everywhere else None}
        case Tab.KEYS:
            keys = front.keys.list() if everywhere else []
            return {"rows": keys, "blank": BLANK_KEY, "data": {"list": keys}}
        case Tab.WEBHOOKS:
            hooks = front.webhooks.list() if everywhere else []
            return {"rows": hooks, "blank": BLANK_WEBHOOK, "data": {"list": hooks, "topics": sorted(TOPICS)}}
        case Tab.SERVER:
            return {"about": read_about(front, request), "keyboard": SHORTCUTS}


def _endpoints(request: Request) -> dict[str, str]:
    """Return who is asked for each role where a base leaves it to the server; empty: nobody."""
    settings = get_server_state(request).settings
    roles = {
        "embedding": (settings.embedding_url, settings.embedding_model),
        "chat": (settings.chat_url, settings.chat_model),
    }
    return {role: f"{urlsplit(url).hostname} · {model}" if url else "" for role, (url, model) in roles.items()}
