// The table of documents: filtered and paged by the server, updated in place.

import { OPERATIONS } from "../actions.js";
import { offerAdding } from "../add-documents.js";
import { basePath, encodeQuery, get, latest, post } from "../api.js";
import { askConfirmation, showNotice, tryOrNotify } from "../dialog.js";
import { DocumentRows } from "../document-rows.js";
import { byId, el, pageData } from "../html.js";
import { formatNumber, t } from "../i18n.js";
import { onPageChange, paintPager } from "../pager.js";
import { followBase } from "../pause.js";
import { RowSelection } from "../row-selection.js";
import { UNSETTLED_STATUSES, latestProgress } from "../status.js";
import { coalesced, pollWhile } from "../stream.js";

const SETTLE_MS = 240; // quiet time before the table is loaded again
const COALESCE_MS = 80;
const base = pageData.base;
const asked = pageData.asked;
const table = byId("documents");
const rows = new DocumentRows(table.tBodies[0], { done: () => scheduleLoad(), pick: (row, doc) => selection.addCheckbox(row, doc), href });
const selection = new RowSelection(table, paintSelection);
let total = pageData.documents.total ?? 0;

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
  const found = await tryOrNotify(() => get(basePath(base, "documents"), { ...filters(), page: asked.page, page_size: asked.size }, signal));
  if (!found || signal.aborted) return;
  total = found.total ?? 0;
  if (!found.items.length && total && asked.page > 1) return showPage(Math.max(1, Math.ceil(total / asked.size)));
  rows.show(found.items);
  const filtered = Boolean(asked.status || asked.text || asked.kind);
  byId("no-match").hidden = !filtered;
  byId("no-documents").hidden = filtered;
  selection.dropHidden();
  paintPager(asked, total);
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
    if (part) part.textContent = formatNumber(status ? (found.by_status[status] ?? 0) : found.documents);
  }
}

/** @param {Record<string, any>} changes */
function changeFilters(changes) {
  Object.assign(asked, changes);
  history.replaceState(null, "", location.pathname + encodeQuery({ ...asked, page: asked.page > 1 ? asked.page : "" }));
  load();
}

/** @param {number} page */
const showPage = (page) => changeFilters({ page });

onPageChange(showPage);

const form = byId("filter");
let typed = 0;
form.addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
form.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => changeFilters({ text: form.elements.text.value, kind: form.elements.kind.value, page: 1 }), SETTLE_MS);
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
    el("span", { role: "status" }, t("documents.selected", { count: formatNumber(everything ? total : count) })),
    all ? el("button", { type: "button", class: "plain", onclick: () => { everything = true; paintSelection(); } }, t("documents.all_matching", { total: formatNumber(total) })) : "",
    ...BULK_OPERATIONS.map((action) => el("button", { type: "button", class: action === "delete" ? "danger" : null, onclick: () => runOnSelection(action) }, t(`action.${action}`))),
    el("button", { type: "button", class: "plain", onclick: () => selection.selectAll(false) }, t("documents.clear")),
  );
}

/** @param {import("../actions.js").Action} action */
async function runOnSelection(action) {
  const count = everything ? total : selection.ids.size;
  if (action === "delete" && !(await askConfirmation(t("confirm.delete_many", { count: formatNumber(count) }), t("action.delete"), { danger: true }))) return;
  const { deleting, ...filter } = filters();
  const body = everything ? { filter: { ...Object.fromEntries(Object.entries(filter).filter(([, one]) => one !== "" && one !== null)), ...(deleting ? { deleting: true } : {}) } } : { documents: [...selection.ids] };
  const answer = await tryOrNotify(() => post(`${basePath(base, "documents")}:${action}`, body), base);
  if (!answer) return;
  const found = answer.found ?? answer.replies.length;
  const accepted = answer.accepted ?? answer.replies.filter((/** @type {Reply} */ one) => one.verdict === "accepted").length;
  showNotice(t("documents.done_many", { accepted: formatNumber(accepted), found: formatNumber(found) }));
  selection.selectAll(false);
  scheduleLoad();
}

rows.show(pageData.documents.items);
offerAdding(base, asked.parent || null, scheduleLoad);
