"""A base that has content for every page, and the addresses of the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.web.conftest import Site

PAGES = {
    "overview": "/",
    "documents": "/bases/{name}/documents",
    "document": "/bases/{name}/documents/{document}",
    "reading": "/bases/{name}/documents/{document}/reading",
    "search": "/bases/{name}/search?q=tide",
    "ask": "/bases/{name}/ask",
    "graph": "/bases/{name}/graph",
    "cards": "/bases/{name}/cards",
    "queue": "/queue",
    "activity": "/activity",
    "duplicates": "/activity?view=duplicates",
    "deliveries": "/activity?view=deliveries",
    "settings": "/settings",
    "base": "/settings?base={name}",
    "providers": "/settings?tab=providers",
    "keys": "/settings?tab=keys",
    "webhooks": "/settings?tab=webhooks",
    "server": "/settings?tab=server",
    "signin": "/signin",
    "problem": "/bases/nowhere/documents",
    "wrong address": "/nowhere",
}
TEXTS = {
    "tides.md": "# Tides\n\nThe Moon pulls the sea. At Mont Saint-Michel the tide rises by fourteen metres.\n\n"
    "## Spring tides\n\nWhen Sun and Moon pull together, the tide is highest. Fishermen of Saint-Malo know it well.",
    "anchors.md": "# Anchors\n\nAn anchor holds a ship against wind and tide. The Admiralty pattern has a wooden stock."
    "\n\n"
    "## Holding ground\n\nClay holds well, rock badly. See Tides for how the ship swings.",
    "lighthouses.md": "# Lighthouses\n\nThe Eddystone Lighthouse was built by John Smeaton. Its light is seen far off."
    "\n\n"
    "## Lenses\n\nAugustin Fresnel made a lens of rings that throws the light far over the sea.",
    "锚与潮汐.md": "# 锚与潮汐\n\n月亮牵引海水，形成潮汐。锚使船在风浪中保持不动。",
    "knots.md": "# Knots\n\nA bowline makes a loop that does not slip. A clove hitch holds a rope on a post.",
}


def fill(site: Site, name: str = "sailing") -> dict[str, str]:
    """Create a base with documents in several states; return the parameters of the page addresses."""
    made = {"name": name, "indexes": ["vector", "fulltext", "graph"]}
    site.api.post("/bases", json=made).raise_for_status()
    ids = [site.put(name, one, text) for one, text in TEXTS.items()]
    site.put(name, "scan.pdf", b"%PDF-1.4 nothing that could be read")  # fails with an explanation
    site.api.post(f"/bases/{name}/documents", params={"name": "later.md", "index": False}, content=b"# Later")
    site.api.post(f"/bases/{name}/documents", params={"name": "tides.md"}, content=TEXTS["tides.md"].encode())
    return {"name": name, "document": str(ids[0])}
