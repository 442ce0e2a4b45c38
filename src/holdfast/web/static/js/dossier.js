// What is known of a document beside its text: its history, the names in it, its questions, what it cost.

import { at, get } from "./api.js";
import { byId, el, svg } from "./html.js";
import { toldAbove } from "./reasons.js";
import { known, localise, number, span, t, told } from "./words.js";

/** @param {string} kind */
const named = (kind) => known(`index.${kind}`, kind);

/**
 * Load and paint what happened to a document.
 * @param {string} base
 * @param {Doc} doc
 */
export async function loadHistory(base, doc) {
  /** @type {Happening[] | null} */
  const found = await get(`${at(base, "documents", doc.id)}/history`).catch(() => null);
  if (!found) return;
  /** @type {Map<string, Happening[]>} */
  const runs = new Map();
  for (const one of found) {
    const key = one.job ?? `${one.what} ${one.at}`;
    runs.set(key, [one, ...(runs.get(key) ?? [])]);
  }
  const list = byId("history");
  const said = new Set(toldAbove(doc)); // the page says each sentence once
  list.replaceChildren(...[...runs.values()].map((run) => runOf(run, said)));
  localise(list);
}

/**
 * @param {Happening[]} run what happened to one request, from its beginning on
 * @param {Set<string>} said
 */
function runOf(run, said) {
  const first = run[0];
  const end = run.filter((one) => one.kind === null).at(-1);
  const status = end?.what ?? "accepted";
  const head = el("p", { class: "bar" },
    el("span", { class: "chip", "data-status": status }, t(`document.what.${status}`)),
    first.generation ? el("strong", {}, t("document.nth", { number: first.generation })) : null,
    first.operation ? el("span", {}, t(`document.operation.${first.operation}`)) : null,
    first.requester ? el("span", { class: "dim" }, t("document.by", { name: first.requester })) : null,
    el("span", { class: "gap" }), end && end.seconds !== null ? el("span", {}, span(end.seconds)) : null,
    el("span", { class: "small dim" }, el("time", { datetime: first.at })));
  return el("li", { class: "run", "data-status": status }, head, el("ol", { class: "steps" }, ...stepsOf(run, said)));
}

/**
 * Tell of each attempt how it ended, or that it has begun, and where it stands in the time of its request.
 * @param {Happening[]} run
 * @param {Set<string>} said
 */
function stepsOf(run, said) {
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
      return stepOf(one, (100 * begin) / whole, Math.max(1, (100 * length) / whole), said);
    });
}

/** @param {Happening} one @param {number} begin @param {number} share @param {Set<string>} said */
function stepOf(one, begin, share, said) {
  const problem = told(one.problem);
  const repeated = said.has(problem);
  said.add(problem);
  const what = el("span", {}, `${named(one.kind ?? "")}: ${t(`document.what.${one.what}`)}`,
    one.attempt ? el("span", { class: "dim" }, ` ${t("document.attempt", { number: one.attempt })}`) : null,
    problem && !repeated ? el("span", { class: "bad" }, ` ${problem}`) : null);
  const bar = svg("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { x: begin, width: share, height: 1 }));
  return el("li", { "data-what": one.what, title: problem || null }, what, bar, el("span", { class: "small dim number" }, one.seconds === null ? "" : span(one.seconds)));
}

/**
 * Load and paint the names in a document, its questions, and what it cost.
 * @param {string} base
 * @param {number} document
 */
export async function loadDossier(base, document) {
  const path = at(base, "documents", document);
  const [entities, cards, cost] = await Promise.all(["entities", "cards", "usage"].map((one) => get(`${path}/${one}`).catch(() => null)));
  if (entities) paintEntities(base, entities);
  if (cards) paintCards(cards.items);
  if (cost) paintCost(cost);
}

/** @param {string} base @param {Mentioned[]} entities */
function paintEntities(base, entities) {
  byId("no-entities").hidden = entities.length > 0;
  byId("entities").replaceChildren(...entities.map((one) => el("li", {}, el("a", { href: `/bases/${encodeURIComponent(base)}/graph?around=${encodeURIComponent(one.key)}`, title: one.kind || null }, one.name), " ", el("span", { class: "small dim number" }, number(one.mentions)))));
}

/** @param {Card[]} cards */
function paintCards(cards) {
  byId("no-cards").hidden = cards.length > 0;
  byId("cards").replaceChildren(...cards.map((one) => el("li", {}, el("details", {}, el("summary", {}, one.question), el("p", {}, one.answer), el("a", { class: "small", href: `?chunk=${one.chunk}#chunk-${one.chunk}` }, t("document.open_passage"))))));
}

/** @param {Cost} cost */
function paintCost(cost) {
  const nothing = !cost.kinds_spent.length && !cost.kinds_saved.length;
  byId("no-cost").hidden = !nothing;
  const table = byId("cost");
  table.hidden = nothing;
  const [spent, saved] = table.tBodies;
  spent.replaceChildren(...cost.kinds_spent.map(costOf));
  saved.replaceChildren(...(cost.kinds_saved.length ? [el("tr", {}, el("th", { scope: "rowgroup", colspan: 4 }, t("document.cost_saved")))] : []), ...cost.kinds_saved.map(costOf));
}

/** @param {Spent} one */
function costOf(one) {
  const cells = [number(one.texts), number(one.tokens_in + one.tokens_out), one.price === null ? "–" : one.price.toPrecision(4)];
  return el("tr", {}, el("th", { scope: "row" }, known(`document.cost.${one.kind}`, one.kind)), ...cells.map((text) => el("td", { class: "end number" }, text)));
}
