// Looks up the names of documents: events and refused requests contain only ids.

import { basePath, post } from "./api.js";
import { el, pageData } from "./html.js";
import { t } from "./i18n.js";
import { coalesced } from "./stream.js";

const COALESCE_MS = 80;

/** @type {Map<number, string | null>} null: deleted */
const names = new Map(Object.entries(pageData.names ?? {}).map(([id, name]) => [Number(id), name]));
/** @type {Map<string, Set<number>>} by base */
const pendingNames = new Map();
const scheduleNames = coalesced(loadNames, COALESCE_MS);

/**
 * Show the name of a document, or its id until the name is loaded.
 * @param {HTMLElement} part
 * @param {string | undefined} base
 * @param {number | null} document
 */
export function showDocumentName(part, base, document) {
  part.dataset.document = String(document ?? "");
  part.dataset.base = base ?? "";
  if (document === null) return part.replaceChildren();
  if (base && !names.has(document)) {
    pendingNames.set(base, (pendingNames.get(base) ?? new Set()).add(document));
    scheduleNames();
  }
  const name = names.get(document);
  if (name && base) part.replaceChildren(el("a", { href: `/bases/${encodeURIComponent(base)}/documents/${document}` }, name));
  else part.replaceChildren(el("span", { class: "dim" }, t(name === undefined && base ? "activity.unnamed" : "activity.gone", { id: document })));
}

/** @param {number} document */
export function markDeleted(document) {
  names.set(document, null);
  repaint(document);
}

async function loadNames() {
  const wanted = [...pendingNames];
  pendingNames.clear();
  for (const [base, some] of wanted) {
    const documents = [...some];
    /** @type {DocumentStatus[] | null} */
    const found = await post(`${basePath(base, "documents")}/status`, { documents }).catch(() => null);
    if (!found) continue;
    for (const id of documents) names.set(id, found.find((one) => one.id === id)?.name ?? null);
    documents.forEach(repaint);
  }
}

/** @param {number} id */
function repaint(id) {
  for (const part of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(`[data-document="${id}"]`))) showDocumentName(part, part.dataset.base, id);
}
