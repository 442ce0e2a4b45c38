// The panel next to the graph: the details of an entity, or the passages behind a relation.

import { el, icon, pageData } from "./html.js";
import { formatNumber, t } from "./i18n.js";

/**
 * @typedef {object} PanelActions
 * @property {(key: string) => void} choose
 * @property {(key: string) => void} expand
 * @property {(source: string, target: string) => void} join
 * @property {() => void} clear
 */

/** @typedef {{key: string, label: string, kind: string, documents: number}} Entity */

/** @param {number} document @param {number} chunk */
const passageUrl = (document, chunk) => `/bases/${encodeURIComponent(pageData.base)}/documents/${document}?chunk=${chunk}`;

/** @param {PanelActions} steps */
const closeButton = (steps) => el("button", { type: "button", class: "icon-button", "aria-label": t("graph.unselect"), title: t("graph.unselect"), onclick: steps.clear }, icon("close"));

/** @param {string} title @param {Node[]} lines */
const section = (title, lines) => (lines.length ? [el("h3", {}, title), el("ul", { class: "facts" }, ...lines)] : []);

/**
 * Render the details of an entity.
 * @param {any} portrait
 * @param {PanelActions} steps
 * @returns {Node[]}
 */
export function renderEntity(portrait, steps) {
  /** @type {Entity} */
  const entity = portrait.entity;
  const about = [entity.kind, t("graph.documents_of", { count: formatNumber(entity.documents) })].filter(Boolean).join(" · ");
  const only = `?${new URLSearchParams({ around: entity.key, entity: entity.key })}`;
  return [
    el("div", { class: "head" }, el("h2", {}, entity.label), el("span", { class: "gap" }), closeButton(steps)),
    el("p", { class: "small dim" }, about),
    el("p", { class: "bar" },
      el("button", { type: "button", class: "first", onclick: () => steps.expand(entity.key) }, icon("plus"), t("graph.expand")),
      el("a", { class: "button", href: only }, t("graph.focus"))),
    ...description(portrait),
    ...section(t("graph.relations"), portrait.relations.map((/** @type {any} */ one) => relation(one, steps))),
    ...section(t("graph.neighbours"), portrait.neighbours.map((/** @type {any} */ one) => neighbour(entity, one, steps))),
    ...section(t("graph.mentions"), mentions(portrait.mentions)),
  ];
}

/** @param {any} portrait */
function description(portrait) {
  if (!portrait.description) return portrait.entity.kind ? [el("p", { class: "small dim" }, t("graph.no_description"))] : [];
  return [el("p", {}, portrait.description), el("p", { class: "small dim" }, t(portrait.merged ? "graph.merged" : "graph.joined"))];
}

/** @param {any} one @param {PanelActions} steps */
function relation(one, steps) {
  const [source, target] = one.keys;
  return el("li", {}, el("button", { type: "button", class: "plain as-text", onclick: () => steps.join(source, target) }, one.label), one.kind ? el("span", { class: "small dim" }, ` ${one.kind}`) : null, el("p", {}, one.text));
}

/** @param {Entity} entity @param {any} one @param {PanelActions} steps */
function neighbour(entity, one, steps) {
  const other = one.entity;
  const title = t("graph.show_evidence", { one: entity.label, other: other.label });
  return el("li", { class: "pair" },
    el("button", { type: "button", class: "plain as-text clip", onclick: () => steps.choose(other.key) }, other.label),
    one.labels.length ? el("span", { class: "small dim clip" }, one.labels.join(", ")) : null,
    one.together ? el("button", { type: "button", class: "plain as-text small", title, "aria-label": title, onclick: () => steps.join(entity.key, other.key) }, t("graph.together", { count: formatNumber(one.together) })) : null);
}

/** List each document once, with links to its passages. @param {{document: number, name: string, chunk: number}[]} found */
function mentions(found) {
  /** @type {Map<number, {name: string, chunks: number[]}>} */
  const documents = new Map();
  for (const one of found) {
    const known = documents.get(one.document) ?? { name: one.name, chunks: [] };
    known.chunks.push(one.chunk);
    documents.set(one.document, known);
  }
  return [...documents].map(([document, { name, chunks }]) =>
    el("li", {}, el("a", { href: passageUrl(document, chunks[0]) }, name),
      ...(chunks.length > 1 ? chunks.slice(1).map((chunk, index) => el("a", { class: "small passage", href: passageUrl(document, chunk), "aria-label": `${name}, ${t("graph.passage", { number: index + 2 })}` }, formatNumber(index + 2))) : [])));
}

/**
 * Render the passages that mention two entities.
 * @param {{source: Entity, target: Entity, kind: string}} pair
 * @param {any[]} found
 * @param {PanelActions} steps
 * @returns {Node[]}
 */
export function renderEvidence({ source, target, kind }, found, steps) {
  const ends = [source, target].map((one) => el("button", { type: "button", class: "plain as-text", onclick: () => steps.choose(one.key) }, one.label));
  return [
    el("div", { class: "head" }, el("h2", { class: "ends" }, ends[0], " ↔ ", ends[1]), el("span", { class: "gap" }), closeButton(steps)),
    el("p", { class: "small dim" }, [kind, t("graph.together", { count: formatNumber(found.length) })].filter(Boolean).join(" · ")),
    found.length ? el("ul", { class: "facts" }, ...found.map(passage)) : el("p", { class: "dim" }, t("graph.no_evidence")),
  ];
}

/** @param {any} one */
const passage = (one) => el("li", {}, el("a", { href: passageUrl(one.document, one.chunk) }, one.name), one.headings.length ? el("span", { class: "small dim" }, ` ${one.headings.join(" › ")}`) : null, el("blockquote", {}, one.text));
