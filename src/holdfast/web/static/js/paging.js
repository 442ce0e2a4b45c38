// The links that lead to other pages of a list: painted anew when it grows or shrinks, and followed without leaving.

import { byId, field } from "./html.js";
import { search } from "./api.js";
import { number, t } from "./words.js";

/**
 * Paint where in a list the page is, and where the links lead.
 * @param {{page: number, size: number}} asked
 * @param {number} total
 */
export function paintPager(asked, total) {
  const last = Math.max(1, Math.ceil(total / asked.size));
  const shown = field(byId("pager"), "shown");
  const first = (asked.page - 1) * asked.size + 1;
  if (shown) shown.textContent = total ? t("page.of", { from: number(first), to: number(Math.min(asked.page * asked.size, total)), total: number(total) }) : "";
  const targets = { first: 1, previous: asked.page - 1, next: asked.page + 1, last };
  for (const [name, page] of Object.entries(targets)) {
    const link = byId("pager").querySelector(`[data-page="${name}"]`);
    const possible = page >= 1 && page <= last && page !== asked.page;
    if (possible) {
      link.href = search({ ...asked, page });
      link.removeAttribute("aria-disabled");
      link.removeAttribute("role");
    } else {
      link.removeAttribute("href");
      link.setAttribute("aria-disabled", "true");
      link.setAttribute("role", "link");
    }
  }
}

/**
 * Turn to another page when a link is followed.
 * @param {(page: number) => void} turn
 */
export function paging(turn) {
  byId("pager").addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const link = /** @type {Element} */ (event.target).closest("a[href]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    turn(Number(new URLSearchParams(link.getAttribute("href") ?? "").get("page") ?? 1));
  });
}
