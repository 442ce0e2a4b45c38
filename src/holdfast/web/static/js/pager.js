// The pager of a list. Scripts update its links and load other pages in place.
//
// The server counts a long list only up to a limit, and pages have numbers up to there. Behind it, the cursor of a page
// leads to the next one; the cursors of visited pages lead back.

import { encodeQuery } from "./api.js";
import { byId, field } from "./html.js";
import { MAX_COUNT, formatNumber, formatTotal, t } from "./i18n.js";

/** @type {Map<number, string>} cursors of pages without a number, by page */
const cursors = new Map();

/**
 * Update the shown range and the links.
 * @param {{page: number, size: number, cursor?: string | null}} position
 * @param {{items: unknown[], total?: number | null, total_is_exact?: boolean, next_cursor?: string | null}} found
 */
export function paintPager(position, found) {
  const { page, size } = position;
  const total = found.total ?? 0;
  const exact = found.total_is_exact ?? true;
  const last = Math.max(1, Math.ceil(total / size));
  if (page === 1) cursors.clear();
  if (position.cursor) cursors.set(page, position.cursor);
  if (!exact && found.next_cursor) cursors.set(page + 1, found.next_cursor);
  const from = (page - 1) * size + 1;
  const to = exact ? Math.min(page * size, total) : from - 1 + found.items.length;
  const shown = field(byId("pager"), "shown");
  if (shown) shown.textContent = total ? t("page.of", { from: formatNumber(from), to: formatNumber(to), total: formatTotal(total, exact) }) : "";
  const targets = { first: 1, previous: page - 1, next: page + 1, last: exact ? last : page };
  for (const [name, target] of Object.entries(targets)) {
    const link = byId("pager").querySelector(`[data-page="${name}"]`);
    const numbered = (target - 1) * size < MAX_COUNT;
    const exists = exact ? target <= last : target <= page || Boolean(found.next_cursor);
    if (target >= 1 && target !== page && exists && (exact || numbered || cursors.has(target))) {
      link.href = encodeQuery({ ...position, page: target, cursor: exact || numbered ? "" : cursors.get(target) });
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
 * @param {(page: number, cursor: string) => void} showPage
 */
export function onPageChange(showPage) {
  byId("pager").addEventListener("click", (/** @type {MouseEvent} */ event) => {
    const link = /** @type {Element} */ (event.target).closest("a[href]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const query = new URLSearchParams(link.getAttribute("href") ?? "");
    showPage(Number(query.get("page") ?? 1), query.get("cursor") ?? "");
  });
}
