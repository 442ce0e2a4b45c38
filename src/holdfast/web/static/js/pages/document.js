// One document: live, patched in place; what it is made of is loaded again when it comes to rest.

import { buttons, paintButton } from "../actions.js";
import { Refused, at, get } from "../api.js";
import { Chunks } from "../chunks.js";
import { tried } from "../dialog.js";
import { loadDossier, loadHistory } from "../dossier.js";
import { byId, data } from "../html.js";
import { loadMissing } from "../missing.js";
import { followUnlessPaused } from "../pauses.js";
import { paintFacts, paintIndexes, paintStanding } from "../reasons.js";
import { Source } from "../source.js";
import { MOVING, paintProgress, progressOf } from "../standing.js";
import { lookAgain } from "../stream.js";

const TOGETHER = 80; // milliseconds in which what happens is asked for together
const base = data.base;
/** @type {Doc} */
let doc = data.document;
const source = byId("source") ? new Source(base, doc.id, data.text) : null;
const chunks = source ? new Chunks(base, doc.id, source, data.asked) : null;

// ---------------------------------------------------------------- how it stands

/** @param {Doc} next */
function paint(next) {
  doc = next;
  paintStanding(doc);
  paintFacts(doc);
  paintIndexes(doc);
  for (const button of byId("actions").children) paintButton(button, doc);
}

let asking = 0;
/** @type {AbortController | null} */
let request = null;

/** Ask soon how it stands; many reasons within a moment are one. */
function soon() {
  asking ||= setTimeout(refresh, TOGETHER);
}

async function refresh() {
  asking = 0;
  request?.abort();
  request = new AbortController();
  const signal = request.signal;
  const before = doc;
  /** @type {Doc | undefined} */
  const found = await tried(() => get(at(base, "documents", doc.id), {}, signal).catch(missing));
  if (!found || signal.aborted) return;
  paint(found);
  loadHistory(base, doc);
  if (!MOVING.has(doc.status) && (MOVING.has(before.status) || before.built !== doc.built)) load();
}

/** Load what a document is made of. */
async function load() {
  loadDossier(base, doc.id);
  loadMissing(base, doc);
  if (!source || !chunks || !doc.chunks || data.base_failed) return; // the chunks of a failed base are not listed
  const generation = source.generation;
  await chunks.turn(data.asked.page, doc.chunks);
  if (chunks.items[0]?.generation !== generation) source.again();
}

/** @param {unknown} error */
function missing(error) {
  if (!(error instanceof Refused) || error.status !== 404) throw error;
  gone();
}

/** Say that the document is not there any more. */
function gone() {
  byId("deleted").hidden = false;
  byId("actions").replaceChildren();
  byId("standing").hidden = true;
}

const moving = () => MOVING.has(doc.status);

followUnlessPaused(
  {
    event: (event) => {
      if (event.type === "base.failed" || event.type === "base.repaired") location.reload();
      else if (event.document === doc.id || event.type.startsWith("base.")) soon();
    },
    progress: (told) => {
      if (told.document !== doc.id || (doc.status !== "indexing" && doc.status !== "queued")) return;
      doc = { ...doc, status: "indexing", progress: progressOf(told) };
      paintStanding(doc);
      for (const part of told.parts) {
        const row = byId("indexes").querySelector(`tr[data-kind="${CSS.escape(part.kind)}"]`);
        if (row) paintProgress(row, progressOf({ parts: [part] }));
      }
    },
    reset: () => {
      refresh();
      load();
    },
  },
  moving,
  () => refresh(),
);

lookAgain(moving, soon);

// ---------------------------------------------------------------- where in the text

/** Go to the passage that the address names; one that is on another page of chunks is opened by the server. */
function open() {
  const named = /^#chunk-(\d+)$/.exec(location.hash);
  if (!named || !chunks || chunks.pick(Number(named[1]))) return;
  if (new URLSearchParams(location.search).get("chunk") !== named[1]) location.replace(`${location.pathname}?chunk=${named[1]}`);
}

if (chunks) {
  chunks.show(data.chunks ?? [], data.chunks ? (doc.chunks ?? 0) : 0);
  if (data.opened) {
    if (!chunks.pick(data.opened.chunk)) source?.show({ ...data.opened, overlaps: [] });
    byId("reader").scrollIntoView();
  } else {
    open();
  }
}
document.addEventListener("click", (event) => {
  const link = /** @type {Element} */ (event.target).closest('#cards a[href*="?chunk="], #missing a');
  const chunk = Number(new URL(/** @type {HTMLAnchorElement | null} */ (link)?.href ?? location.href).searchParams.get("chunk"));
  if (!link || event.ctrlKey || event.metaKey || !chunks?.pick(chunk)) return;
  event.preventDefault();
  byId("reader").scrollIntoView();
});

byId("actions").append(...buttons(() => doc, soon).filter((one) => one.dataset.action !== "view"));
paint(doc);
