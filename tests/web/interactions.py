"""User interactions that several tests of the web page share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import FilePayload, Locator, Page


def row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def upload(page: Page, name: str, text: str) -> Locator:
    """Select a file in the upload input, and return its row."""
    file: FilePayload = {"name": name, "mimeType": "text/markdown", "buffer": text.encode()}
    page.locator("input[type=file][multiple]").set_input_files([file])
    return row(page, name)
