// The status of a document and its reasons, in the same sentences as document.html.

import { byId, cloneTemplate, el, field, pageData, setText } from "./html.js";
import { explainProblem, formatDate, formatNumber, formatTotal, indexName, localise, t } from "./i18n.js";
import { UNSETTLED_STATUSES, paintProgress, paintStatus } from "./status.js";

/** The top of the page shows errors of these states, and no other part of it does. */
const STATES_EXPLAINED_AT_TOP = new Set(["failed", "waiting"]);

/** @param {Doc} doc @returns {string[]} */
export const errorsAtTop = (doc) => doc.indexes.filter((one) => STATES_EXPLAINED_AT_TOP.has(one.state)).map((one) => explainProblem(one.error));

/**
 * Return why a document is not completely indexed, and what happens next.
 * @param {Doc} doc
 * @returns {string[]}
 */
export function describeStatus(doc) {
  /** @type {string[]} */
  const sentences = [];
  if (doc.status === "deleting") sentences.push(t("disabled.deleting"));
  if (doc.status === "queued" && !pageData.paused) sentences.push(doc.queue_position ? t("document.behind", { count: formatTotal(doc.queue_position) }) : t("document.next"));
  for (const [state, key] of [["running", "document.building"], ["blocked", "document.blocked"], ["cancelled", "document.cancelled"]]) {
    const kinds = doc.indexes.filter((one) => one.state === state && !(state === "cancelled" && one.built)).map((one) => indexName(one.kind));
    if (kinds.length) sentences.push(t(key, { indexes: kinds.join(t("list.separator")) }));
  }
  for (const one of doc.indexes) {
    const values = { index: indexName(one.kind), attempts: one.attempts, most: one.attempts_max, at: formatDate(one.retry_at), problem: explainProblem(one.error), missing: formatNumber(one.missing), total: formatNumber(one.missing + one.chunks) };
    if (one.state === "waiting") sentences.push(t(one.attempts ? "document.retrying" : "document.put_off", values));
    if (one.state === "failed" && one.error && one.error.code !== "needed_slot_failed") sentences.push(t("document.failed", values));
    if (one.missing) sentences.push(t("document.lacks", values));
  }
  const dependents = doc.indexes.filter((one) => one.state === "failed" && one.error?.code === "needed_slot_failed");
  for (const needed of new Set(dependents.map((one) => one.error?.params.kind ?? ""))) {
    const kinds = dependents.filter((one) => (one.error?.params.kind ?? "") === needed).map((one) => indexName(one.kind));
    sentences.push(t("document.dependents", { needed: indexName(needed), indexes: kinds.join(t("list.separator")) }));
  }
  const codes = new Set(["chunks_missing", "cancelled", ...doc.indexes.map((one) => one.error?.code)]);
  if (doc.why && !codes.has(doc.why.code)) sentences.push(explainProblem(doc.why));
  if (doc.status === "failed" || doc.status === "degraded") sentences.push(t("document.again"));
  return sentences;
}

/** @param {Doc} doc */
function describeSearchable(doc) {
  if (!doc.searchable) return t("document.not_searchable");
  if (doc.built < doc.generation && UNSETTLED_STATUSES.has(doc.status)) return t("document.searchable_old", { built: doc.built, wanted: doc.generation });
  return t("document.searchable");
}

/** @param {Doc} doc */
export function paintDocumentStatus(doc) {
  const panel = byId("standing");
  paintStatus(panel, doc.status);
  paintProgress(panel, doc.status === "indexing" || doc.status === "deleting" ? doc.progress : null);
  setText(panel, "searchable", describeSearchable(doc));
  const sentences = describeStatus(doc);
  const list = byId("why");
  if (list.innerText !== sentences.join("\n")) list.replaceChildren(...sentences.map((one) => el("li", {}, one)));
  const waits = byId("waits");
  waits.hidden = !doc.waiting_for.length;
  if (doc.status === "queued") waits.open = true;
  waits.querySelector("ul").replaceChildren(...doc.waiting_for.map((one) => el("li", {}, explainProblem(one, "waits"))));
}

/** @param {Doc} doc */
export function paintFacts(doc) {
  const facts = byId("facts");
  field(facts, "size")?.setAttribute("value", String(doc.size));
  setText(facts, "generation", `${doc.built} / ${doc.generation}`);
  setText(facts, "priority", doc.priority === null ? "–" : String(doc.priority));
  setText(facts, "sha256", doc.sha256 ?? "");
  field(facts, "changed")?.setAttribute("datetime", doc.changed_at);
  const name = /** @type {HTMLElement} */ (document.querySelector('h1 [data-field="name"]'));
  name.textContent = doc.name;
  localise(facts);
}

/**
 * Update the table of indexes.
 * @param {Doc} doc
 */
export function paintIndexes(doc) {
  const body = byId("indexes").tBodies[0];
  const kinds = new Set(doc.indexes.map((one) => one.kind));
  for (const row of body.querySelectorAll("tr[data-kind]")) if (!kinds.has(row.dataset.kind)) row.remove();
  doc.indexes.forEach((one, place) => {
    let row = body.querySelector(`tr[data-kind="${CSS.escape(one.kind)}"]`);
    if (!row) {
      row = cloneTemplate("index-row");
      row.dataset.kind = one.kind;
      body.insertBefore(row, body.rows[place] ?? null);
    }
    paintIndex(row, one);
  });
  byId("no-indexes").hidden = body.rows.length > 0;
}

/** @param {HTMLTableRowElement} row @param {IndexStatus} one */
function paintIndex(row, one) {
  setText(row, "kind", indexName(one.kind));
  field(row, "kind")?.setAttribute("title", one.made_by ?? "");
  setText(row, "state", t(`slot.${one.state}`));
  field(row, "state")?.setAttribute("data-status", one.state);
  paintProgress(row, one.state === "running" ? one.progress : null);
  setText(row, "generation", `${one.built} / ${one.wanted}`);
  setText(row, "attempts", `${one.attempts} / ${one.attempts_max}`);
  setText(row, "chunks", formatNumber(one.chunks));
  setText(row, "missing", formatNumber(one.missing));
  setText(row, "error", STATES_EXPLAINED_AT_TOP.has(one.state) ? "" : explainProblem(one.error));
  const retry = /** @type {HTMLElement} */ (field(row, "retry"));
  retry.hidden = !one.retry_at;
  field(row, "retry_at")?.setAttribute("datetime", one.retry_at ?? "");
  localise(row);
}
