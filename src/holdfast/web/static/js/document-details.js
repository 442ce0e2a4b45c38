// The details of a document: history, entities, cards, cost, and passages that indexes lack.

import { basePath, get } from "./api.js";
import { errorsAtTop } from "./document-status.js";
import { byId, cloneTemplate, el, field, setContent, svg } from "./html.js";
import { explainProblem, formatDuration, formatMilliseconds, formatNumber, formatSize, indexName, localise, t, translationOr } from "./i18n.js";

/**
 * Load and paint the history of a document.
 * @param {string} base
 * @param {Doc} doc
 */
export async function loadHistory(base, doc) {
  /** @type {HistoryEntry[] | null} */
  const found = await get(`${basePath(base, "documents", doc.id)}/history`).catch(() => null);
  if (!found) return;
  /** @type {Map<string, HistoryEntry[]>} */
  const runs = new Map();
  for (const one of found) {
    const key = one.job ?? `${one.what} ${one.at}`;
    runs.set(key, [one, ...(runs.get(key) ?? [])]);
  }
  const list = byId("history");
  const shown = new Set(errorsAtTop(doc)); // the page shows each sentence once
  list.replaceChildren(...[...runs.values()].map((run) => jobRow(run, shown)));
  localise(list);
}

/**
 * @param {HistoryEntry[]} run the entries of one job, oldest first
 * @param {Set<string>} shown
 */
function jobRow(run, shown) {
  const first = run[0];
  const end = run.filter((one) => one.kind === null).at(-1);
  const status = end?.what ?? "accepted";
  const head = el("p", { class: "bar" },
    el("span", { class: "chip", "data-status": status }, t(`document.what.${status}`)),
    first.generation ? el("strong", {}, t("document.nth", { number: first.generation })) : null,
    first.operation ? el("span", {}, t(`operation.${first.operation}`)) : null,
    first.requester ? el("span", { class: "dim" }, t("document.by", { name: first.requester })) : null,
    el("span", { class: "gap" }), end && end.seconds !== null ? el("span", {}, formatDuration(end.seconds)) : null,
    el("span", { class: "small dim" }, el("time", { datetime: first.at })));
  return el("li", { class: "run", "data-status": status }, head, el("ol", { class: "steps" }, ...attemptRows(run, shown)));
}

/**
 * Make a row for each attempt: its end, or its claim while it runs, and its place in the duration of the job.
 * @param {HistoryEntry[]} run
 * @param {Set<string>} shown
 */
function attemptRows(run, shown) {
  const over = new Set(run.filter((one) => one.kind !== null && one.what !== "claimed").map((one) => `${one.kind} ${one.attempt}`));
  const begun = Date.parse(run[0].at);
  const last = Math.max(...run.map((one) => Date.parse(one.at)));
  const whole = last - begun || 1;
  return run
    .filter((one) => one.kind !== null && !(one.what === "claimed" && over.has(`${one.kind} ${one.attempt}`)))
    .map((one) => {
      const at = Date.parse(one.at);
      const length = one.what === "claimed" ? last - at : (one.seconds ?? 0) * 1000;
      const begin = (one.what === "claimed" ? at : at - length) - begun;
      return attemptRow(one, (100 * begin) / whole, Math.max(1, (100 * length) / whole), shown);
    });
}

/** @param {HistoryEntry} one @param {number} begin @param {number} share @param {Set<string>} shown */
function attemptRow(one, begin, share, shown) {
  const problem = explainProblem(one.problem);
  const repeated = shown.has(problem);
  shown.add(problem);
  const what = el("span", {}, t("pair", { name: indexName(one.kind ?? ""), value: t(`document.what.${one.what}`) }),
    one.attempt ? el("span", { class: "dim" }, ` ${t("document.attempt", { number: one.attempt })}`) : null,
    one.written === null ? null : el("span", { class: "small dim", "data-field": "rows" }, ` · ${t("document.rows", { written: formatNumber(one.written), kept: formatNumber(one.kept ?? 0), removed: formatNumber(one.removed ?? 0) })}`),
    problem && !repeated ? el("span", { class: "bad" }, ` ${problem}`) : null);
  const bar = svg("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { x: begin, width: share, height: 1 }));
  const used = one.cpu_seconds === null ? "" : t("document.used", { cpu: formatMilliseconds(one.cpu_seconds * 1000), memory: formatSize(one.peak_bytes ?? 0), wait: formatDuration(one.waited_seconds ?? 0) });
  return el("li", { "data-what": one.what, title: [problem, used].filter(Boolean).join(" ") || null }, what, bar, el("span", { class: "small dim number" }, one.seconds === null ? "" : formatDuration(one.seconds)));
}

/**
 * Load and paint the entities, cards and cost of a document.
 * @param {string} base
 * @param {number} document
 */
export async function loadDetails(base, document) {
  const path = basePath(base, "documents", document);
  const [entities, cards, cost] = await Promise.all(["entities", "cards", "usage"].map((one) => get(`${path}/${one}`).catch(() => null)));
  if (entities) paintEntities(base, entities);
  if (cards) paintCards(cards.items);
  if (cost) paintCost(cost);
}

/** @param {string} base @param {DocumentEntity[]} entities */
function paintEntities(base, entities) {
  byId("no-entities").hidden = entities.length > 0;
  byId("entities").replaceChildren(...entities.map((one) => el("li", {}, el("a", { href: `/bases/${encodeURIComponent(base)}/graph?around=${encodeURIComponent(one.key)}`, title: one.kind || null }, one.name), " ", el("span", { class: "small dim number" }, formatNumber(one.mentions)))));
}

/** @param {Card[]} cards */
function paintCards(cards) {
  byId("no-cards").hidden = cards.length > 0;
  byId("cards").replaceChildren(...cards.map((one) => el("li", {}, el("details", {}, el("summary", {}, one.question), el("p", {}, one.answer), el("a", { class: "small", href: `?chunk=${one.chunk}#chunk-${one.chunk}` }, t("document.open_passage"))))));
}

/** @param {DocumentUsage} cost */
function paintCost(cost) {
  const nothing = !cost.kinds_spent.length && !cost.kinds_saved.length;
  byId("no-cost").hidden = !nothing;
  const table = byId("cost");
  table.hidden = nothing;
  const [spent, saved] = table.tBodies;
  spent.replaceChildren(...cost.kinds_spent.map(costRow));
  saved.replaceChildren(...(cost.kinds_saved.length ? [el("tr", {}, el("th", { scope: "rowgroup", colspan: 4 }, t("document.cost_saved")))] : []), ...cost.kinds_saved.map(costRow));
}

/** @param {UsageTotal} one */
function costRow(one) {
  const cells = [formatNumber(one.texts), formatNumber(one.tokens_in + one.tokens_out), one.price === null ? "–" : one.price.toPrecision(4)];
  return el("tr", {}, el("th", { scope: "row" }, translationOr(`document.cost.${one.kind}`, one.kind)), ...cells.map((text) => el("td", { class: "end number" }, text)));
}

/**
 * Load and paint missing passages. Without any, no request is sent.
 * @param {string} base
 * @param {Doc} doc
 */
export async function loadMissing(base, doc) {
  const count = doc.indexes.reduce((sum, one) => sum + one.missing, 0);
  /** @type {MissingChunk[] | null} */
  const found = count ? await get(`${basePath(base, "documents", doc.id)}/missing`).catch(() => null) : [];
  if (!found) return;
  byId("missing").tBodies[0].replaceChildren(...found.map(missingRow));
  byId("lacking").hidden = !found.length;
  const more = byId("more-missing");
  more.hidden = count <= found.length;
  more.textContent = t("document.more_missing", { count: formatNumber(count - found.length) });
}

/** @param {MissingChunk} one */
function missingRow(one) {
  const row = cloneTemplate("missing-row");
  setContent(row, "index", indexName(one.index));
  setContent(row, "passage", t("document.nth_chunk", { number: one.ordinal + 1 }));
  setContent(row, "text", one.text);
  setContent(row, "why", explainProblem(one.problem));
  /** @type {HTMLAnchorElement} */ (field(row, "passage")).href = `?chunk=${one.chunk}#chunk-${one.chunk}`;
  return row;
}
