// A small table that is updated in place. Rows are cloned from the server's template.

import { byId, el, field, icon } from "./html.js";
import { localise } from "./i18n.js";
import { KeyedRows } from "./keyed-rows.js";

/**
 * @template {{id: number}} T
 * @extends {KeyedRows<T>}
 */
export class KeyedTable extends KeyedRows {
  /** @param {(row: HTMLTableRowElement, item: T) => void} paint */
  constructor(paint) {
    super(byId("list").tBodies[0], { template: "list-row", empty: "list-none" });
    this.paint = paint;
  }

  /** Update the row of an item and keep the focus. An item without a row is ignored. @param {T} item */
  patch(item) {
    const row = this.row(item.id);
    if (!row) return;
    const focused = rowControls(row).indexOf(/** @type {HTMLElement} */ (document.activeElement));
    this.items.set(item.id, item);
    this.paint(row, item);
    localise(row);
    if (focused >= 0 && !row.contains(document.activeElement)) rowControls(row)[focused]?.focus();
  }
}

/** @param {Element} row @returns {HTMLElement[]} */
const rowControls = (row) => [...row.querySelectorAll(/** @type {"a"} */ (".acts a, .acts button"))];

/**
 * Set a number; `localise` formats it.
 * @param {Element} row
 * @param {string} name
 * @param {number | null} value null: it is unknown
 * @param {boolean} [more] there are at least so many
 */
export function setCount(row, name, value, more = false) {
  field(row, name)?.setAttribute("value", String(value ?? ""));
  field(row, name)?.toggleAttribute("data-more", more);
}

/**
 * Set a time, or a text if there is none.
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
 * @param {Element} row
 * @param {string} status its colour
 * @param {string} text
 */
export function setChip(row, status, text) {
  const part = field(row, "standing");
  if (!part) return;
  part.dataset.status = status;
  part.textContent = text;
}

/**
 * Make a button with an icon. A reason `why` disables it.
 * @param {string} name of the icon
 * @param {string} label
 * @param {() => void} used
 * @param {string} [why]
 */
export function iconButton(name, label, used, why = "") {
  const title = why ? `${label} (${why})` : label;
  return el("button", { type: "button", class: "icon-button", "aria-label": title, title, "aria-disabled": why ? "true" : null, onclick: () => why || used() }, icon(name));
}
