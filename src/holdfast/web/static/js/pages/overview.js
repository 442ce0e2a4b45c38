// The overview: loaded at most once per second while events arrive, and updated in place.

import { basePath, get, latest, nullIfMissing, post } from "../api.js";
import { drawBars, drawLine } from "../charts.js";
import { openDialog, tryOrNotify } from "../dialog.js";
import { byId, el, field, pageData, svg } from "../html.js";
import { MAX_COUNT, formatAgo, formatDate, formatNumber, formatPercent, formatTotal, locale, localise, t } from "../i18n.js";
import { resume } from "../pause.js";
import { coalesced, followEvents } from "../stream.js";

const RELOAD_MS = 1000;
const POLL_MS = 30_000; // updates relative times and finds silent workers
const OUTCOMES = ["success", "degraded", "failed", "cancelled", "other"];
const RELOADING = new Set(["base.created", "base.renamed", "base.deleted", "base.failed", "base.repaired"]);
const money = new Intl.NumberFormat(locale, { minimumFractionDigits: 2, maximumFractionDigits: 4 });
const rate = new Intl.NumberFormat(locale, { style: "percent", maximumFractionDigits: 1 });
const hour = new Intl.DateTimeFormat(locale, pageData.hours > 24 ? { month: "short", day: "numeric", hour: "2-digit" } : { hour: "2-digit", minute: "2-digit" });

/** @param {any} from @param {string} path */
const valueAt = (from, path) => path.split(".").reduce((value, part) => value?.[part], from);

/** @param {HTMLElement} part @param {any} value */
function writeNumber(part, value) {
  const kind = part.className.split(" ")[0];
  const known = value !== null && value !== undefined;
  const text = kind === "count" ? formatNumber(value ?? 0) : !known ? "–" : kind === "share" ? rate.format(value) : money.format(value);
  if (part.textContent !== text) part.textContent = text;
  part.setAttribute("value", String(value ?? ""));
}

/** @type {any[]} */
let series = pageData.overview.series;

/** @param {any} found */
function paint(found) {
  const more = new Set(found.documents.more.map((/** @type {string} */ status) => `documents.by_status.${status}`));
  if (!found.queue.active_is_exact) more.add("queue.active.queued");
  if (found.duplicates >= MAX_COUNT) more.add("duplicates");
  for (const part of document.querySelectorAll("[data-number]")) {
    const path = part.getAttribute("data-number") ?? "";
    writeNumber(/** @type {HTMLElement} */ (part), valueAt(found, path));
    part.toggleAttribute("data-more", more.has(path));
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
  oldest.textContent = since ? formatAgo(since) : t("overview.nothing_waits");
  oldest.title = formatDate(since);
}

/** @param {any} queue */
function paintPause(queue) {
  const banner = byId("paused");
  banner.hidden = !queue.paused && !queue.paused_bases.length;
  const text = field(banner, "paused");
  const sentence = queue.paused ? t("overview.paused_all") : t("overview.paused_bases", { names: queue.paused_bases.join(t("list.separator")) });
  if (!text || (text.textContent === sentence && banner.dataset.painted)) return;
  banner.dataset.painted = "1";
  text.textContent = sentence;
  if (pageData.scope === "read") return;
  const targets = queue.paused ? [null] : queue.paused_bases;
  field(banner, "resume")?.replaceChildren(...targets.map((/** @type {string | null} */ base) =>
    el("button", { type: "button", onclick: () => resume(base, scheduleReload) }, base ? t("overview.resume_one", { name: base }) : t("overview.resume"))));
}

/** @param {any[]} series */
function paintCharts(series) {
  const ended = series.map((step) => ({ ...describeStep(step, OUTCOMES.filter((one) => step[one]).map((one) => `${t(`overview.${one}`)} ${formatNumber(step[one])}`).join(", ")), values: OUTCOMES.map((one) => step[one]) }));
  const totals = ended.map((step) => step.values.reduce((all, one) => all + one, 0));
  const total = totals.reduce((all, one) => all + one, 0);
  const name = t("overview.throughput");
  chart("throughput", (across) => total ? drawBars(ended, OUTCOMES, t("overview.chart", { name, total: formatNumber(total), most: formatNumber(Math.max(...totals)) }), formatNumber, across) : null, series);
  const shares = series.map((step) => {
    const finished = step.success + step.degraded + step.failed;
    const share = finished ? step.failed / finished : NaN;
    return { ...describeStep(step, finished ? formatPercent(share) : ""), values: [share] };
  });
  const known = shares.map((step) => step.values[0]).filter((one) => !Number.isNaN(one));
  chart("failures", (across) => known.length ? drawLine(shares, t("overview.chart_rate", { name: t("overview.failures"), most: formatPercent(Math.max(...known)) }), formatPercent, across) : null, series);
}

/** @param {any} step @param {string} what */
const describeStep = (step, what) => ({ from: hour.format(new Date(step.at)), title: t("overview.step", { from: hour.format(new Date(step.at)), what: what || "–" }) });

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
    const finished = step.success + step.degraded + step.failed;
    const cells = name === "throughput" ? OUTCOMES.map((one) => formatNumber(step[one])) : [formatNumber(step.failed), finished ? formatPercent(step.failed / finished) : "–"];
    const parts = [hour.format(new Date(step.at)), ...cells];
    parts.forEach((text, column) => rows[place]?.children[column] && (rows[place].children[column].textContent = text));
  });
}

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
    writeNumber(part, count);
    part.toggleAttribute("data-more", state ? counts.more.includes(state) : counts.more.length > 0);
    if (!state) continue;
    part.closest("td")?.toggleAttribute("data-none", !count);
    part.closest("a")?.setAttribute("aria-label", `${base}, ${t(`status.${state}`)}: ${formatTotal(count, !counts.more.includes(state))}`);
    const share = counts.more.length ? 0 : (100 * count) / Math.max(1, counts.documents); // shares of limited counts would be wrong
    if (share) stack.push(svg("rect", { "data-status": state, x, y: 0, width: share, height: 6 }));
    x += share;
  }
  row.querySelector(".stack svg")?.replaceChildren(...stack);
}

if (pageData.scope === "admin") {
  byId("new-base").append(el("button", { type: "button", onclick: openNewBaseForm }, t("overview.new_base")));
}

let making = false; // this page creates a base and opens it next

function openNewBaseForm() {
  const name = el("input", { type: "text", required: true, maxlength: 200, autofocus: true, pattern: "[^\\/]+", title: t("welcome.name_rule") });
  const form = el("form", {}, el("label", { class: "field" }, el("span", {}, t("welcome.name")), name), el("div", { class: "end" }, el("button", { type: "submit", class: "first" }, t("welcome.make"))));
  openDialog(t("overview.new_base"), [form]);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    making = true;
    const made = await tryOrNotify(() => post("/bases", { name: name.value }));
    if (made) location.assign(`/bases/${encodeURIComponent(made.name)}/documents`);
    else making = false;
  });
}

/** @type {Set<string>} */
const changedBases = new Set();
const reading = latest();
const scheduleReload = coalesced(reload, () => Math.max(50, reloaded + RELOAD_MS - Date.now()));
let reloaded = 0; // when it was last loaded

async function reload() {
  reloaded = Date.now();
  const signal = reading();
  const bases = [...changedBases];
  changedBases.clear();
  const found = await tryOrNotify(() => Promise.all([get("/overview", { hours: pageData.hours }, signal), ...bases.map((base) => get(`${basePath(base)}/counts`, {}, signal).catch(nullIfMissing))]));
  if (!found || signal.aborted) {
    for (const base of bases) changedBases.add(base);
    return;
  }
  paint(found[0]);
  bases.forEach((base, place) => found[place + 1] && paintBase(base, found[place + 1]));
}

followEvents({
  event: (event) => {
    if (RELOADING.has(event.type)) return making || location.reload();
    const base = event.base === null ? null : pageData.bases[event.base];
    if (base) changedBases.add(base);
    scheduleReload();
  },
  reset: () => location.reload(),
});
setInterval(() => {
  if (document.hidden) return;
  localise(document);
  scheduleReload();
}, POLL_MS);
addEventListener("resize", () => paintCharts(series));
paint(pageData.overview);
