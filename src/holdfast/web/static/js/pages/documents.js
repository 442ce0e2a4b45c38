// The table of documents: live, filtered and paged by the server, patched in place.

import { at, get, post, search } from "../api.js";
import { adding } from "../adding.js";
import { confirmed, notice, tried } from "../dialog.js";
import { byId, data, el } from "../html.js";
import { paging, paintPager } from "../paging.js";
import { followUnlessPaused } from "../pauses.js";
import { Picking } from "../picking.js";
import { Rows } from "../rows.js";
import { MOVING, progressOf } from "../standing.js";
import { lookAgain } from "../stream.js";
import { number, t } from "../words.js";

const SETTLE = 240; // milliseconds after which rows that came to rest are brought into order
const TOGETHER = 80; // milliseconds in which what happens is asked for together
const base = data.base;
const asked = data.asked;
const table = byId("documents");
const rows = new Rows(table.tBodies[0], { done: () => soon(), pick: (row, doc) => picking.furnish(row, doc), href });
const picking = new Picking(table, paintPicked);
let total = data.documents.total ?? 0;

/** @param {Doc} doc */
function href(doc) {
  const place = `/bases/${encodeURIComponent(base)}/documents`;
  return doc.kind === "directory" || doc.kind === "sitemap" ? `${place}?parent=${doc.id}` : `${place}/${doc.id}`;
}

/** What the server is asked for: the same as the address of this page says. */
function filters() {
  const deleting = asked.status === "deleting";
  return { status: deleting ? "" : asked.status, deleting: deleting || "", kind: asked.kind, text: asked.text, parent: asked.parent };
}

// ---------------------------------------------------------------- what is shown

/** @type {AbortController | null} */
let listing = null;
let waiting = 0;
let asking = 0;
/** @type {Set<number>} */
const stirred = new Set();

/** Load the page of the table that is shown, and bring the rows into its order. */
async function load() {
  listing?.abort();
  listing = new AbortController();
  const signal = listing.signal;
  /** @type {Page<Doc> | undefined} */
  const found = await tried(() => get(at(base, "documents"), { ...filters(), page: asked.page, page_size: asked.size }, signal));
  if (!found || signal.aborted) return;
  total = found.total ?? 0;
  if (!found.items.length && total && asked.page > 1) return turn(Math.max(1, Math.ceil(total / asked.size)));
  rows.show(found.items);
  picking.keep();
  paintPager(asked, total);
  counts();
}

/** Load soon; many reasons within a moment are one. */
function soon() {
  clearTimeout(waiting);
  waiting = setTimeout(load, SETTLE);
}

/** Ask how those stand that something happened to, all in one request. */
async function refresh() {
  asking = 0;
  const documents = [...stirred];
  stirred.clear();
  const found = await tried(() => post(`${at(base, "documents")}/status`, { documents }));
  for (const one of found ?? []) rows.patch(one);
}

/** @param {HoldfastEvent} event */
function happened(event) {
  const id = event.document;
  if (event.type.startsWith("base.")) return event.type === "base.failed" || event.type === "base.repaired" ? location.reload() : soon();
  if (id === null) return;
  const status = event.data.status;
  if (rows.docs.has(id)) {
    stirred.add(id);
    asking ||= setTimeout(refresh, TOGETHER);
    if (status && !MOVING.has(status)) soon();
  }
  if (["document.added", "document.deleted", "document.removed"].includes(event.type) || (status && !rows.docs.has(id))) soon();
}

const moving = () => [...rows.docs.values()].some((doc) => MOVING.has(doc.status));

followUnlessPaused(
  {
    event: happened,
    progress: (told) => {
      const doc = rows.docs.get(told.document);
      if (doc && (doc.status === "indexing" || doc.status === "queued")) rows.patch({ id: doc.id, status: "indexing", progress: progressOf(told) });
    },
    reset: load,
  },
  moving,
  () => rows.docs.forEach((doc) => rows.patch(doc)),
);

lookAgain(moving, soon);

async function counts() {
  const found = await get(`${at(base)}/counts`).catch(() => null);
  if (!found) return;
  for (const tab of byId("states").children) {
    const part = tab.querySelector("data");
    const status = tab.getAttribute("data-status");
    if (part) part.textContent = number(status ? (found.by_status[status] ?? 0) : found.documents);
  }
}

// ---------------------------------------------------------------- where in the table

/** Go to another page, or filter otherwise, without leaving. @param {Record<string, any>} changes */
function move(changes) {
  Object.assign(asked, changes);
  history.replaceState(null, "", location.pathname + search({ ...asked, page: asked.page > 1 ? asked.page : "" }));
  load();
}

/** @param {number} page */
const turn = (page) => move({ page });

paging(turn);

const form = byId("filter");
let typed = 0;
form.addEventListener("submit", (/** @type {Event} */ event) => event.preventDefault());
form.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(() => move({ text: form.elements.text.value, kind: form.elements.kind.value, page: 1 }), SETTLE);
});

// ---------------------------------------------------------------- many at once

const MANY = /** @type {const} */ (["index", "reindex", "retry", "cancel", "delete"]);
let everything = false; // the selection is all that matches, not only what is shown

function paintPicked() {
  const bar = byId("picked");
  const count = picking.ids.size;
  bar.hidden = !count;
  if (!count) everything = false;
  if (!count || data.scope === "read") return bar.replaceChildren();
  const all = total > count && picking.all.checked && !everything;
  bar.replaceChildren(
    el("span", { role: "status" }, t("documents.selected", { count: number(everything ? total : count) })),
    all ? el("button", { type: "button", class: "plain", onclick: () => { everything = true; paintPicked(); } }, t("documents.all_matching", { total: number(total) })) : "",
    ...MANY.map((action) => el("button", { type: "button", class: action === "delete" ? "danger" : null, onclick: () => many(action) }, t(`action.${action}`))),
    el("button", { type: "button", class: "plain", onclick: () => picking.pickAll(false) }, t("documents.clear")),
  );
}

/** @param {typeof MANY[number]} action */
async function many(action) {
  const count = everything ? total : picking.ids.size;
  if (action === "delete" && !(await confirmed(t("confirm.delete_many", { count: number(count) }), t("action.delete"), { danger: true }))) return;
  const { deleting, ...filter } = filters();
  const body = everything ? { filter: { ...Object.fromEntries(Object.entries(filter).filter(([, one]) => one !== "" && one !== null)), ...(deleting ? { deleting: true } : {}) } } : { documents: [...picking.ids] };
  const answer = await tried(() => post(`${at(base, "documents")}:${action}`, body), base);
  if (!answer) return;
  const found = answer.found ?? answer.replies.length;
  const accepted = answer.accepted ?? answer.replies.filter((/** @type {Reply} */ one) => one.verdict === "accepted").length;
  notice(t("documents.done_many", { accepted: number(accepted), found: number(found) }));
  picking.pickAll(false);
  soon();
}

rows.show(data.documents.items);
adding(base, asked.parent || null, soon);
