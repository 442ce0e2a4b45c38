// Giving jobs another priority: by dragging a row into a group, by keys on a row, by choosing.

import { post } from "./api.js";
import { tried } from "./dialog.js";
import { byId } from "./html.js";
import { called, hindrance } from "./jobs.js";
import { t } from "./words.js";

const SETTLE = 200; // milliseconds in which several keys are one request
const MORE = new Set(["+", "="]);
const LESS = new Set(["-", "−", "_"]);

/** What people want served sooner or later. */
export class Ranking {
  /**
   * @param {HTMLTableElement} table
   * @param {(id: string) => Job | undefined} job
   * @param {{moved: (job: Job) => void, done: () => void}} uses
   */
  constructor(table, job, uses) {
    this.table = table;
    this.job = job;
    this.uses = uses;
    /** @type {Map<string, number>} priorities that were asked for and not answered yet */
    this.wanted = new Map();
    /** @type {Map<string, number>} */
    this.timers = new Map();
    /** @type {string | null} the job that is being dragged */
    this.dragged = null;
    table.addEventListener("keydown", (event) => this.key(event));
    table.addEventListener("dragstart", (event) => this.lift(event));
    table.addEventListener("dragover", (event) => this.over(event));
    table.addEventListener("drop", (event) => this.drop(event));
    table.addEventListener("dragend", () => this.rest());
  }

  /** Ask for another priority; what is shown follows at once. @param {Job} job @param {number} priority */
  rank(job, priority) {
    const name = called(job);
    if (hindrance("rank", job)) return;
    if (priority < 0 || priority > 9) return say(t(priority < 0 ? "queue.ranked_first" : "queue.ranked_last", { name }));
    if (priority === job.priority) return;
    this.wanted.set(job.id, priority);
    this.uses.moved({ ...job, priority });
    say(t("queue.ranked", { name, priority }));
    clearTimeout(this.timers.get(job.id));
    this.timers.set(job.id, setTimeout(() => this.send(job.id, priority), SETTLE));
  }

  /** @param {string} id @param {number} priority */
  async send(id, priority) {
    await tried(() => post(`/jobs/${encodeURIComponent(id)}:prioritise`, { priority }));
    if (this.wanted.get(id) === priority) this.wanted.delete(id);
    this.uses.done();
  }

  // ---------------------------------------------------------------- keys

  /** @param {KeyboardEvent} event */
  key(event) {
    const row = /** @type {HTMLElement} */ (event.target).closest("tr");
    const job = this.job(row?.dataset.id ?? "");
    if (!row || !job || event.ctrlKey || event.metaKey || event.target instanceof HTMLSelectElement) return;
    const step = MORE.has(event.key) || (event.altKey && event.key === "ArrowUp") ? -1 : LESS.has(event.key) || (event.altKey && event.key === "ArrowDown") ? 1 : 0;
    if (step) {
      event.preventDefault();
      return this.rank(job, job.priority + step);
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

  // ---------------------------------------------------------------- dragging

  /** @param {DragEvent} event */
  lift(event) {
    const handle = /** @type {HTMLElement} */ (event.target);
    const row = handle.dataset?.drag && handle.closest("tr");
    if (!row || !event.dataTransfer) return;
    this.dragged = handle.dataset.drag ?? null;
    event.dataTransfer.effectAllowed = "move";
    event.dataTransfer.setData("text/plain", called(/** @type {Job} */ (this.job(this.dragged ?? ""))));
    event.dataTransfer.setDragImage(row, 16, 16);
    // A browser ends a drag when the page changes while it begins; a moment later it may.
    setTimeout(() => this.dragged && this.table.classList.add("dragging"), 0);
  }

  /** @param {DragEvent} event */
  over(event) {
    const group = this.dragged && target(event);
    for (const one of this.table.tBodies) one.classList.toggle("over", one === group);
    if (group) event.preventDefault();
  }

  /** @param {DragEvent} event */
  drop(event) {
    const group = target(event);
    const job = this.job(this.dragged ?? "");
    if (!group || !job) return;
    event.preventDefault();
    this.rest();
    this.rank(job, Number(group.dataset.priority));
  }

  rest() {
    this.dragged = null;
    this.table.classList.remove("dragging");
    for (const one of this.table.tBodies) one.classList.remove("over");
  }
}

/** The group that a drag is over. @param {DragEvent} event @returns {HTMLTableSectionElement | null} */
const target = (event) => /** @type {Element} */ (event.target).closest("tbody[data-priority]");

/** Say something to who cannot see it. @param {string} text */
function say(text) {
  byId("said").textContent = text;
}
