// The rows of the table of documents: updated in place, in the server's order. Focus, selection and scroll stay.

import { actionButtons, paintButton } from "./actions.js";
import { field, setText } from "./html.js";
import { explainProblem, formatSize, localise } from "./i18n.js";
import { KeyedRows } from "./keyed-rows.js";
import { paintProgress, paintStatus } from "./status.js";

/** @extends {KeyedRows<Doc>} */
export class DocumentRows extends KeyedRows {
  /**
   * @param {HTMLTableSectionElement} body
   * @param {{done: () => void, pick: (row: HTMLTableRowElement, doc: Doc) => void, href: (doc: Doc) => string}} handlers
   */
  constructor(body, handlers) {
    super(body);
    this.handlers = handlers;
  }

  /** @param {Doc} doc */
  make(doc) {
    const row = super.make(doc);
    const link = /** @type {HTMLAnchorElement} */ (field(row, "name"));
    link.textContent = doc.name;
    if (doc.status !== "deleting") link.href = this.handlers.href(doc);
    row.querySelector(".named use")?.setAttribute("href", `/static/icons.svg#${doc.kind}`);
    return row;
  }

  /** Update the row of a document. @param {Partial<Doc> & {id: number}} changes */
  patch(changes) {
    const doc = { .../** @type {Doc} */ (this.items.get(changes.id)), ...changes };
    const row = this.row(doc.id);
    if (!this.items.has(doc.id) || !row) return;
    this.items.set(doc.id, doc);
    this.addControls(row, doc);
    paintStatus(row, doc.status);
    paintProgress(row, doc.status === "indexing" || doc.status === "deleting" ? doc.progress : null);
    setText(row, "why", explainProblem(doc.why), { hide: true, title: true });
    const name = field(row, "name");
    if (doc.status === "deleting") name?.removeAttribute("href"); // the page is gone
    for (const [key, value] of Object.entries(doc)) {
      if (typeof value === "string" && key !== "status") setText(row, key, value); // shown as it is, where the row has it
    }
    const bytes = field(row, "size");
    bytes?.setAttribute("value", String(doc.size)); // `localise` formats it from here
    if (bytes) bytes.textContent = formatSize(doc.size);
    const changed = field(row, "changed");
    if (changed && changed.getAttribute("datetime") !== doc.changed_at) {
      changed.setAttribute("datetime", doc.changed_at);
      localise(row);
    }
    for (const button of row.querySelectorAll("[data-action]")) paintButton(/** @type {HTMLElement} */ (button), doc);
  }

  /** Add the controls that need scripts. @param {HTMLTableRowElement} row @param {Doc} doc */
  addControls(row, doc) {
    const acts = row.querySelector(".acts");
    if (!acts || acts.childElementCount) return;
    acts.append(...actionButtons(() => /** @type {Doc} */ (this.items.get(doc.id)), this.handlers.done));
    this.handlers.pick(row, doc);
    localise(row);
  }
}
