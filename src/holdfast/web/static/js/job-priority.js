// Changes the priority of jobs: by dragging a row into a group, by keys, or by a select.

import { post } from "./api.js";
import { tryOrNotify } from "./dialog.js";
import { byId } from "./html.js";
import { t } from "./i18n.js";
import { jobTitle, whyDisabled } from "./job-rows.js";

const COALESCE_MS = 200; // several keys are one request
const RAISE_KEYS = new Set(["+", "="]);
const LOWER_KEYS = new Set(["-", "−", "_"]);

export class PriorityControl {
  /**
   * @param {HTMLTableElement} table
   * @param {(id: string) => Job | undefined} job
   * @param {{moved: (job: Job) => void, done: () => void}} handlers
   */
  constructor(table, job, handlers) {
    this.table = table;
    this.job = job;
    this.handlers = handlers;
    /** @type {Map<string, number>} requested and not confirmed priorities */
    this.requested = new Map();
    /** @type {Map<string, number>} */
    this.timers = new Map();
    /** @type {string | null} the dragged job */
    this.dragged = null;
    table.addEventListener("keydown", (event) => this.onKey(event));
    table.addEventListener("dragstart", (event) => this.onDragStart(event));
    table.addEventListener("dragover", (event) => this.onDragOver(event));
    table.addEventListener("drop", (event) => this.onDrop(event));
    table.addEventListener("dragend", () => this.endDrag());
  }

  /** Show a new priority at once and request it soon after. @param {Job} job @param {number} priority */
  setPriority(job, priority) {
    const name = jobTitle(job);
    if (whyDisabled("rank", job)) return;
    if (priority < 0 || priority > 9) return announce(t(priority < 0 ? "queue.ranked_first" : "queue.ranked_last", { name }));
    if (priority === job.priority) return;
    this.requested.set(job.id, priority);
    this.handlers.moved({ ...job, priority });
    announce(t("queue.ranked", { name, priority }));
    clearTimeout(this.timers.get(job.id));
    this.timers.set(job.id, setTimeout(() => this.send(job.id, priority), COALESCE_MS));
  }

  /** @param {string} id @param {number} priority */
  async send(id, priority) {
    await tryOrNotify(() => post(`/jobs/${encodeURIComponent(id)}:prioritise`, { priority }));
    if (this.requested.get(id) === priority) this.requested.delete(id);
    this.handlers.done();
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const row = /** @type {HTMLElement} */ (event.target).closest("tr");
    const job = this.job(row?.dataset.id ?? "");
    if (!row || !job || event.ctrlKey || event.metaKey || event.target instanceof HTMLSelectElement) return;
    const step = RAISE_KEYS.has(event.key) || (event.altKey && event.key === "ArrowUp") ? -1 : LOWER_KEYS.has(event.key) || (event.altKey && event.key === "ArrowDown") ? 1 : 0;
    if (step) {
      event.preventDefault();
      return this.setPriority(job, job.priority + step);
    }
    const rows = [.../** @type {NodeListOf<HTMLElement>} */ (this.table.querySelectorAll("tr[data-id]"))];
    const to = event.altKey ? null : { ArrowDown: rows[rows.indexOf(row) + 1], ArrowUp: rows[rows.indexOf(row) - 1] }[event.key];
    if (to) {
      event.preventDefault();
      row.tabIndex = -1;
      to.tabIndex = 0;
      to.focus();
    } else if (event.target === row && event.key === "Enter") {
      /** @type {HTMLAnchorElement | null} */ (row.querySelector('[data-field="about"] a'))?.click();
    }
  }

  /** @param {DragEvent} event */
  onDragStart(event) {
    const handle = /** @type {HTMLElement} */ (event.target);
    const row = handle.dataset?.drag && handle.closest("tr");
    if (!row || !event.dataTransfer) return;
    this.dragged = handle.dataset.drag ?? null;
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", jobTitle(/** @type {Job} */ (this.job(this.dragged ?? ""))));
    event.dataTransfer.setDragImage(row, 16, 16);
    // A change of the page during `dragstart` would end the drag, so it comes later.
    setTimeout(() => this.dragged && this.table.classList.add("dragging"), 0);
  }

  /** @param {DragEvent} event */
  onDragOver(event) {
    const group = this.dragged && target(event);
    for (const one of this.table.tBodies) one.classList.toggle("over", one === group);
    if (group) event.preventDefault();
  }

  /** @param {DragEvent} event */
  onDrop(event) {
    const group = target(event);
    const job = this.job(this.dragged ?? "");
    if (!group || !job) return;
    event.preventDefault();
    this.endDrag();
    this.setPriority(job, Number(group.dataset.priority));
  }

  endDrag() {
    this.dragged = null;
    this.table.classList.remove("dragging");
    for (const one of this.table.tBodies) one.classList.remove("over");
  }
}

/** Return the priority group under the pointer. @param {DragEvent} event @returns {HTMLTableSectionElement | null} */
const target = (event) => /** @type {Element} */ (event.target).closest("tbody[data-priority]");

/** Announce a change to screen readers. @param {string} text */
function announce(text) {
  byId("said").textContent = text;
}
