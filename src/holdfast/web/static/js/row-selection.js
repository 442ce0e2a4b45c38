// Selects rows and moves between them, by mouse and by keys.

import { el } from "./html.js";
import { t } from "./i18n.js";

export class RowSelection {
  /**
   * @param {HTMLTableElement} table
   * @param {() => void} changed
   */
  constructor(table, changed) {
    this.table = table;
    this.changed = changed;
    /** @type {Set<number>} */
    this.ids = new Set();
    this.all = el("input", { type: "checkbox", "aria-label": t("documents.select_all"), onchange: () => this.selectAll(this.all.checked) });
    table.querySelector("th.pick")?.append(this.all);
    table.addEventListener("keydown", (event) => this.onKey(event));
    const first = /** @type {HTMLElement | null} */ (table.querySelector("tbody tr"));
    if (first) first.tabIndex = 0;
  }

  /** @returns {HTMLTableRowElement[]} */
  get rows() {
    return [.../** @type {NodeListOf<HTMLTableRowElement>} */ (this.table.querySelectorAll("tbody tr"))];
  }

  /** @param {HTMLTableRowElement} row @param {{id: number, name: string}} doc */
  addCheckbox(row, doc) {
    const box = el("input", { type: "checkbox", tabindex: -1, "aria-label": t("documents.select", { name: doc.name }), onchange: () => this.select(row, box.checked) });
    row.querySelector(".pick")?.append(box);
    this.paint(row);
  }

  /** @param {HTMLTableRowElement} row @param {boolean} on */
  select(row, on) {
    const id = Number(row.dataset.id);
    if (on) this.ids.add(id);
    else this.ids.delete(id);
    this.paint(row);
    this.changed();
  }

  /** @param {boolean} on */
  selectAll(on) {
    this.ids = new Set(on ? this.rows.map((row) => Number(row.dataset.id)) : []);
    this.rows.forEach((row) => this.paint(row));
    this.changed();
  }

  /** Remove rows that are not shown any more from the selection. */
  dropHidden() {
    const shown = new Set(this.rows.map((row) => Number(row.dataset.id)));
    this.ids = new Set([...this.ids].filter((id) => shown.has(id)));
    this.changed();
    if (!this.rows.some((row) => row.tabIndex === 0) && this.rows[0]) this.rows[0].tabIndex = 0;
  }

  /** @param {HTMLTableRowElement} row */
  paint(row) {
    const on = this.ids.has(Number(row.dataset.id));
    row.setAttribute("aria-selected", String(on));
    const box = /** @type {HTMLInputElement | null} */ (row.querySelector(".pick input"));
    if (box) box.checked = on;
    this.all.checked = this.ids.size > 0 && this.ids.size === this.rows.length;
    this.all.indeterminate = this.ids.size > 0 && !this.all.checked;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const row = /** @type {HTMLElement} */ (event.target).closest("tbody tr");
    if (!(row instanceof HTMLTableRowElement) || event.ctrlKey || event.metaKey || event.altKey) return;
    const on = event.target === row;
    const to = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
    if (to instanceof HTMLTableRowElement) {
      event.preventDefault();
      row.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    } else if (on && event.key === "Enter") {
      /** @type {HTMLAnchorElement | null} */ (row.querySelector("a[data-field=name]"))?.click();
    } else if (on && event.key === " ") {
      event.preventDefault();
      this.select(row, !this.ids.has(Number(row.dataset.id)));
    } else if (event.key === "Escape" && this.ids.size) {
      this.selectAll(false);
    }
  }
}
