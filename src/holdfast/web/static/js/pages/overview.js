// All at a glance, live: asked for at most once a second while something happens, and written into what is there.

import { at, get, post } from "../api.js";
import { bars, line } from "../charts.js";
import { show, tried } from "../dialog.js";
import { byId, data, el, field, svg } from "../html.js";
import { follow } from "../stream.js";
import { ago, date, locale, localise, number, percent, t } from "../words.js";

const OFTEN = 1000; // milliseconds between two looks
const AGAIN = 30_000; // after which times are written anew, and workers that fell silent are noticed
const ENDS = ["success", "degraded", "failed", "cancelled", "other"];
const RELOADING = new Set(["base.created", "base.renamed", "base.deleted", "base.failed", "base.repaired"]);
const money = new Intl.NumberFormat(locale, { minimumFractionDigits: 2, maximumFractionDigits: 4 });
const rate = new Intl.NumberFormat(locale, { style: "percent", maximumFractionDigits: 1 });
const hour = new Intl.DateTimeFormat(locale, data.hours > 24 ? { month: "short", day: "numeric", hour: "2-digit" } : { hour: "2-digit", minute: "2-digit" });

// ---------------------------------------------------------------- numbers

/** @param {any} from @param {string} path */
const within = (from, path) => path.split(".").reduce((value, part) => value?.[part], from);

/** @param {HTMLElement} part @param {any} value */
function write(part, value) {
  const kind = part.className.split(" ")[0];
  const known = value !== null && value !== undefined;
  const text = kind === "count" ? number(value ?? 0) : !known ? "–" : kind === "share" ? rate.format(value) : money.format(value);
  if (part.textContent !== text) part.textContent = text;
  part.setAttribute("value", String(value ?? ""));
}

/** @type {any[]} */
let series = data.overview.series;

/** @param {any} found */
function paint(found) {
  for (const part of document.querySelectorAll("[data-number]")) {
    write(/** @type {HTMLElement} */ (part), within(found, part.getAttribute("data-number") ?? ""));
  }
  paintOldest(found.queue.oldest_queued);
  paintPause(found.queue);
  series = found.series;
  paintCharts(series);
}

/** @param {string | null} since */
function paintOldest(since) {
  const oldest = byId("oldest");
  oldest.setAttribute("datetime", since ?? "");
  oldest.textContent = since ? ago(since) : t("overview.nothing_waits");
  oldest.title = date(since);
}

// ---------------------------------------------------------------- pauses

/** @param {any} queue */
function paintPause(queue) {
  const banner = byId("paused");
  banner.hidden = !queue.paused && !queue.paused_bases.length;
  const text = field(banner, "paused");
  const told = queue.paused ? t("overview.paused_all") : t("overview.paused_bases", { names: queue.paused_bases.join(", ") });
  if (!text || (text.textContent === told && banner.dataset.painted)) return;
  banner.dataset.painted = "1";
  text.textContent = told;
  if (data.scope === "read") return;
  const targets = queue.paused ? [null] : queue.paused_bases;
  field(banner, "resume")?.replaceChildren(...targets.map((/** @type {string | null} */ base) =>
    el("button", { type: "button", onclick: () => tried(() => post("/jobs:resume", { base })).then(soon) }, base ? t("overview.resume_one", { name: base }) : t("overview.resume"))));
}

// ---------------------------------------------------------------- charts

/** @param {any[]} series */
function paintCharts(series) {
  const ended = series.map((step) => ({ ...titled(step, ENDS.filter((one) => step[one]).map((one) => `${t(`overview.${one}`)} ${number(step[one])}`).join(", ")), values: ENDS.map((one) => step[one]) }));
  const totals = ended.map((step) => step.values.reduce((all, one) => all + one, 0));
  const total = totals.reduce((all, one) => all + one, 0);
  const name = t("overview.throughput");
  chart("throughput", (across) => total ? bars(ended, ENDS, t("overview.chart", { name, total: number(total), most: number(Math.max(...totals)) }), number, across) : null, series);
  const shares = series.map((step) => {
    const told = step.success + step.degraded + step.failed;
    const share = told ? step.failed / told : NaN;
    return { ...titled(step, told ? percent(share) : ""), values: [share] };
  });
  const known = shares.map((step) => step.values[0]).filter((one) => !Number.isNaN(one));
  chart("failures", (across) => known.length ? line(shares, t("overview.chart_rate", { name: t("overview.failures"), most: percent(Math.max(...known)) }), percent, across) : null, series);
}

/** @param {any} step @param {string} what */
const titled = (step, what) => ({ from: hour.format(new Date(step.at)), title: t("overview.step", { from: hour.format(new Date(step.at)), what: what || "–" }) });

/** @param {string} name @param {(across: number) => Element | null} draw @param {any[]} series */
function chart(name, draw, series) {
  const panel = document.querySelector(`[data-chart="${name}"]`);
  const details = panel?.querySelector("details");
  const drawn = panel?.querySelector(".drawn");
  if (!panel || !details || !drawn) return;
  const written = JSON.stringify([drawn.clientWidth, series]);
  if (panel.getAttribute("data-series") === written) return;
  if (!panel.hasAttribute("data-series")) details.open = false;
  panel.setAttribute("data-series", written);
  drawn.replaceChildren(draw(drawn.clientWidth) ?? el("p", { class: "dim small" }, t("overview.no_jobs")));
  const rows = details.querySelectorAll("tbody tr");
  series.forEach((step, place) => {
    const told = step.success + step.degraded + step.failed;
    const cells = name === "throughput" ? ENDS.map((one) => number(step[one])) : [number(step.failed), told ? percent(step.failed / told) : "–"];
    const parts = [hour.format(new Date(step.at)), ...cells];
    parts.forEach((text, column) => rows[place]?.children[column] && (rows[place].children[column].textContent = text));
  });
}

// ---------------------------------------------------------------- bases

/** @param {string} base @param {any} counts */
function paintBase(base, counts) {
  const row = document.querySelector(`tr[data-base="${CSS.escape(base)}"]`);
  if (!row) return;
  let x = 0;
  /** @type {Element[]} */
  const stack = [];
  for (const part of row.querySelectorAll("data")) {
    const state = part.getAttribute("data-state");
    const count = state ? (counts.by_status[state] ?? 0) : counts.documents;
    write(part, count);
    if (!state) continue;
    part.closest("td")?.toggleAttribute("data-none", !count);
    part.closest("a")?.setAttribute("aria-label", `${base}, ${t(`status.${state}`)}: ${number(count)}`);
    const share = (100 * count) / Math.max(1, counts.documents);
    if (share) stack.push(svg("rect", { "data-status": state, x, y: 0, width: share, height: 6 }));
    x += share;
  }
  row.querySelector(".stack svg")?.replaceChildren(...stack);
}

if (data.scope === "admin") {
  byId("new-base").append(el("button", { type: "button", onclick: newBase }, t("overview.new_base")));
}

let making = false; // a base of our own, whose page we go to

function newBase() {
  const name = el("input", { type: "text", required: true, maxlength: 200, autofocus: true, pattern: "[^\\/]+", title: t("welcome.name_rule") });
  const form = el("form", {}, el("label", { class: "field" }, el("span", {}, t("welcome.name")), name), el("div", { class: "end" }, el("button", { type: "submit", class: "first" }, t("welcome.make"))));
  show(t("overview.new_base"), [form]);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    making = true;
    const made = await tried(() => post("/bases", { name: name.value }));
    if (made) location.assign(`/bases/${encodeURIComponent(made.name)}/documents`);
    else making = false;
  });
}

// ---------------------------------------------------------------- what happens

/** @type {Set<string>} */
const stirred = new Set();
let looked = 0;
let waiting = 0;
/** @type {AbortController | null} */
let looking = null;

/** Look again, soon; but not more often than once a second. */
function soon() {
  waiting ||= setTimeout(look, Math.max(50, looked + OFTEN - Date.now()));
}

async function look() {
  waiting = 0;
  looked = Date.now();
  looking?.abort();
  looking = new AbortController();
  const signal = looking.signal;
  const bases = [...stirred];
  stirred.clear();
  const found = await tried(() => Promise.all([get("/overview", { hours: data.hours }, signal), ...bases.map((base) => get(`${at(base)}/counts`, {}, signal).catch(gone))]));
  if (!found || signal.aborted) {
    for (const base of bases) stirred.add(base);
    return;
  }
  paint(found[0]);
  bases.forEach((base, place) => found[place + 1] && paintBase(base, found[place + 1]));
}

/** A base that was deleted meanwhile has no counts. @param {any} error */
function gone(error) {
  if (error?.status === 404) return null;
  throw error;
}

follow({
  event: (event) => {
    if (RELOADING.has(event.type)) return making || location.reload();
    const base = event.base === null ? null : data.bases[event.base];
    if (base) stirred.add(base);
    soon();
  },
  reset: () => location.reload(),
});
setInterval(() => {
  if (document.hidden) return;
  localise(document);
  soon();
}, AGAIN);
addEventListener("resize", () => paintCharts(series));
paint(data.overview);
