// The queue: jobs in the order they are served, live, with their actions.

import { encodeQuery, get, latest, post } from "../api.js";
import { askConfirmation, showNotice, tryOrNotify } from "../dialog.js";
import { byId, el, field, icon, pageData, setText } from "../html.js";
import { explainReply, formatNumber, localise, t, translationOr } from "../i18n.js";
import { openJobDialog } from "../job-dialog.js";
import { PriorityControl } from "../job-priority.js";
import { JobRows, jobTitle } from "../job-rows.js";
import { onPageChange, paintPager } from "../pager.js";
import { askToPause, resume } from "../pause.js";
import { latestProgress } from "../status.js";
import { POLL_MS, coalesced, followEvents, pollWhile } from "../stream.js";

const asked = pageData.asked;
const base = asked.base || null;
const table = byId("queue");
const scheduleLoad = coalesced(load);
const rows = new JobRows(table, { act: runJobAction, rank: (job, priority) => priorities.setPriority(job, priority) });
const priorities = new PriorityControl(table, (id) => rows.items.get(id), { moved: moveJob, done: scheduleLoad });

const listing = latest();
/** @type {Job[]} */
let shown = [];

async function load() {
  if (priorities.dragged) return scheduleLoad();
  const signal = listing();
  const found = await tryOrNotify(() => Promise.all([get("/jobs", { base, state: asked.state, ...(asked.cursor ? { cursor: asked.cursor } : { page: asked.page }), page_size: asked.size }, signal), get("/jobs/overview", { base }, signal)]));
  if (!found || signal.aborted || priorities.dragged) return;
  /** @type {[Page<Job>, QueueStats]} */
  const [page, queue] = found;
  const total = page.total ?? 0;
  if (!page.items.length && total && asked.page > 1) return showPage(Math.max(1, Math.ceil(total / asked.size)));
  rows.queue = queue;
  showJobs(page.items);
  paintPager(asked, page);
  paintQueue();
  loadLongRunning(queue.long_running_seconds);
  loadWaitingReasons();
}

const LONG_RUNNING_SHOWN = 10;

/** Load and paint the jobs that have been running for long. @param {number} limit seconds; 0: none are shown */
async function loadLongRunning(limit) {
  /** @type {Page<Job> | null} */
  const found = limit ? await get("/jobs", { base, longer_than: limit, page_size: LONG_RUNNING_SHOWN }).catch(() => null) : null;
  const panel = byId("long");
  panel.hidden = !found?.items.length;
  field(panel, "jobs")?.replaceChildren(...(found?.items ?? []).map((job) => el("li", {}, el("a", { href: `#job-${job.id}` }, jobTitle(job)), " ", el("span", { class: "small dim" }, job.progress ? translationOr(`stage.${job.progress.stage}`, job.progress.stage) : ""), " ", el("time", { datetime: job.running_since }))));
  localise(panel);
}

/** Show jobs. A job with a requested priority already appears in its new group. @param {Job[]} jobs */
function showJobs(jobs) {
  shown = jobs.map((job) => ({ ...job, priority: priorities.requested.get(job.id) ?? job.priority }));
  rows.show(shown);
}

/** @param {Job} job */
function moveJob(job) {
  showJobs(shown.map((one) => (one.id === job.id ? { ...one, priority: job.priority } : one)));
}

followEvents(
  {
    event: (event) => {
      if (!event.type.startsWith("index.")) scheduleLoad();
    },
    progress: (message) => {
      for (const part of message.parts) {
        if (!rows.items.has(part.job)) continue;
        const job = /** @type {Job} */ (rows.items.get(part.job));
        if (!job.outcome) rows.patch({ id: job.id, state: job.state === "deleting" ? "deleting" : "indexing", progress: latestProgress({ parts: [part] }) });
      }
    },
    reset: load,
  },
  base ? { base } : {},
);

/** @type {Map<string, number>} time of the last request by job and state */
const explained = new Map();
let explaining = false;

/** Load why the visible jobs wait, one request at a time. A pause needs no explanation. */
async function loadWaitingReasons() {
  if (explaining) return;
  explaining = true;
  for (const row of rows.rows) {
    const job = rows.items.get(row.dataset.id ?? "");
    const place = row.getBoundingClientRect();
    if (!job || job.outcome || job.progress || (job.state === "queued" && rows.queue.paused) || place.bottom < 0 || place.top > innerHeight || document.hidden) continue;
    const now = `${job.id} ${job.state}`;
    if (Date.now() - (explained.get(now) ?? 0) < POLL_MS) continue;
    explained.set(now, Date.now());
    const found = await get(`/jobs/${encodeURIComponent(job.id)}`).catch(() => null);
    if (found && !found.outcome) rows.patch({ id: job.id, waiting_for: found.waiting_for });
  }
  explaining = false;
}
addEventListener("scrollend", loadWaitingReasons);

pollWhile(() => [...rows.items.values()].some((job) => !job.outcome), scheduleLoad);

/** @param {number} page @param {string} [cursor] */
function showPage(page, cursor = "") {
  Object.assign(asked, { page, cursor });
  history.replaceState(null, "", location.pathname + encodeQuery({ base, state: asked.state, page: page > 1 ? page : "", cursor }));
  load();
}

onPageChange(showPage);
byId("filter").addEventListener("change", () => byId("filter").requestSubmit());

/** @type {Set<string>} */
const busy = new Set();

/** @param {import("../job-rows.js").JobAction} action @param {Job} job */
async function runJobAction(action, job) {
  if (action === "details") return openJobDialog(job.id);
  if (busy.has(job.id)) return;
  busy.add(job.id);
  const reply = await tryOrNotify(() => post(`/jobs/${encodeURIComponent(job.id)}:${action}`), job.base);
  busy.delete(job.id);
  if (!reply) return;
  showNotice(explainReply(reply));
  scheduleLoad();
}

/** Open the job in the hash of the address. */
function openJobFromHash() {
  const id = /^#job-(.+)$/.exec(decodeURIComponent(location.hash))?.[1];
  if (id) openJobDialog(id);
}
addEventListener("hashchange", openJobFromHash);

const everywhere = base === null && !pageData.everywhere ? t("queue.everywhere") : null;
const refused = pageData.scope === "read" ? t("disabled.scope") : everywhere;

/** @param {string} name @param {string} text @param {() => void} used @param {{danger?: boolean, reason?: string | null}} [options] */
const button = (name, text, used, { danger = false, reason = refused } = {}) =>
  el("button", { type: "button", class: danger ? "danger" : null, "aria-disabled": reason ? "true" : null, title: reason, onclick: () => reason ?? used() }, icon(name), text);

function paintQueue() {
  const { paused, paused_bases: bases, active, active_is_exact: exact, ended } = rows.queue;
  for (const tab of byId("states").children) {
    const part = tab.querySelector("data");
    const state = tab.getAttribute("data-state") ?? "";
    if (!part) continue;
    part.textContent = formatNumber((active[state] ?? 0) + (ended[state] ?? 0));
    part.toggleAttribute("data-more", !exact && Boolean(active[state]));
  }
  const banner = byId("paused");
  banner.hidden = !paused && !bases.length;
  const text = paused ? t("queue.paused_all") : t("queue.paused_bases", { bases: bases.join(t("list.separator")) });
  setText(banner, "paused", text);
  const again = [
    ...(paused && pageData.everywhere ? [{ text: t("queue.resume"), base: null }] : []),
    ...bases.map((one) => ({ text: t("queue.resume_base", { base: one }), base: one })),
  ];
  replaceButtons(field(banner, "resume"), again.map((one) => button("play", one.text, () => resume(one.base, load), { reason: pageData.scope === "read" ? t("disabled.scope") : null })));
  const already = base ? bases.includes(base) : paused;
  replaceButtons(byId("acts"), [
    already ? null : button("pause", base ? t("queue.pause_base", { base }) : t("queue.pause"), () => askToPause(base, load)),
    button("retry", t("queue.retry_failed"), () => runOnAll("retry")),
    button("stop", t("queue.stop"), () => runOnAll("cancel"), { danger: true }),
  ]);
  byId("acts").hidden = false;
  byId("hint").hidden = pageData.scope === "read";
}

/** Replace buttons, unless they are the same: a focused button keeps the focus. @param {HTMLElement | null} bar @param {(HTMLElement | null)[]} some */
function replaceButtons(bar, some) {
  const made = some.filter((one) => one !== null);
  if (!bar || [...bar.children].map((one) => one.textContent).join("\n") === made.map((one) => one.textContent).join("\n")) return;
  bar.replaceChildren(...made);
}

/** @param {"cancel" | "retry"} what */
async function runOnAll(what) {
  const counted = await tryOrNotify(() => post(`/jobs:${what}`, { base, dry_run: true }));
  if (!counted) return;
  if (!counted.found) return showNotice(t(what === "cancel" ? "queue.nothing_active" : "queue.nothing_failed"));
  const count = formatNumber(counted.found);
  const question = what === "retry" ? t("queue.retry_all", { count }) : base ? t("queue.stop_base", { count, base }) : t("queue.stop_all", { count });
  if (!(await askConfirmation(question, t(what === "cancel" ? "queue.stop" : "queue.retry_failed"), what === "cancel" ? { danger: true, no: t("queue.keep") } : {}))) return;
  /** @type {BulkSummary | undefined} */
  const answer = await tryOrNotify(() => post(`/jobs:${what}`, { base }));
  if (answer) showNotice(t(answer.jobs.length ? "queue.started_many" : "queue.done_many", { accepted: formatNumber(answer.accepted), found: formatNumber(answer.found) }));
  load();
}

showJobs(pageData.jobs.items);
paintPager(asked, pageData.jobs);
paintQueue();
openJobFromHash();
