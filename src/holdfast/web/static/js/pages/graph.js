// The graph of a base: drawing, list, details and evidence; live.

import { basePath, encodeQuery, get, latest, nullIfMissing } from "../api.js";
import { showNotice, tryOrNotify } from "../dialog.js";
import { EntityList, drawLegend } from "../entity-list.js";
import { renderEntity, renderEvidence } from "../entity-panel.js";
import { GraphView } from "../graph-view.js";
import { byId, el, icon, pageData } from "../html.js";
import { formatNumber, t } from "../i18n.js";
import { followBase } from "../pause.js";
import { coalesced } from "../stream.js";

const MAX_AROUND = 60; // entities added by an expansion
const MAX_DRAWN = 300; // entities of the first drawing
const RELOAD_MS = 2000; // at most one reload in this time
const TYPING_MS = 200; // after the last key
const COLOURED_KINDS = 6;
const RELOADING_EVENTS = new Set(["document.deleted", "base.cleared"]);
const asked = pageData.asked;

/** @type {Map<string, number>} */
const kinds = new Map(Object.entries(pageData.kinds));
const graphView = new GraphView(byId("canvas"), { chosen: (key) => (key === null ? clear() : selectEntity(key)), joined: (edge) => selectEdge(edge.source, edge.target) });
const list = new EntityList(byId("entities"), { choose: selectEntity, light: (key) => graphView.highlight(key), kind: (kind) => kinds.get(kind) ?? 0 });

/** Loaded graphs by entity: the first one under "", then expansions. @type {Map<string, any>} */
const views = new Map([["", pageData.graph]]);

/** Draw all loaded graphs as one. */
function draw() {
  /** @type {Map<string, any>} */
  const nodes = new Map();
  /** @type {Map<string, any>} */
  const edges = new Map();
  for (const view of views.values()) {
    for (const node of view.nodes) nodes.set(node.key, node);
    for (const edge of view.edges) edges.set(JSON.stringify([edge.source, edge.target]), edge);
  }
  for (const node of nodes.values()) if (node.kind && !kinds.has(node.kind) && kinds.size < COLOURED_KINDS) kinds.set(node.kind, kinds.size + 1);
  const shown = [...nodes.values()].sort((one, other) => other.documents - one.documents);
  byId("graph").hidden = !shown.length;
  byId("nothing").hidden = shown.length > 0;
  graphView.show(shown, [...edges.values()], kinds);
  if (!asked.text) list.show(shown.map(entityOf));
  drawLegend(kinds);
  const counted = { nodes: formatNumber(shown.length), edges: formatNumber(edges.size) };
  byId("canvas").setAttribute("aria-label", t("graph.canvas", counted));
  byId("cut").hidden = !pageData.graph.cut;
  byId("cut").textContent = t("graph.cut", counted);
  const found = new Set(shown.map((node) => Boolean(node.kind)));
  byId("made").querySelector("span").textContent = t(`graph.made_by_${found.size > 1 ? "both" : found.has(true) ? "model" : "rules"}`);
}

/** @param {any} node */
const entityOf = (node) => ({ key: node.key, label: node.name, kind: node.kind, documents: node.documents });

/** Load all graphs again and update the drawing. An entity without mentions is dropped. */
async function reload() {
  reloaded = Date.now();
  const found = await tryOrNotify(() => Promise.all([...views.keys()].map((key) => loadView(key).catch(nullIfMissing))));
  if (!found) return;
  [...views.keys()].forEach((key, place) => (found[place] ? views.set(key, found[place]) : views.delete(key)));
  pageData.graph = views.get("") ?? { nodes: [], edges: [], cut: false };
  draw();
}

/** @param {string} key */
const loadView = (key) => get(`${basePath(pageData.base)}/graph`, key ? { around: key, depth: 1, limit: MAX_AROUND } : { around: asked.around, depth: asked.around ? 2 : "", limit: MAX_DRAWN });

/** Add the surroundings of an entity to the drawing. @param {string} key */
async function expand(key, silent = false) {
  const before = graphView.model.nodes.length;
  const view = await tryOrNotify(() => loadView(key));
  if (!view) return;
  views.set(key, view);
  draw();
  graphView.selectNode(key);
  const name = view.nodes.find((/** @type {any} */ node) => node.key === key)?.name ?? key;
  const count = graphView.model.nodes.length - before;
  if (!silent) showNotice(count ? t("graph.expanded", { count: formatNumber(count), name }) : t("graph.nothing_more", { name }));
}

const panelRequest = latest();
const panelActions = { choose: selectEntity, expand, join: selectEdge, clear };

/** Show the details of an entity. @param {string} key */
async function selectEntity(key) {
  updateAddress(key, "");
  list.select(key);
  if (graphView.model.indexOf(key) < 0) await expand(key, true);
  graphView.selectNode(key);
  const portrait = await latestRequest(`${basePath(pageData.base, "graph", "entities")}/${key.split("/").map(encodeURIComponent).join("/")}`, {});
  if (!portrait) return;
  show(renderEntity(portrait, panelActions));
  byId("said").textContent = `${portrait.entity.label}, ${t("graph.documents_of", { count: formatNumber(portrait.entity.documents) })}`;
}

/** Show the passages behind an edge. @param {string} source @param {string} target */
async function selectEdge(source, target) {
  updateAddress(source, target);
  list.select(source);
  graphView.selectEdge(source, target);
  const found = await latestRequest(`${basePath(pageData.base)}/graph/edges`, { source, target });
  if (!found) return;
  const ends = [source, target].map((key) => graphView.model.nodes[graphView.model.indexOf(key)]);
  const named = [source, target].map((key, place) => (ends[place] ? entityOf(ends[place]) : { key, label: key, kind: "", documents: 0 }));
  const edge = graphView.model.edges.find((one) => (one.source === source && one.target === target) || (one.source === target && one.target === source));
  show(renderEvidence({ source: named[0], target: named[1], kind: edge?.kind ?? "" }, found, panelActions));
  byId("said").textContent = t("graph.show_evidence", { one: named[0].label, other: named[1].label });
}

/** Load the content of the panel. Only the latest request gets an answer. @param {string} path @param {Record<string, any>} query */
async function latestRequest(path, query) {
  const signal = panelRequest();
  const found = await tryOrNotify(() => get(path, query, signal));
  return signal.aborted ? undefined : found;
}

/** @param {Node[]} parts */
const show = (parts) => byId("portrait").replaceChildren(...parts);

function clear() {
  panelRequest();
  updateAddress("", "");
  list.select(null);
  graphView.selectNode(null);
  show([el("p", { class: "dim" }, t("graph.choose"))]);
}

/** @param {string} entity @param {string} beside */
function updateAddress(entity, beside) {
  Object.assign(asked, { entity, beside });
  history.replaceState(null, "", location.pathname + encodeQuery(asked));
}

const form = byId("filter");
let typed = 0;
const finding = latest();

form.addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  clearTimeout(typed);
  findEntities().then(() => list.links()[0]?.focus());
});
form.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(findEntities, TYPING_MS);
});
form.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  if (event.key !== "ArrowDown") return;
  event.preventDefault();
  list.links()[0]?.focus();
});

async function findEntities() {
  asked.text = form.elements.text.value.trim();
  updateAddress(asked.entity, asked.beside);
  const signal = finding();
  if (!asked.text) return list.show(graphView.model.nodes.map(entityOf));
  const found = await tryOrNotify(() => get(`${basePath(pageData.base)}/graph/entities`, { text: asked.text, limit: 100 }, signal));
  if (found && !signal.aborted) list.show(found);
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && asked.entity && !document.querySelector("dialog[open]") && !(event.target instanceof HTMLInputElement)) clear();
});

/** @param {string} name @param {string} text @param {() => void} used */
const tool = (name, text, used) => el("button", { type: "button", class: "icon-button", "aria-label": t(text), title: t(text), onclick: used }, icon(name));
const minus = tool("more", "graph.farther", () => graphView.zoom(1 / 1.4));
minus.replaceChildren("−");
byId("tools").append(tool("plus", "graph.nearer", () => graphView.zoom(1.4)), minus, tool("graph", "graph.fit", () => graphView.fit()));

let reloaded = 0; // when it was last loaded
const scheduleReload = coalesced(reload, () => Math.max(200, reloaded + RELOAD_MS - Date.now()));

followBase({ event: (event) => (event.kind === "graph" || RELOADING_EVENTS.has(event.type)) && scheduleReload(), reset: scheduleReload });
draw();
if (asked.entity && asked.beside) selectEdge(asked.entity, asked.beside);
else if (asked.entity) selectEntity(asked.entity);
