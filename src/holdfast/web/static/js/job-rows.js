// The rows of the queue, grouped by priority: updated in place, in the server's order. Focus and scroll stay.

import { labelButton } from "./actions.js";
import { el, field, icon, pageData, setContent, setText } from "./html.js";
import { explainCode, explainProblem, formatDuration, localise, t, translationOr } from "./i18n.js";
import { KeyedRows } from "./keyed-rows.js";
import { jobStatusName, paintProgress, paintStatus } from "./status.js";

/** @typedef {"cancel" | "retry" | "details"} JobAction */

const ICONS = { cancel: "cancel", retry: "retry", details: "more" };

/** Return the name of the document, or what else the job is about. @param {Job} job */
export const jobTitle = (job) => job.name || (job.document ? t("queue.gone", { id: job.document }) : translationOr(`queue.subject.${job.subject}`, job.subject));

/**
 * Return why an action on a job is not possible now, or null if it is.
 * @param {JobAction | "rank"} action
 * @param {Job} job
 * @returns {string | null}
 */
export function whyDisabled(action, job) {
  if (action === "details") return null;
  if (pageData.scope === "read") return t("disabled.scope");
  if (action === "retry") {
    if (!job.outcome) return t(job.state === "queued" ? "disabled.queued" : "disabled.active");
    if (job.outcome !== "failed" && job.outcome !== "degraded") return t("disabled.not_failed");
    return job.document === null ? t("queue.why_no_document") : job.name ? null : t("queue.why_gone");
  }
  if (job.outcome) return t("queue.why_ended");
  return action === "cancel" && job.state === "deleting" ? t("disabled.deleting") : null;
}

/** @extends {KeyedRows<Job>} */
export class JobRows extends KeyedRows {
  /**
   * @param {HTMLTableElement} table
   * @param {{act: (action: JobAction, job: Job) => void, rank: (job: Job, priority: number) => void}} handlers
   */
  constructor(table, handlers) {
    super(table);
    this.handlers = handlers;
    /** @type {QueueStats} */
    this.queue = pageData.queue;
  }

  /** @param {Job} job @returns {Element} */
  section(job) {
    return /** @type {Element} */ (this.container.querySelector(job.outcome ? "tbody[data-ended]" : `tbody[data-priority="${job.priority}"]`));
  }

  /** Show jobs. Lists of jobs lack the reasons for waiting, so known ones stay. @param {Job[]} jobs */
  show(jobs) {
    super.show(jobs.map((job) => ({ ...job, waiting_for: job.waiting_for.length ? job.waiting_for : (this.items.get(job.id)?.waiting_for ?? []) })));
    if (this.rows[0] && !this.rows.some((row) => row.tabIndex === 0)) this.rows[0].tabIndex = 0;
  }

  /** @param {Job} job */
  make(job) {
    const row = super.make(job);
    row.id = `job-${job.id}`;
    setText(row, "operation", t(`operation.${job.bulk?.action ?? job.operation}`));
    setText(row, "requester", job.requester || t("queue.this_machine"));
    setContent(row, "base", job.base ? el("a", { href: `/queue?base=${encodeURIComponent(job.base)}` }, job.base) : t("queue.gone_base"));
    return row;
  }

  /** Update the row of a job. @param {Partial<Job> & {id: string}} changes */
  patch(changes) {
    const known = this.items.get(changes.id);
    const row = this.row(changes.id);
    if (!known || !row) return;
    const job = { ...known, ...changes, waiting_for: changes.waiting_for?.length ? changes.waiting_for : known.waiting_for };
    this.items.set(job.id, job);
    this.addControls(row, job);
    paintStatus(row, job.state, jobStatusName(job.state));
    paintProgress(row, job.state === "indexing" || job.state === "deleting" ? job.progress : null);
    setText(row, "why", this.describeReason(job), { title: true });
    const about = field(row, "about");
    if (about && about.dataset.name !== job.name) {
      about.dataset.name = job.name;
      about.replaceChildren(subjectLink(job));
    }
    const at = field(row, "at");
    const moment = job.finished_at ?? job.created_at;
    if (at && at.getAttribute("datetime") !== moment) {
      at.setAttribute("datetime", moment);
      localise(row);
    }
    if (job.finished_at) setText(row, "took", `${t("queue.took")} ${formatDuration((new Date(job.finished_at).getTime() - new Date(job.created_at).getTime()) / 1000)}`);
    const rank = /** @type {HTMLSelectElement} */ (row.querySelector("select"));
    if (rank) rank.value = String(job.priority);
    if (rank && job.outcome) rank.replaceWith(el("span", { class: "number dim" }, job.priority));
    if (job.outcome) row.querySelector(".grip")?.replaceChildren();
    for (const one of row.querySelectorAll("button[data-action]")) paintButton(/** @type {HTMLElement} */ (one), job);
  }

  /** Return why a job waits or why it failed. @param {Job} job */
  describeReason(job) {
    if (job.state === "queued" && this.queue.paused) return t("queue.held");
    if (job.state === "queued" && this.queue.paused_bases.includes(job.base)) return t("queue.held_base");
    if (!job.outcome) return job.progress ? "" : explainProblem(job.waiting_for[0] ?? null, "waits");
    const error = Object.values(job.results).find((one) => one.error)?.error;
    return error ? explainCode(error) : "";
  }

  /** Add the controls that need scripts. @param {HTMLTableRowElement} row @param {Job} job */
  addControls(row, job) {
    const controls = row.querySelector(".acts");
    if (!controls || controls.childElementCount) return;
    const current = () => /** @type {Job} */ (this.items.get(job.id));
    for (const action of /** @type {JobAction[]} */ (["details", "retry", "cancel"])) {
      controls.append(el("button", { type: "button", class: "icon-button", "data-action": action, onclick: () => whyDisabled(action, current()) ?? this.handlers.act(action, current()) }, icon(ICONS[action])));
    }
    if (!whyDisabled("rank", job)) {
      row.querySelector(".grip")?.append(el("span", { class: "handle", draggable: "true", title: t("queue.drag"), "data-drag": job.id }, icon("grip")));
      const choice = el("select", { "data-action": "rank", "aria-label": t("queue.set_priority", { name: jobTitle(job) }), onchange: () => this.handlers.rank(current(), Number(choice.value)) },
        ...Array.from({ length: 10 }, (_, one) => el("option", { value: one }, one)));
      field(row, "priority")?.replaceWith(choice);
    }
    localise(row);
  }
}

/** @param {HTMLElement} button @param {Job} job */
function paintButton(button, job) {
  const action = /** @type {JobAction} */ (button.dataset.action);
  labelButton(button, action === "details" ? t("queue.details") : t(`action.${action}`), jobTitle(job), whyDisabled(action, job));
}

/** Return a link to the document, cards or base of a job. @param {Job} job */
function subjectLink(job) {
  if (!job.base || (job.document && !job.name)) return el("span", { class: "dim" }, jobTitle(job));
  const place = `/bases/${encodeURIComponent(job.base)}/`;
  return el("a", { href: job.document ? `${place}documents/${job.document}` : `${place}${job.subject === "cards" ? "cards" : "documents"}` }, jobTitle(job));
}
