"""The errors of folders, web pages and sitemaps that more than one place raises.

No parameter contains the query of an address: it may hold a secret.
"""

from __future__ import annotations

from holdfast.content import format_size
from holdfast.errors import Permanent, Transient


def own_data() -> Permanent:
    return Permanent("own_data")


def folder_not_allowed() -> Permanent:
    return Permanent("folder_not_allowed")


def outside_folder() -> Permanent:
    return Permanent("outside_folder")


def bad_url(why: str) -> Permanent:
    """Return the error for an invalid address; `why` is the code of a text `why.url_*` of the catalogue."""
    return Permanent("bad_url", params={"why": why})


def unknown_host(host: str) -> Transient:
    return Transient("unknown_host", params={"host": host})


def unreachable(host: str) -> Transient:
    return Transient("unreachable", params={"host": host})


def response_too_slow(seconds: float) -> Transient:
    return Transient("response_too_slow", params={"seconds": f"{seconds:g}"})


def invalid_response(host: str) -> Transient:
    return Transient("invalid_response", params={"host": host})


def page_too_large(most: int) -> Permanent:
    return Permanent("page_too_large", params={"most": format_size(most)})


def not_a_sitemap() -> Permanent:
    return Permanent("not_a_sitemap")
