// The list of chunks next to the text of a document. The text marks the selected chunk.

import { basePath, encodeQuery, get } from "./api.js";
import { tryOrNotify } from "./dialog.js";
import { byId, cloneTemplate, field } from "./html.js";
import { t } from "./i18n.js";
import { onPageChange, paintPager } from "./pager.js";

export class ChunkList {
  /**
   * @param {string} base
   * @param {number} document
   * @param {import("./document-text.js").DocumentText} source
   * @param {{page: number, size: number}} position
   */
  constructor(base, document, source, position) {
    this.path = basePath(base, "documents", document);
    this.document = document;
    this.source = source;
    this.position = position;
    this.list = /** @type {HTMLOListElement} */ (byId("chunks"));
    /** @type {DocumentChunk[]} */
    this.items = [];
    this.total = 0;
    this.list.addEventListener("click", (event) => this.onClick(event));
    this.list.addEventListener("keydown", (event) => this.onKey(event));
    onPageChange((page) => this.loadPage(page));
  }

  /** @param {DocumentChunk[]} items @param {number} total */
  show(items, total) {
    this.items = items;
    this.total = total;
    this.list.replaceChildren(...items.map((one) => this.row(one)));
    byId("no-chunks").hidden = items.length > 0;
    if (items.length) byId("reader").hidden = false;
    paintPager(this.position, { items, total });
  }

  /** @param {DocumentChunk} one */
  row(one) {
    const row = cloneTemplate("chunk-row");
    row.id = `chunk-${one.chunk}`;
    row.dataset.chunk = String(one.chunk);
    const texts = {
      ordinal: String(one.ordinal + 1),
      headings: one.headings.join(" › "),
      facts: t("document.chunk_facts", { start: one.start, end: one.end, tokens: one.tokens }),
      text: one.text,
    };
    for (const [name, text] of Object.entries(texts)) /** @type {HTMLElement} */ (field(row, name)).textContent = text;
    /** @type {HTMLAnchorElement} */ (field(row, "link")).href = `?chunk=${one.chunk}#chunk-${one.chunk}`;
    return row;
  }

  /**
   * Load a page. Its cursor is the document and the last chunk before the page.
   * @param {number} page
   * @param {number} [total]
   */
  async loadPage(page, total = this.total) {
    const last = Math.max(1, Math.ceil(total / this.position.size));
    this.position.page = Math.min(page, last);
    const before = (this.position.page - 1) * this.position.size - 1;
    const found = await tryOrNotify(() => get(`${this.path}/chunks`, { cursor: before < 0 ? null : `${this.document}.${before}`, limit: this.position.size }));
    if (!found) return;
    this.show(found.items, total);
    this.list.scrollTop = 0;
    history.replaceState(null, "", location.pathname + encodeQuery({ page: this.position.page > 1 ? this.position.page : "" }));
  }

  /** Mark a chunk in the text. Returns false if it is not on this page. @param {number} chunk */
  select(chunk) {
    const index = this.items.findIndex((one) => one.chunk === chunk);
    if (index < 0) return false;
    const [before, one, after] = [this.items[index - 1], this.items[index], this.items[index + 1]];
    /** @type {[number, number][]} */
    const overlaps = [];
    if (before && before.end > one.start) overlaps.push([one.start, Math.min(before.end, one.end)]);
    if (after && after.start < one.end) overlaps.push([Math.max(after.start, one.start), one.end]);
    for (const row of this.list.children) {
      if (row.id === `chunk-${chunk}`) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
    }
    const row = byId(`chunk-${chunk}`);
    const hidden = row.offsetTop < this.list.scrollTop || row.offsetTop + row.offsetHeight > this.list.scrollTop + this.list.clientHeight;
    if (hidden) this.list.scrollTop = row.offsetTop;
    this.source.show({ start: one.start, end: one.end, overlaps });
    history.replaceState(null, "", `${location.pathname}?chunk=${chunk}`);
    return true;
  }

  /** @param {MouseEvent} event */
  onClick(event) {
    const row = /** @type {Element} */ (event.target).closest("li");
    if (!row || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    this.select(Number(row.dataset.chunk));
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const row = /** @type {Element} */ (event.target).closest("li");
    const to = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling }[event.key];
    if (!to) return;
    event.preventDefault();
    /** @type {HTMLElement | null} */ (to.querySelector("a"))?.focus();
    this.select(Number(/** @type {HTMLElement} */ (to).dataset.chunk));
  }
}
