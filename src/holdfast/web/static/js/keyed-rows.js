// The rows of a table by the ids of their items: cloned from the server's template and updated in place.

import { byId, cloneTemplate } from "./html.js";

/** @template {{id: number | string}} T */
export class KeyedRows {
  /**
   * @param {HTMLElement} container
   * @param {{template?: string, empty?: string}} [ids] of the template of a row, and of the text for an empty table
   */
  constructor(container, { template = "row", empty = "nothing" } = {}) {
    this.container = container;
    this.template = template;
    this.empty = empty;
    /** @type {Map<T["id"], T>} */
    this.items = new Map();
  }

  /** @returns {HTMLTableRowElement[]} */
  get rows() {
    return [.../** @type {NodeListOf<HTMLTableRowElement>} */ (this.container.querySelectorAll("tr[data-id]"))];
  }

  /** @param {number | string} id @returns {HTMLTableRowElement | null} */
  row(id) {
    return this.container.querySelector(`tr[data-id="${CSS.escape(String(id))}"]`);
  }

  /** Make a row. Subclasses add what never changes. @param {T} item @returns {HTMLTableRowElement} */
  make(item) {
    const row = cloneTemplate(this.template);
    row.dataset.id = String(item.id);
    return row;
  }

  /** Update the row of an item; subclasses do it. @param {T} _item */
  patch(_item) {}

  /** Return the part of the table that contains the row of an item. @param {T} _item @returns {Element} */
  section(_item) {
    return this.container;
  }

  /** Show items in this order. Existing rows are moved and updated, never replaced; the focus stays. @param {T[]} items */
  show(items) {
    const restoreFocus = this.captureFocus();
    const ids = new Set(items.map((item) => String(item.id)));
    for (const row of this.rows) if (!ids.has(row.dataset.id ?? "")) row.remove();
    this.items = new Map(items.map((item) => [item.id, item]));
    /** @type {Map<Element, Element>} the last placed row of each section */
    const last = new Map();
    for (const item of items) {
      const section = this.section(item);
      const row = this.row(item.id) ?? this.make(item);
      const before = last.get(section);
      const next = before ? before.nextElementSibling : section.querySelector("tr[data-id]");
      if (next !== row) section.insertBefore(row, next);
      last.set(section, row);
      this.patch(item);
    }
    restoreFocus();
    byId(this.empty).hidden = items.length > 0;
  }

  /** Return a function that restores the focus: to the same control of the row, or to the row now in its place. */
  captureFocus() {
    const active = /** @type {HTMLElement | null} */ (document.activeElement);
    const row = active?.closest("tr");
    if (!active || !row?.dataset.id || !this.container.contains(row)) return () => {};
    const id = row.dataset.id;
    const place = this.rows.indexOf(row);
    const control = active.dataset.action;
    return () => {
      const again = this.row(id) ?? this.rows[Math.min(place, this.rows.length - 1)];
      if (!again || again.contains(document.activeElement)) return;
      /** @type {HTMLElement} */ (again.querySelector(`[data-action="${control}"]`) ?? again).focus({ preventScroll: true });
    };
  }
}
