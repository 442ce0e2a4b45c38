// The rows of the table of documents: updated in place, in the server's order. Focus, selection and scroll stay.

import { actionButtons, paintButton } from "./actions.js";
import { byId, field, setText } from "./html.js";
import { explainProblem, formatSize, localise } from "./i18n.js";
import { paintProgress, paintStatus } from "./status.js";

export class DocumentRows {
  /**
   * @param {HTMLTableSectionElement} body
   * @param {{done: () => void, pick: (row: HTMLTableRowElement, doc: Doc) => void, href: (doc: Doc) => string}} handlers
   */
  constructor(body, handlers) {
    this.body = body;
    this.handlers = handlers;
    /** @type {Map<number, Doc>} */
    this.docs = new Map();
  }

  /** @param {number} id @returns {HTMLTableRowElement | null} */
  row(id) {
    return this.body.querySelector(`tr[data-id="${id}"]`);
  }

  /**
   * Show documents in this order. Existing rows are moved and updated, never replaced.
   * @param {Doc[]} docs
   */
  show(docs) {
    const focused = document.activeElement?.closest("tr")?.dataset.id;
    const within = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset?.action;
    const wanted = new Set(docs.map((doc) => doc.id));
    for (const row of [...this.body.rows]) if (!wanted.has(Number(row.dataset.id))) row.remove();
    this.docs = new Map(docs.map((doc) => [doc.id, doc]));
    docs.forEach((doc, index) => {
      const row = this.row(doc.id) ?? this.make(doc);
      if (this.body.rows[index] !== row) this.body.insertBefore(row, this.body.rows[index] ?? null);
      this.patch(doc);
    });
    const again = focused && this.row(Number(focused));
    if (again && !again.contains(document.activeElement)) {
      const part = within && /** @type {HTMLElement | null} */ (again.querySelector(`[data-action="${within}"]`));
      (part || again).focus({ preventScroll: true });
    }
    byId("nothing").hidden = docs.length > 0;
  }

  /** @param {Doc} doc */
  make(doc) {
    const row = /** @type {HTMLTableRowElement} */ (byId("row").content.firstElementChild.cloneNode(true));
    row.dataset.id = String(doc.id);
    const link = /** @type {HTMLAnchorElement} */ (field(row, "name"));
    link.textContent = doc.name;
    if (doc.status !== "deleting") link.href = this.handlers.href(doc);
    row.querySelector(".named use")?.setAttribute("href", `/static/icons.svg#${doc.kind}`);
    return row;
  }

  /** Update the row of a document. @param {Partial<Doc> & {id: number}} changes */
  patch(changes) {
    const doc = { .../** @type {Doc} */ (this.docs.get(changes.id)), ...changes };
    const row = this.row(doc.id);
    if (!this.docs.has(doc.id) || !row) return;
    this.docs.set(doc.id, doc);
    this.addControls(row, doc);
    paintStatus(row, doc.status);
    paintProgress(row, doc.status === "indexing" || doc.status === "deleting" ? doc.progress : null);
    setText(row, "why", explainProblem(doc.why), { hide: true, title: true });
    const name = field(row, "name");
    if (doc.status === "deleting") name?.removeAttribute("href"); // the page is gone
    setText(row, "name", doc.name);
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
    acts.append(...actionButtons(() => /** @type {Doc} */ (this.docs.get(doc.id)), this.handlers.done));
    this.handlers.pick(row, doc);
    localise(row);
  }
}
