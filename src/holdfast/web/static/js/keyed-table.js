// A table of few things, patched in place: rows are made from the server's template and follow the order that is told.

import { byId, el, field, icon } from "./html.js";
import { localise } from "./i18n.js";

/** @template {{id: number}} T */
export class KeyedTable {
  /** @param {(row: HTMLTableRowElement, item: T) => void} paint */
  constructor(paint) {
    this.paint = paint;
    /** @type {HTMLTableSectionElement} */
    this.body = byId("list").tBodies[0];
    /** @type {Map<number, T>} */
    this.items = new Map();
  }

  /** Show these, in this order. @param {T[]} items */
  show(items) {
    const wanted = new Set(items.map((one) => String(one.id)));
    for (const row of [...this.body.rows]) if (!wanted.has(row.dataset.id ?? "")) row.remove();
    this.items = new Map();
    items.forEach((one, index) => {
      const row = this.row(one.id) ?? this.make(one.id);
      if (this.body.rows[index] !== row) this.body.insertBefore(row, this.body.rows[index] ?? null);
      this.patch(one, row);
    });
    byId("list-none").hidden = items.length > 0;
  }

  /** Paint one anew, keeping the focus; one that is not shown is left alone. @param {T} item @param {HTMLTableRowElement | null} [row] */
  patch(item, row = this.row(item.id)) {
    if (!row) return;
    const focused = rowControls(row).indexOf(/** @type {HTMLElement} */ (document.activeElement));
    this.items.set(item.id, item);
    this.paint(row, item);
    localise(row);
    if (focused >= 0 && !row.contains(document.activeElement)) rowControls(row)[focused]?.focus();
  }

  /** @param {number} id @returns {HTMLTableRowElement | null} */
  row(id) {
    return this.body.querySelector(`tr[data-id="${id}"]`);
  }

  /** @param {number} id */
  make(id) {
    const row = /** @type {HTMLTableRowElement} */ (byId("list-row").content.firstElementChild.cloneNode(true));
    row.dataset.id = String(id);
    return row;
  }
}

/** @param {Element} row @returns {HTMLElement[]} */
const rowControls = (row) => [...row.querySelectorAll(/** @type {"a"} */ (".acts a, .acts button"))];

/**
 * Write a number of a row, as the locale does.
 * @param {Element} row
 * @param {string} name
 * @param {number} value
 */
export const setCount = (row, name, value) => field(row, name)?.setAttribute("value", String(value));

/**
 * Write a moment of a row, or a word where there is none.
 * @param {Element} row
 * @param {string} name
 * @param {string | null} at
 * @param {string} otherwise
 */
export function setTime(row, name, at, otherwise) {
  const part = field(row, name);
  if (!part || (at && part.getAttribute("datetime") === at)) return;
  part.replaceWith(at ? el("time", { "data-field": name, datetime: at }) : el("span", { "data-field": name }, otherwise));
}

/**
 * Write a chip of a row.
 * @param {Element} row
 * @param {string} status how it looks
 * @param {string} text
 */
export function setChip(row, status, text) {
  const part = field(row, "standing");
  if (!part) return;
  part.dataset.status = status;
  part.textContent = text;
}

/**
 * Make a button with an icon; one that cannot be used says why.
 * @param {string} name of the icon
 * @param {string} label
 * @param {() => void} used
 * @param {string} [why]
 */
export function iconButton(name, label, used, why = "") {
  const said = why ? `${label} (${why})` : label;
  return el("button", { type: "button", class: "icon-button", "aria-label": said, title: said, "aria-disabled": why ? "true" : null, onclick: () => why || used() }, icon(name));
}
