// The queue: live, in the order in which it is served, and what people do to it.

import { get, post, search } from "../api.js";
import { confirmed, notice, tried } from "../dialog.js";
import { byId, data, el, field, icon } from "../html.js";
import { details } from "../job.js";
import { JobRows } from "../jobs.js";
import { paging, paintPager } from "../paging.js";
import { pause, resume } from "../pausing.js";
import { Ranking } from "../ranking.js";
import { progressOf } from "../standing.js";
import { LOOK, follow, lookAgain } from "../stream.js";
import { number, replied, t } from "../words.js";

const SETTLE = 240; // milliseconds in which what happens is shown together
const asked = data.asked;
const base = asked.base || null;
const table = byId("queue");
const rows = new JobRows(table, { act, rank: (job, priority) => ranking.rank(job, priority) });
const ranking = new Ranking(table, (id) => rows.jobs.get(id), { moved, done: soon });

// ---------------------------------------------------------------- what is shown

/** @type {AbortController | null} */
let listing = null;
let waiting = 0;
/** @type {Job[]} */
let shown = [];

async function load() {
  waiting = 0;
  if (ranking.dragged) return soon();
  listing?.abort();
  listing = new AbortController();
  const signal = listing.signal;
  const found = await tried(() => Promise.all([get("/jobs", { base, state: asked.state, page: asked.page, page_size: asked.size }, signal), get("/jobs/overview", { base }, signal)]));
  if (!found || signal.aborted || ranking.dragged) return;
  /** @type {[Page<Job>, Queue]} */
  const [page, queue] = found;
  const total = page.total ?? 0;
  if (!page.items.length && total && asked.page > 1) return turn(Math.max(1, Math.ceil(total / asked.size)));
  rows.queue = queue;
  arrange(page.items);
  paintPager(asked, total);
  paintQueue();
  explain();
}

/** Show jobs in order, those with a priority that is just asked for where they will stand. @param {Job[]} jobs */
function arrange(jobs) {
  shown = jobs.map((job) => ({ ...job, priority: ranking.wanted.get(job.id) ?? job.priority }));
  rows.show(shown);
}

/** @param {Job} job */
function moved(job) {
  arrange(shown.map((one) => (one.id === job.id ? { ...one, priority: job.priority } : one)));
}

/** Load soon; many reasons within a moment are one, and none waits for quiet. */
function soon() {
  waiting ||= setTimeout(load, SETTLE);
}

follow(
  {
    event: (event) => {
      if (!event.type.startsWith("index.")) soon();
    },
    progress: (told) => {
      for (const part of told.parts) {
        if (!rows.jobs.has(part.job)) continue;
        const job = /** @type {Job} */ (rows.jobs.get(part.job));
        if (!job.outcome) rows.patch({ id: job.id, state: job.state === "deleting" ? "deleting" : "indexing", progress: progressOf({ parts: [part] }) });
      }
    },
    reset: load,
  },
  base ? { base } : {},
);

/** @type {Map<string, number>} when it was asked why a job waits in its state */
const explained = new Map();
let explaining = false;

/** Ask why those jobs wait that can be seen, one after the other; a pause explains itself. */
async function explain() {
  if (explaining) return;
  explaining = true;
  for (const row of rows.rows) {
    const job = rows.jobs.get(row.dataset.id ?? "");
    const place = row.getBoundingClientRect();
    if (!job || job.outcome || job.progress || (job.state === "queued" && rows.queue.paused) || place.bottom < 0 || place.top > innerHeight || document.hidden) continue;
    const now = `${job.id} ${job.state}`;
    if (Date.now() - (explained.get(now) ?? 0) < LOOK) continue;
    explained.set(now, Date.now());
    const found = await get(`/jobs/${encodeURIComponent(job.id)}`).catch(() => null);
    if (found && !found.outcome) rows.patch({ id: job.id, waiting_for: found.waiting_for });
  }
  explaining = false;
}
addEventListener("scrollend", explain);

lookAgain(() => [...rows.jobs.values()].some((job) => !job.outcome), soon);

// ---------------------------------------------------------------- where in the queue

/** @param {number} page */
function turn(page) {
  asked.page = page;
  history.replaceState(null, "", location.pathname + search({ base, state: asked.state, page: page > 1 ? page : "" }));
  load();
}

paging(turn);
byId("filter").addEventListener("change", () => byId("filter").requestSubmit());

// ---------------------------------------------------------------- what is done to a job

/** @type {Set<string>} */
const busy = new Set();

/** @param {import("../jobs.js").JobAction} action @param {Job} job */
async function act(action, job) {
  if (action === "details") return details(job.id);
  if (busy.has(job.id)) return;
  busy.add(job.id);
  const reply = await tried(() => post(`/jobs/${encodeURIComponent(job.id)}:${action}`), job.base);
  busy.delete(job.id);
  if (!reply) return;
  notice(replied(reply));
  soon();
}

/** A job that the address names, as a link from elsewhere does. */
function named() {
  const id = /^#job-(.+)$/.exec(decodeURIComponent(location.hash))?.[1];
  if (id) details(id);
}
addEventListener("hashchange", named);

// ---------------------------------------------------------------- what is done to all

const everywhere = base === null && !data.everywhere ? t("queue.everywhere") : null;
const refused = data.scope === "read" ? t("why.scope") : everywhere;

/** @param {string} name @param {string} text @param {() => void} used @param {{danger?: boolean, reason?: string | null}} [options] */
const button = (name, text, used, { danger = false, reason = refused } = {}) =>
  el("button", { type: "button", class: danger ? "danger" : null, "aria-disabled": reason ? "true" : null, title: reason, onclick: () => reason ?? used() }, icon(name), text);

function paintQueue() {
  const { paused, paused_bases: bases, active, ended } = rows.queue;
  for (const tab of byId("states").children) {
    const part = tab.querySelector("data");
    const state = tab.getAttribute("data-state") ?? "";
    if (part) part.textContent = number((active[state] ?? 0) + (ended[state] ?? 0));
  }
  const banner = byId("paused");
  banner.hidden = !paused && !bases.length;
  const said = field(banner, "paused");
  const text = paused ? t("queue.paused_all") : t("queue.paused_bases", { bases: bases.join(", ") });
  if (said && said.textContent !== text) said.textContent = text;
  const again = [
    ...(paused && data.everywhere ? [{ text: t("queue.resume"), base: null }] : []),
    ...bases.map((one) => ({ text: t("queue.resume_base", { base: one }), base: one })),
  ];
  replaced(field(banner, "resume"), again.map((one) => button("play", one.text, () => resume(one.base, load), { reason: data.scope === "read" ? t("why.scope") : null })));
  const already = base ? bases.includes(base) : paused;
  replaced(byId("acts"), [
    already ? null : button("pause", base ? t("queue.pause_base", { base }) : t("queue.pause"), () => pause(base, load)),
    button("retry", t("queue.retry_failed"), () => many("retry")),
    button("stop", t("queue.stop"), () => many("cancel"), { danger: true }),
  ]);
  byId("acts").hidden = false;
  byId("hint").hidden = data.scope === "read";
}

/** Put buttons in the place of others, unless they are the same ones: whoever stands on one is not disturbed. @param {HTMLElement | null} bar @param {(HTMLElement | null)[]} some */
function replaced(bar, some) {
  const made = some.filter((one) => one !== null);
  if (!bar || [...bar.children].map((one) => one.textContent).join("\n") === made.map((one) => one.textContent).join("\n")) return;
  bar.replaceChildren(...made);
}

/** @param {"cancel" | "retry"} what */
async function many(what) {
  const counted = await tried(() => post(`/jobs:${what}`, { base, dry_run: true }));
  if (!counted) return;
  if (!counted.found) return notice(t(what === "cancel" ? "queue.nothing_active" : "queue.nothing_failed"));
  const count = number(counted.found);
  const question = what === "retry" ? t("queue.retry_all", { count }) : base ? t("queue.stop_base", { count, base }) : t("queue.stop_all", { count });
  if (!(await confirmed(question, t(what === "cancel" ? "queue.stop" : "queue.retry_failed"), { danger: what === "cancel" }))) return;
  const answer = await tried(() => post(`/jobs:${what}`, { base }));
  if (answer) notice(t("queue.done_many", { accepted: number(answer.accepted), found: number(answer.found) }));
  load();
}

arrange(data.jobs.items);
paintQueue();
named();
