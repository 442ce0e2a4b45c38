// The graph of a base: drawn, listed, asked for its evidence; live.

import { at, get, search } from "../api.js";
import { notice, tried } from "../dialog.js";
import { Entities, legend } from "../entities.js";
import { byId, data, el, icon } from "../html.js";
import { followUnlessPaused } from "../pauses.js";
import { evidenceOf, portraitOf } from "../portrait.js";
import { Stage } from "../stage.js";
import { number, t } from "../words.js";

const AROUND = 60; // entities that are added around one, at most
const DRAWN = 300; // entities at first
const OFTEN = 2000; // milliseconds between two looks, while documents are indexed
const TYPED = 200; // milliseconds after the last key
const KINDS = 6; // that have a colour of their own
const MOVING = new Set(["document.deleted", "base.cleared"]);
const asked = data.asked;

/** @type {Map<string, number>} */
const kinds = new Map(Object.entries(data.kinds));
const stage = new Stage(byId("canvas"), { chosen: (key) => (key === null ? clear() : choose(key)), joined: (edge) => join(edge.source, edge.target) });
const list = new Entities(byId("entities"), { choose, light: (key) => stage.light(key), kind: (kind) => kinds.get(kind) ?? 0 });

// ---------------------------------------------------------------- what is drawn

/** What was asked for: the graph itself, then what was added around entities. @type {Map<string, any>} */
const views = new Map([["", data.graph]]);

/** Draw all that was asked for. */
function draw() {
  /** @type {Map<string, any>} */
  const nodes = new Map();
  /** @type {Map<string, any>} */
  const edges = new Map();
  for (const view of views.values()) {
    for (const node of view.nodes) nodes.set(node.key, node);
    for (const edge of view.edges) edges.set(JSON.stringify([edge.source, edge.target]), edge);
  }
  for (const node of nodes.values()) if (node.kind && !kinds.has(node.kind) && kinds.size < KINDS) kinds.set(node.kind, kinds.size + 1);
  const shown = [...nodes.values()].sort((one, other) => other.documents - one.documents);
  byId("graph").hidden = !shown.length;
  byId("nothing").hidden = shown.length > 0;
  stage.show(shown, [...edges.values()], kinds);
  if (!asked.text) list.show(shown.map(entityOf));
  legend(kinds);
  const counted = { nodes: number(shown.length), edges: number(edges.size) };
  byId("canvas").setAttribute("aria-label", t("graph.canvas", counted));
  byId("cut").hidden = !data.graph.cut;
  byId("cut").textContent = t("graph.cut", counted);
  const found = new Set(shown.map((node) => Boolean(node.kind)));
  byId("made").querySelector("span").textContent = t(`graph.made_by_${found.size > 1 ? "both" : found.has(true) ? "model" : "rules"}`);
}

/** @param {any} node */
const entityOf = (node) => ({ key: node.key, label: node.name, kind: node.kind, documents: node.documents });

/** Ask for all of it again, and let it change in place. */
async function look() {
  waiting = 0;
  looked = Date.now();
  const found = await tried(() => Promise.all([...views.keys()].map((key) => ask(key).catch(gone))));
  if (!found) return;
  [...views.keys()].forEach((key, place) => (found[place] ? views.set(key, found[place]) : views.delete(key)));
  data.graph = views.get("") ?? { nodes: [], edges: [], cut: false };
  draw();
}

/** @param {string} key */
const ask = (key) => get(`${at(data.base)}/graph`, key ? { around: key, depth: 1, limit: AROUND } : { around: asked.around, depth: asked.around ? 2 : "", limit: DRAWN });

/** What nobody speaks of any more is not drawn. @param {any} error */
function gone(error) {
  if (error?.status === 404) return null;
  throw error;
}

/** Draw also what stands around an entity. @param {string} key */
async function expand(key, silent = false) {
  const before = stage.network.nodes.length;
  const view = await tried(() => ask(key));
  if (!view) return;
  views.set(key, view);
  draw();
  stage.choose(key);
  const name = view.nodes.find((/** @type {any} */ node) => node.key === key)?.name ?? key;
  const count = stage.network.nodes.length - before;
  if (!silent) notice(count ? t("graph.expanded", { count: number(count), name }) : t("graph.nothing_more", { name }));
}

// ---------------------------------------------------------------- what is chosen

/** @type {AbortController | null} */
let asking = null;
const steps = { choose, expand, join, clear };

/** Show what is known of an entity. @param {string} key */
async function choose(key) {
  note(key, "");
  list.choose(key);
  if (stage.network.number(key) < 0) await expand(key, true);
  stage.choose(key);
  const portrait = await only(`${at(data.base, "graph", "entities")}/${key.split("/").map(encodeURIComponent).join("/")}`, {});
  if (!portrait) return;
  show(portraitOf(portrait, steps));
  byId("said").textContent = `${portrait.entity.label}, ${t("graph.documents_of", { count: number(portrait.entity.documents) })}`;
}

/** Show the passages behind an edge. @param {string} source @param {string} target */
async function join(source, target) {
  note(source, target);
  list.choose(source);
  stage.join(source, target);
  const found = await only(`${at(data.base)}/graph/edges`, { source, target });
  if (!found) return;
  const ends = [source, target].map((key) => stage.network.nodes[stage.network.number(key)]);
  const named = [source, target].map((key, place) => (ends[place] ? entityOf(ends[place]) : { key, label: key, kind: "", documents: 0 }));
  const edge = stage.network.edges.find((one) => (one.source === source && one.target === target) || (one.source === target && one.target === source));
  show(evidenceOf({ source: named[0], target: named[1], kind: edge?.kind ?? "" }, found, steps));
  byId("said").textContent = t("graph.show_evidence", { one: named[0].label, other: named[1].label });
}

/** Ask for what the panel shows; only the last one who asks is answered. @param {string} path @param {Record<string, any>} query */
async function only(path, query) {
  asking?.abort();
  asking = new AbortController();
  const signal = asking.signal;
  const found = await tried(() => get(path, query, signal));
  return signal.aborted ? undefined : found;
}

/** @param {Node[]} parts */
const show = (parts) => byId("portrait").replaceChildren(...parts);

function clear() {
  asking?.abort();
  note("", "");
  list.choose(null);
  stage.choose(null);
  show([el("p", { class: "dim" }, t("graph.choose"))]);
}

/** Let the address name what is shown. @param {string} entity @param {string} beside */
function note(entity, beside) {
  Object.assign(asked, { entity, beside });
  history.replaceState(null, "", location.pathname + search(asked));
}

// ---------------------------------------------------------------- finding

const form = byId("filter");
let typed = 0;
/** @type {AbortController | null} */
let finding = null;

form.addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  clearTimeout(typed);
  find().then(() => list.links()[0]?.focus());
});
form.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(find, TYPED);
});
form.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  if (event.key !== "ArrowDown") return;
  event.preventDefault();
  list.links()[0]?.focus();
});

async function find() {
  asked.text = form.elements.text.value.trim();
  note(asked.entity, asked.beside);
  finding?.abort();
  finding = new AbortController();
  const signal = finding.signal;
  if (!asked.text) return list.show(stage.network.nodes.map(entityOf));
  const found = await tried(() => get(`${at(data.base)}/graph/entities`, { text: asked.text, limit: 100 }, signal));
  if (found && !signal.aborted) list.show(found);
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && asked.entity && !document.querySelector("dialog[open]") && !(event.target instanceof HTMLInputElement)) clear();
});

// ---------------------------------------------------------------- tools, and what happens

/** @param {string} name @param {string} text @param {() => void} used */
const tool = (name, text, used) => el("button", { type: "button", class: "icon-button", "aria-label": t(text), title: t(text), onclick: used }, icon(name));
const minus = tool("more", "graph.farther", () => stage.zoom(1 / 1.4));
minus.replaceChildren("−");
byId("tools").append(tool("plus", "graph.nearer", () => stage.zoom(1.4)), minus, tool("graph", "graph.fit", () => stage.fit()));

let looked = 0;
let waiting = 0;
const soon = () => (waiting ||= setTimeout(look, Math.max(200, looked + OFTEN - Date.now())));

followUnlessPaused({ event: (event) => (event.kind === "graph" || MOVING.has(event.type)) && soon(), reset: soon });
draw();
if (asked.entity && asked.beside) join(asked.entity, asked.beside);
else if (asked.entity) choose(asked.entity);
