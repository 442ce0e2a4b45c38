// The pager of a list. Scripts update its links and load other pages in place.

import { encodeQuery } from "./api.js";
import { byId, field } from "./html.js";
import { formatNumber, t } from "./i18n.js";

/**
 * Update the shown range and the links.
 * @param {{page: number, size: number}} position
 * @param {number} total
 */
export function paintPager(position, total) {
  const last = Math.max(1, Math.ceil(total / position.size));
  const shown = field(byId("pager"), "shown");
  const first = (position.page - 1) * position.size + 1;
  if (shown) shown.textContent = total ? t("page.of", { from: formatNumber(first), to: formatNumber(Math.min(position.page * position.size, total)), total: formatNumber(total) }) : "";
  const targets = { first: 1, previous: position.page - 1, next: position.page + 1, last };
  for (const [name, page] of Object.entries(targets)) {
    const link = byId("pager").querySelector(`[data-page="${name}"]`);
    const possible = page >= 1 && page <= last && page !== position.page;
    if (possible) {
      link.href = encodeQuery({ ...position, page });
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
 * Call `showPage` instead of following a link.
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
