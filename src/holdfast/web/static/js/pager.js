// The links that lead to other pages of a list: painted anew when it grows or shrinks, and followed without leaving.

import { encodeQuery } from "./api.js";
import { byId, field } from "./html.js";
import { formatNumber, t } from "./i18n.js";

/**
 * Paint where in a list the page is, and where the links lead.
 * @param {{page: number, size: number}} asked
 * @param {number} total
 */
export function paintPager(asked, total) {
  const last = Math.max(1, Math.ceil(total / asked.size));
  const shown = field(byId("pager"), "shown");
  const first = (asked.page - 1) * asked.size + 1;
  if (shown) shown.textContent = total ? t("page.of", { from: formatNumber(first), to: formatNumber(Math.min(asked.page * asked.size, total)), total: formatNumber(total) }) : "";
  const targets = { first: 1, previous: asked.page - 1, next: asked.page + 1, last };
  for (const [name, page] of Object.entries(targets)) {
    const link = byId("pager").querySelector(`[data-page="${name}"]`);
    const possible = page >= 1 && page <= last && page !== asked.page;
    if (possible) {
      link.href = encodeQuery({ ...asked, page });
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
 * @param {(page: number) => void} showPage
 */
export function onPageChange(showPage) {
  byId("pager").addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const link = /** @type {Element} */ (event.target).closest("a[href]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    showPage(Number(new URLSearchParams(link.getAttribute("href") ?? "").get("page") ?? 1));
  });
}
