// A table with the newest on top: new rows come in above, older ones on demand below.

import { encodeQuery, get } from "./api.js";
import { tryOrNotify } from "./dialog.js";
import { byId, pageData } from "./html.js";
import { localise } from "./i18n.js";

const MAX_ROWS = 1000; // rows that are kept, so that a page that is left open does not grow without end

/**
 * The rows of such a table.
 * @template {{id: string | number}} T
 */
export class NewestFirstTable {
  /**
   * @param {string} path where the list is asked for
   * @param {Record<string, any>} query
   * @param {(row: HTMLTableRowElement, one: T) => void} fill
   */
  constructor(path, query, fill) {
    this.body = /** @type {HTMLTableSectionElement} */ (byId("list").tBodies[0]);
    this.path = path;
    this.query = query;
    this.fill = fill;
    /** @type {string | null} */
    this.cursor = pageData.next;
    byId("older").addEventListener("click", (/** @type {MouseEvent} */ event) => {
      if (event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      this.loadOlder();
    });
  }

  /** @param {string | number} id @returns {HTMLTableRowElement | null} */
  row(id) {
    return this.body.querySelector(`tr[data-id="${CSS.escape(String(id))}"]`);
  }

  /** Make a row from the server's template. @param {T} one */
  make(one) {
    const row = /** @type {HTMLTableRowElement} */ (byId("row").content.firstElementChild.cloneNode(true));
    row.dataset.id = String(one.id);
    this.fill(row, one);
    localise(row);
    return row;
  }

  /** Show what is new above what is there, and what is there already as it stands now. @param {T[]} some newest first */
  show(some) {
    for (const one of some) {
      const row = this.row(one.id);
      if (row) this.fill(row, one);
    }
    this.body.prepend(...some.filter((one) => !this.row(one.id)).map((one) => this.make(one)));
    for (const row of [...this.body.rows].slice(MAX_ROWS)) row.remove();
    this.paint();
  }

  /** Ask for what is older than all that is shown. */
  async loadOlder() {
    /** @type {Page<T> | undefined} */
    const found = await tryOrNotify(() => get(this.path, { ...this.query, cursor: this.cursor, limit: pageData.limit }));
    if (!found) return;
    this.body.append(...found.items.filter((one) => !this.row(one.id)).map((one) => this.make(one)));
    this.cursor = found.next_cursor;
    this.paint();
  }

  /** Ask for the newest. @returns {Promise<T[]>} */
  async loadNewest() {
    const found = await tryOrNotify(() => get(this.path, { ...this.query, limit: pageData.limit }));
    return found?.items ?? [];
  }

  paint() {
    byId("nothing").hidden = this.body.rows.length > 0;
    byId("older").hidden = !this.cursor;
    if (this.cursor) byId("older").href = encodeQuery({ ...pageData.asked, cursor: this.cursor });
  }
}
