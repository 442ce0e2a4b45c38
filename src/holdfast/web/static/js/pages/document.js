// One document, updated in place. Its text, chunks and details are loaded again when indexing ends.

import { actionButtons, paintButton } from "../actions.js";
import { ApiError, basePath, get, latest } from "../api.js";
import { ChunkList } from "../chunks.js";
import { tryOrNotify } from "../dialog.js";
import { loadDetails, loadHistory, loadMissing } from "../document-details.js";
import { paintDocumentStatus, paintFacts, paintIndexes } from "../document-status.js";
import { DocumentText } from "../document-text.js";
import { byId, pageData } from "../html.js";
import { followBase } from "../pause.js";
import { UNSETTLED_STATUSES, latestProgress, paintProgress } from "../status.js";
import { coalesced, pollWhile } from "../stream.js";

const COALESCE_MS = 80;
const base = pageData.base;
/** @type {Doc} */
let doc = pageData.document;
const source = byId("source") ? new DocumentText(base, doc.id, pageData.text) : null;
const chunks = source ? new ChunkList(base, doc.id, source, pageData.asked) : null;

/** @param {Doc} next */
function paint(next) {
  doc = next;
  paintDocumentStatus(doc);
  paintFacts(doc);
  paintIndexes(doc);
  for (const button of byId("actions").children) paintButton(button, doc);
}

const reading = latest();
const scheduleRefresh = coalesced(refresh, COALESCE_MS);

async function refresh() {
  const signal = reading();
  const before = doc;
  /** @type {Doc | undefined} */
  const found = await tryOrNotify(() => get(basePath(base, "documents", doc.id), {}, signal).catch(showIfDeleted));
  if (!found || signal.aborted) return;
  paint(found);
  loadHistory(base, doc);
  if (!UNSETTLED_STATUSES.has(doc.status) && (UNSETTLED_STATUSES.has(before.status) || before.built !== doc.built)) load();
}

/** Load details, chunks and text. */
async function load() {
  loadDetails(base, doc.id);
  loadMissing(base, doc);
  if (!source || !chunks || !doc.chunks || pageData.base_failed) return; // the chunks of a failed base are not listed
  const generation = source.generation;
  await chunks.loadPage(pageData.asked.page, doc.chunks);
  if (chunks.items[0]?.generation !== generation) source.reload();
}

/** @param {unknown} error */
function showIfDeleted(error) {
  if (!(error instanceof ApiError) || error.status !== 404) throw error;
  showDeleted();
}

function showDeleted() {
  byId("deleted").hidden = false;
  byId("actions").replaceChildren();
  byId("standing").hidden = true;
}

const hasActiveWork = () => UNSETTLED_STATUSES.has(doc.status);

followBase(
  {
    event: (event) => {
      if (event.type === "base.failed" || event.type === "base.repaired") location.reload();
      else if (event.document === doc.id || event.type.startsWith("base.")) scheduleRefresh();
    },
    progress: (message) => {
      if (message.document !== doc.id || (doc.status !== "indexing" && doc.status !== "queued")) return;
      doc = { ...doc, status: "indexing", progress: latestProgress(message) };
      paintDocumentStatus(doc);
      for (const part of message.parts) {
        const row = byId("indexes").querySelector(`tr[data-kind="${CSS.escape(part.kind)}"]`);
        if (row) paintProgress(row, latestProgress({ parts: [part] }));
      }
    },
    reset: () => {
      refresh();
      load();
    },
  },
  hasActiveWork,
  () => refresh(),
);

pollWhile(hasActiveWork, scheduleRefresh);

/** Open the passage in the hash of the address. If its chunk is on another page, the server opens it. */
function openPassageFromHash() {
  const named = /^#chunk-(\d+)$/.exec(location.hash);
  if (!named || !chunks || chunks.select(Number(named[1]))) return;
  if (new URLSearchParams(location.search).get("chunk") !== named[1]) location.replace(`${location.pathname}?chunk=${named[1]}`);
}

if (chunks) {
  chunks.show(pageData.chunks ?? [], pageData.chunks ? (doc.chunks ?? 0) : 0);
  if (pageData.opened) {
    if (!chunks.select(pageData.opened.chunk)) source?.show({ ...pageData.opened, overlaps: [] });
    byId("reader").scrollIntoView();
  } else {
    openPassageFromHash();
  }
}
document.addEventListener("click", (event) => {
  const link = /** @type {Element} */ (event.target).closest('#cards a[href*="?chunk="], #missing a');
  const chunk = Number(new URL(/** @type {HTMLAnchorElement | null} */ (link)?.href ?? location.href).searchParams.get("chunk"));
  if (!link || event.ctrlKey || event.metaKey || !chunks?.select(chunk)) return;
  event.preventDefault();
  byId("reader").scrollIntoView();
});

byId("actions").append(...actionButtons(() => doc, scheduleRefresh).filter((one) => one.dataset.action !== "view"));
paint(doc);
