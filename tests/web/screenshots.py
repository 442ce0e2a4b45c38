"""`make screenshots`: takes a picture of every page, light and dark, wide and narrow, for the README.

`make screenshots LOCALE=zh-CN TO=folder` takes them in another language, into another folder.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.support.browser import BROWSERS, FLAGS
from tests.web.conftest import Site
from tests.web.samples import PAGES, fill

TARGET, LOCALE = Path(__file__).parents[2] / "screenshots", "en-GB"
SHOWN = ("overview", "documents", "document", "search", "ask", "graph", "cards", "queue", "activity", "settings")
WIDTHS = {"wide": (1280, 800), "narrow": (360, 740)}
SETTLED = 1500  # milliseconds until animations end


def main(locale: str = LOCALE, folder: str = "") -> int:
    target = Path(folder) if folder else TARGET
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        print("There is no Chromium; `make browser` installs it where it can.", file=sys.stderr)  # noqa: T201
        return 1
    if not folder:
        shutil.rmtree(TARGET, ignore_errors=True)  # pages that no longer exist
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        site = Site(Path(scratch) / "home")
        try:
            filled = fill(site)
            browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
            for width, (across, down) in WIDTHS.items():
                for scheme in ("light", "dark"):
                    context = browser.new_context(
                        base_url=site.url,
                        viewport={"width": across, "height": down},
                        color_scheme="dark" if scheme == "dark" else "light",
                        locale=locale,
                    )
                    page = context.new_page()
                    for name in SHOWN:
                        page.goto(PAGES[name].format(**filled))
                        page.wait_for_timeout(SETTLED)
                        page.screenshot(path=target / f"{name}-{width}-{scheme}.png")
                    context.close()
            browser.close()
        finally:
            site.close()
    print(f"{len(list(target.iterdir()))} pictures in {target.name}/")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
