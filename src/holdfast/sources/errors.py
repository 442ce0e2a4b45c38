"""The errors of folders, web pages and sitemaps.

No message contains the query of an address: it may hold a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.content import MIB
from holdfast.errors import Permanent, Transient

if TYPE_CHECKING:
    from datetime import timedelta


def folder_missing() -> Transient:
    return Transient(
        "folder_missing",
        "The folder is not there: it was moved or deleted, or its drive is not connected. Nothing found there before "
        "is removed. Bring the folder back, or remove it here if it is gone for good.",
    )


def not_a_folder() -> Permanent:
    return Permanent("not_a_folder", "The path does not lead to a folder. Add the file itself, or name a folder.")


def folder_not_permitted() -> Permanent:
    return Permanent(
        "not_permitted",
        "The folder may not be opened by the user this program runs as. Grant it the right to read and retry.",
    )


def own_data() -> Permanent:
    return Permanent(
        "own_data",
        "The folder is, or lies in, a folder where Holdfast keeps its own data (HOLDFAST_HOME, HOLDFAST_DATA or the "
        "database). Keep your documents in another folder, and sync that one.",
    )


def folder_not_allowed() -> Permanent:
    return Permanent(
        "folder_not_allowed",
        "The folder is not below one that the operator of this server allows. Ask the operator to add it to "
        "HOLDFAST_FOLDER_ROOTS, or to sync it once on the server itself with `holdfast sync`.",
    )


def outside_folder() -> Permanent:
    return Permanent(
        "outside_folder",
        "The path leads out of the folder or through a link, so it was not opened. Name a file below the folder.",
    )


def file_changed() -> Transient:
    return Transient(
        "file_changed",
        "The file was changed while it was read, so what was read may be half old and half new. Retry later.",
    )


def bad_url(why: str) -> Permanent:
    return Permanent(
        "bad_url", f"The address {why}. Write it as https://example.org/page and try again.", params={"why": why}
    )


def refused_address(host: str, why: str, setting: str) -> Permanent:
    return Permanent(
        "refused_address",
        f"The server {host} was not contacted: {why}. Only public addresses are allowed, so that no user can read from "
        f"this network. To allow it, add its network (or, if it is private, the host) to {setting} and start again.",
        params={"host": host, "why": why, "setting": setting},
    )


def refused_port(host: str, port: int, setting: str) -> Permanent:
    return Permanent(
        "refused_address",
        f"The server {host} was not contacted: web pages are not served on port {port}. To allow it, add the host or "
        f"its network to {setting} and start again.",
        params={"host": host, "why": f"port {port}", "setting": setting},
    )


def unknown_host(host: str) -> Transient:
    return Transient(
        "unknown_host",
        f"The name {host} could not be resolved. Check the spelling; if this lasts, check the network.",
        params={"host": host},
    )


def unreachable(host: str) -> Transient:
    return Transient(
        "unreachable",
        f"The server {host} does not answer or broke off. If this lasts, open the page in a browser.",
        params={"host": host},
    )


def tls_failed(host: str) -> Permanent:
    return Permanent(
        "tls_failed",
        f"The server {host} could not prove who it is: its certificate is wrong, expired or not trusted here. "
        "Correct the certificate and retry; it is not fetched without.",
        params={"host": host},
    )


def fetch_too_slow(seconds: float) -> Transient:
    return Transient(
        "too_slow",
        f"The page did not arrive within {seconds:g} seconds. If it is large, raise the time.",
        params={"seconds": f"{seconds:g}"},
    )


def page_too_large(most: int) -> Permanent:
    size = f"{most / MIB:g} MiB" if most >= MIB else f"{most} bytes"
    return Permanent(
        "too_large", f"The page has more than {size}, unpacked. Raise the limit for fetching, or add it as a file."
    )


def page_gone(status: int) -> Permanent:
    return Permanent(
        "page_gone",
        f"The page is not there (status {status}). Correct its address, or remove it here.",
        params={"status": str(status)},
    )


def page_forbidden(status: int) -> Permanent:
    return Permanent(
        "page_forbidden",
        f"The server does not give this page to everybody (status {status}). Save the page and add it as a file.",
        params={"status": str(status)},
    )


def page_refused(status: int) -> Permanent:
    return Permanent(
        "page_refused",
        f"The server refused the request (status {status}). Open the page in a browser, save it and add it as a file.",
        params={"status": str(status)},
    )


def server_busy(status: int, retry_after: timedelta | None) -> Transient:
    return Transient(
        "server_busy",
        f"The server cannot give the page now (status {status}). If this lasts, open the page in a browser.",
        params={"status": str(status)},
        retry_after=retry_after,
    )


def invalid_response(host: str) -> Transient:
    return Transient(
        "bad_answer",
        f"The server {host} sent an answer that is cut off or makes no sense. If this lasts, open the page in "
        "a browser.",
        params={"host": host},
    )


def too_many_redirects(most: int) -> Permanent:
    return Permanent(
        "too_many_redirects",
        f"The page leads on to another one more than {most} times. Add the address at which a browser arrives.",
    )


def unsupported_media_type(mime: str) -> Permanent:
    return Permanent(
        "unsupported_format",
        f"The address leads to {mime}, and only pages and documents with text are fetched. Add a page that has text.",
        params={"found": mime},
    )


def not_a_sitemap() -> Permanent:
    return Permanent(
        "not_a_sitemap",
        "The address leads to no sitemap: it is neither its XML nor a list of addresses, one a line. Name the sitemap, "
        "often /sitemap.xml, or add the page itself as a page.",
    )


def robots_refuse() -> Permanent:
    return Permanent(
        "robots_refuse",
        "The site asks programs in its robots.txt not to read this sitemap, so it was left alone. "
        "Add single pages that you need as pages.",
    )
