"""A real Chromium for tests of web pages."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.support.timeouts import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, BrowserContext

# A headless browser that runs as root and makes no requests of its own.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
# The first installed one is used. The headless shell opens no windows and needs a fifth less CPU.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
LONGEST = 1000 * PATIENCE_SECONDS  # milliseconds


@contextmanager
def launch_browser() -> Iterator[Browser]:
    """Launch the browser with long timeouts. If there is none, skip the test; with CI=true that is an error."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("There is no Chromium; `make browser` installs it where it can.")
        pytest.skip("there is no Chromium; `make browser` installs it where it can")
    expect.set_options(timeout=LONGEST)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=FLAGS)
        launched.new_context = _make_patient(launched.new_context)  # type: ignore[method-assign]
        yield launched
        launched.close()


def _make_patient(new_context: Callable[..., BrowserContext]) -> Callable[..., BrowserContext]:
    """Create contexts with a long timeout, so that no test fails because the machine is busy."""

    def make(**options: Any) -> BrowserContext:
        context = new_context(**options)
        context.set_default_timeout(LONGEST)
        return context

    return make
