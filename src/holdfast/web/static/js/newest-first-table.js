// A table with the newest rows first: new rows are added on top, older ones on demand below.

import { encodeQuery, get } from "./api.js";
import { tryOrNotify } from "./dialog.js";
import { byId, pageData } from "./html.js";
import { localise } from "./i18n.js";
import { KeyedRows } from "./keyed-rows.js";

const MAX_ROWS = 1000; // so that an open page does not grow for ever

/**
 * @template {{id: string | number}} T
 * @extends {KeyedRows<T>}
 */
export class NewestFirstTable extends KeyedRows {
  /**
   * @param {string} path of the list in the API
   * @param {Record<string, any>} query
   * @param {(row: HTMLTableRowElement, one: T) => void} fill
   */
  constructor(path, query, fill) {
    super(byId("list").tBodies[0]);
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

  /** @param {T} one */
  make(one) {
    const row = super.make(one);
    this.fill(row, one);
    localise(row);
    return row;
  }

  /** Add new items on top and update existing rows. @param {T[]} some newest first */
  show(some) {
    for (const one of some) {
      const row = this.row(one.id);
      if (row) this.fill(row, one);
    }
    this.container.prepend(...some.filter((one) => !this.row(one.id)).map((one) => this.make(one)));
    for (const row of this.rows.slice(MAX_ROWS)) row.remove();
    this.paint();
  }

  /** Load the page after the last row. */
  async loadOlder() {
    /** @type {Page<T> | undefined} */
    const found = await tryOrNotify(() => get(this.path, { ...this.query, cursor: this.cursor, limit: pageData.limit }));
    if (!found) return;
    this.container.append(...found.items.filter((one) => !this.row(one.id)).map((one) => this.make(one)));
    this.cursor = found.next_cursor;
    this.paint();
  }

  /** @returns {Promise<T[]>} */
  async loadNewest() {
    const found = await tryOrNotify(() => get(this.path, { ...this.query, limit: pageData.limit }));
    return found?.items ?? [];
  }

  paint() {
    byId("nothing").hidden = this.rows.length > 0;
    byId("older").hidden = !this.cursor;
    if (this.cursor) byId("older").href = encodeQuery({ ...pageData.asked, cursor: this.cursor });
  }
}
