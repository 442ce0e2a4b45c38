// The table of documents: filtered and paged by the server, updated in place.

import { OPERATIONS } from "../actions.js";
import { offerAdding } from "../add-documents.js";
import { basePath, encodeQuery, get, latest, post } from "../api.js";
import { askConfirmation, showNotice, tryOrNotify } from "../dialog.js";
import { DocumentRows } from "../document-rows.js";
import { byId, el, pageData } from "../html.js";
import { formatNumber, formatTotal, t } from "../i18n.js";
import { onPageChange, paintPager } from "../pager.js";
import { followBase } from "../pause.js";
import { RowSelection } from "../row-selection.js";
import { UNSETTLED_STATUSES, latestProgress } from "../status.js";
import { coalesced, pollWhile } from "../stream.js";

const SETTLE_MS = 240; // quiet time before the table is loaded again
const COALESCE_MS = 80;
const BULK_WAIT_SECONDS = 1; // how long the server waits for the end of a bulk job before it returns the progress
const base = pageData.base;
const asked = pageData.asked;
const table = byId("documents");
const rows = new DocumentRows(table.tBodies[0], { done: () => scheduleLoad(), pick: (row, doc) => selection.addCheckbox(row, doc), href });
const selection = new RowSelection(table, paintSelection);
let total = pageData.documents.total ?? 0;
let exact = pageData.documents.total_is_exact;

/** @param {Doc} doc */
function href(doc) {
  const place = `/bases/${encodeURIComponent(base)}/documents`;
  return doc.kind === "directory" || doc.kind === "sitemap" ? `${place}?parent=${doc.id}` : `${place}/${doc.id}`;
}

/** Return the filters of the address as parameters of the API. */
function filters() {
  const deleting = asked.status === "deleting";
  return { status: deleting ? "" : asked.status, deleting: deleting || "", kind: asked.kind, text: asked.text, parent: asked.parent };
}

const listing = latest();
const scheduleRefresh = coalesced(refresh, COALESCE_MS);
let waiting = 0;
/** @type {Set<number>} */
const changedIds = new Set();

/** Load the current page of the table. */
async function load() {
  const signal = listing();
  /** @type {Page<Doc> | undefined} */
  const found = await tryOrNotify(() => get(basePath(base, "documents"), { ...filters(), ...(asked.cursor ? { cursor: asked.cursor } : { page: asked.page }), page_size: asked.size }, signal));
  if (!found || signal.aborted) return;
  total = found.total ?? 0;
  exact = found.total_is_exact;
  if (!found.items.length && total && asked.page > 1) return showPage(Math.max(1, Math.ceil(total / asked.size)));
  rows.show(found.items);
  const filtered = Boolean(asked.status || asked.text || asked.kind);
  byId("no-match").hidden = !filtered;
  byId("no-documents").hidden = filtered;
  selection.dropHidden();
  paintPager(asked, found);
  loadCounts();
}

/** Load after a quiet moment; each call starts it again. */
function scheduleLoad() {
  clearTimeout(waiting);
  waiting = setTimeout(load, SETTLE_MS);
}

/** Load the status of all changed documents in one request. */
async function refresh() {
  const documents = [...changedIds];
  changedIds.clear();
  const found = await tryOrNotify(() => post(`${basePath(base, "documents")}/status`, { documents }));
  for (const one of found ?? []) rows.patch(one);
}

/** @param {HoldfastEvent} event */
function onEvent(event) {
  const id = event.document;
  if (event.type.startsWith("base.")) return event.type === "base.failed" || event.type === "base.repaired" ? location.reload() : scheduleLoad();
  if (id === null) return;
  const status = event.data.status;
  if (rows.items.has(id)) {
    changedIds.add(id);
    scheduleRefresh();
    if (status && !UNSETTLED_STATUSES.has(status)) scheduleLoad();
  }
  if (["document.added", "document.deleted", "document.removed"].includes(event.type) || (status && !rows.items.has(id))) scheduleLoad();
}

const hasActiveWork = () => [...rows.items.values()].some((doc) => UNSETTLED_STATUSES.has(doc.status));

followBase(
  {
    event: onEvent,
    progress: (message) => {
      const doc = rows.items.get(message.document);
      if (doc && (doc.status === "indexing" || doc.status === "queued")) rows.patch({ id: doc.id, status: "indexing", progress: latestProgress(message) });
    },
    reset: load,
  },
  hasActiveWork,
  () => rows.items.forEach((doc) => rows.patch(doc)),
);

pollWhile(hasActiveWork, scheduleLoad);

async function loadCounts() {
  const found = await get(`${basePath(base)}/counts`).catch(() => null);
  if (!found) return;
  for (const tab of byId("states").children) {
    const part = tab.querySelector("data");
    const status = tab.getAttribute("data-status");
    if (!part) continue;
    part.textContent = formatNumber(status ? (found.by_status[status] ?? 0) : found.documents);
    part.toggleAttribute("data-more", status ? found.more.includes(status) : found.more.length > 0);
  }
}

/** @param {Record<string, any>} changes */
function changeFilters(changes) {
  Object.assign(asked, changes);
  history.replaceState(null, "", location.pathname + encodeQuery({ ...asked, page: asked.page > 1 ? asked.page : "" }));
  load();
}

/** @param {number} page @param {string} [cursor] */
const showPage = (page, cursor = "") => changeFilters({ page, cursor });

onPageChange(showPage);

const form = byId("filter");
let typed = 0;
form.addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
form.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => changeFilters({ text: form.elements.text.value, kind: form.elements.kind.value, page: 1, cursor: "" }), SETTLE_MS);
});

const BULK_OPERATIONS = OPERATIONS.filter((operation) => operation !== "refresh");
let everything = false; // the selection is everything that matches the filter

function paintSelection() {
  const bar = byId("picked");
  const count = selection.ids.size;
  bar.hidden = !count;
  if (!count) everything = false;
  if (!count || pageData.scope === "read") return bar.replaceChildren();
  const all = total > count && selection.all.checked && !everything;
  bar.replaceChildren(
    el("span", { role: "status" }, t("documents.selected", { count: everything ? formatTotal(total, exact) : formatNumber(count) })),
    all ? el("button", { type: "button", class: "plain", onclick: () => { everything = true; paintSelection(); } }, t("documents.all_matching", { total: formatTotal(total, exact) })) : "",
    ...BULK_OPERATIONS.map((action) => el("button", { type: "button", class: action === "delete" ? "danger" : null, onclick: () => runOnSelection(action) }, t(`action.${action}`))),
    el("button", { type: "button", class: "plain", onclick: () => selection.selectAll(false) }, t("documents.clear")),
  );
}

/** Return the filters of the list in the form of a request: without empty ones, and with lists of statuses and kinds. */
function filterBody() {
  const { status, kind, deleting, ...others } = filters();
  const body = { ...others, status: status ? [status] : "", kind: kind ? [kind] : "", deleting: deleting ? true : "" };
  return Object.fromEntries(Object.entries(body).filter(([, one]) => one !== "" && one !== null));
}

/** @param {import("../actions.js").Action} action */
async function runOnSelection(action) {
  const count = everything ? formatTotal(total, exact) : formatNumber(selection.ids.size);
  if (action === "delete" && !(await askConfirmation(t("confirm.delete_many", { count }), t("action.delete"), { danger: true }))) return;
  const body = everything ? { filter: filterBody() } : { documents: [...selection.ids] };
  const answer = await tryOrNotify(() => post(`${basePath(base, "documents")}:${action}`, body), base);
  if (!answer) return;
  if (answer.jobs?.length) {
    selection.selectAll(false);
    return followBulkJob(answer.jobs[0], action);
  }
  const found = answer.found ?? answer.replies.length;
  const accepted = answer.accepted ?? answer.replies.filter((/** @type {Reply} */ one) => one.verdict === "accepted").length;
  showNotice(t("documents.done_many", { accepted: formatNumber(accepted), found: formatNumber(found) }));
  selection.selectAll(false);
  scheduleLoad();
}

/** Show the progress of a bulk job until it ends, with a button that cancels it. @param {string} id @param {import("../actions.js").Action} action */
async function followBulkJob(id, action) {
  const bar = byId("bulk-job");
  const text = el("span", { role: "status" });
  const progress = el("progress", { max: 1, value: 0, "aria-label": t(`action.${action}`) });
  const cancel = el("button", { type: "button", onclick: () => tryOrNotify(() => post(`/jobs/${encodeURIComponent(id)}:cancel`), base) }, t("documents.bulk_cancel"));
  bar.replaceChildren(text, progress, el("a", { href: `/queue#job-${encodeURIComponent(id)}` }, t("documents.bulk_show")), cancel);
  bar.hidden = false;
  for (;;) {
    /** @type {Job | undefined} */
    const job = await tryOrNotify(() => get(`/jobs/${encodeURIComponent(id)}`, { wait: BULK_WAIT_SECONDS }));
    if (!job?.bulk) break;
    const { done, total } = job.bulk;
    text.textContent = t("documents.bulk_progress", { action: t(`action.${action}`), done: formatNumber(done), total: formatNumber(total) });
    progress.value = total ? done / total : 1;
    scheduleLoad();
    if (job.outcome) {
      const accepted = Object.entries(job.bulk.answers).reduce((sum, [answer, count]) => sum + (answer.startsWith("accepted") ? count : 0), 0);
      showNotice(t(job.outcome === "cancelled" ? "documents.bulk_cancelled" : "documents.done_many", { accepted: formatNumber(accepted), found: formatNumber(job.bulk.found), done: formatNumber(done), total: formatNumber(total) }));
      break;
    }
  }
  bar.hidden = true;
}

rows.show(pageData.documents.items);
paintPager(asked, pageData.documents);
offerAdding(base, asked.parent || null, scheduleLoad);
