// What documents are called, where only their numbers are known: events and refusals never carry a name.

import { at, post } from "./api.js";
import { data, el } from "./html.js";
import { t } from "./words.js";

const TOGETHER = 80; // milliseconds in which names are asked for together

/** @type {Map<number, string | null>} null: it is gone */
const names = new Map(Object.entries(data.names ?? {}).map(([id, name]) => [Number(id), name]));
/** @type {Map<string, Set<number>>} by base */
const unknown = new Map();
let asking = 0;

/**
 * Show a document by its name, or by its number until the name is known.
 * @param {HTMLElement} part
 * @param {string | undefined} base
 * @param {number | null} document
 */
export function showDocument(part, base, document) {
  part.dataset.document = String(document ?? "");
  part.dataset.base = base ?? "";
  if (document === null) return part.replaceChildren();
  if (base && !names.has(document)) {
    unknown.set(base, (unknown.get(base) ?? new Set()).add(document));
    asking ||= setTimeout(ask, TOGETHER);
  }
  const name = names.get(document);
  if (name && base) part.replaceChildren(el("a", { href: `/bases/${encodeURIComponent(base)}/documents/${document}` }, name));
  else part.replaceChildren(el("span", { class: "dim" }, t(name === undefined && base ? "activity.unnamed" : "activity.gone", { id: document })));
}

/** Forget the name of a document that was deleted. @param {number} document */
export function forget(document) {
  names.set(document, null);
  repaint(document);
}

async function ask() {
  asking = 0;
  const wanted = [...unknown];
  unknown.clear();
  for (const [base, some] of wanted) {
    const documents = [...some];
    /** @type {Standing[] | null} */
    const found = await post(`${at(base, "documents")}/status`, { documents }).catch(() => null);
    if (!found) continue;
    for (const id of documents) names.set(id, found.find((one) => one.id === id)?.name ?? null);
    documents.forEach(repaint);
  }
}

/** @param {number} id */
function repaint(id) {
  for (const part of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(`[data-document="${id}"]`))) showDocument(part, part.dataset.base, id);
}
