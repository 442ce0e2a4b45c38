// The first run: create a base, or try a sample base.

import { basePath, inParallel, latest, post, request } from "../api.js";
import { tryOrNotify } from "../dialog.js";
import { byId, cloneTemplate, el, field, setText } from "../html.js";
import { formatNumber, t } from "../i18n.js";
import { UNSETTLED_STATUSES, latestProgress, paintProgress, paintStatus } from "../status.js";
import { followEvents } from "../stream.js";

const BASE = "sample";
const INDEXES = ["vector", "fulltext", "graph"];
const MIN_SEARCHABLE = 3; // documents before the search form appears
const MAX_HITS = 3;
const MAX_HIT_CHARS = 360;
const SEARCHABLE_STATUSES = new Set(["success", "degraded"]);

byId("make")?.addEventListener("submit", async (/** @type {SubmitEvent} */ event) => {
  event.preventDefault();
  const form = /** @type {HTMLFormElement} */ (event.target);
  making = true;
  const made = await tryOrNotify(() => post("/bases", { name: new FormData(form).get("name") }));
  if (made) location.assign(`/bases/${encodeURIComponent(made.name)}/documents`);
  else making = false;
});

let making = false; // this page creates a base and opens it next
let began = 0; // when the sample was started; 0: not yet

byId("try")?.addEventListener("click", async () => {
  const button = byId("try");
  if (button.hidden) return;
  button.hidden = true;
  began = Date.now();
  if (await tryOrNotify(createSample)) return;
  button.hidden = false;
  began = 0;
});

/** @type {Map<number, HTMLElement>} */
const lines = new Map();
/** @type {Map<number, string>} */
const states = new Map();
let expected = 0;

/** Create the base and send the sample documents. */
async function createSample() {
  const answer = await fetch("/static/samples/index.json");
  /** @type {{file: string, name: string}[]} */
  const files = await answer.json();
  await post("/bases", { name: BASE, indexes: INDEXES });
  byId("beginning").textContent = t("welcome.filling", { base: BASE });
  expected = files.length;
  byId("trying").hidden = false;
  paintProgressBar();
  const samples = files.map((one) => ({ ...one, row: sampleRow(one.name) }));
  await inParallel(samples, ({ file, name, row }) => tryOrNotify(() => sendSample(file, name, row), BASE));
  return true;
}

/** @param {string} name */
function sampleRow(name) {
  const made = cloneTemplate("sample");
  setText(made, "name", name);
  byId("samples").append(made);
  return made;
}

/** @param {string} file @param {string} name @param {HTMLElement} made */
async function sendSample(file, name, made) {
  const text = await (await fetch(`/static/samples/${file}`)).blob();
  const answer = await request("POST", basePath(BASE, "documents"), { query: { name }, body: text, headers: { "content-type": "application/octet-stream" } });
  const id = answer.replies[0].document;
  lines.set(id, made);
  field(made, "name")?.replaceChildren(el("a", { href: `/bases/${BASE}/documents/${id}` }, name));
  refreshStatuses([id]);
}

followEvents({
  event: (event) => {
    if (!began && !making && event.type === "base.created") return location.reload(); // created elsewhere: this is not the first run any more
    if (event.document !== null && lines.has(event.document)) refreshStatuses([event.document]);
  },
  progress: (message) => {
    const shown = lines.get(message.document);
    if (shown && UNSETTLED_STATUSES.has(states.get(message.document) ?? "")) paintProgress(shown, latestProgress(message));
  },
  reset: () => refreshStatuses([...lines.keys()]),
});

/** @type {Set<number>} */
const changedIds = new Set();
let asking = false;

/** Load the status of changed documents, one request at a time. @param {number[]} documents */
async function refreshStatuses(documents) {
  for (const one of documents) changedIds.add(one);
  if (asking) return;
  asking = true;
  while (changedIds.size) {
    const some = [...changedIds];
    changedIds.clear();
    paint((await tryOrNotify(() => post(`${basePath(BASE, "documents")}/status`, { documents: some }))) ?? []);
  }
  asking = false;
}

/** @param {DocumentStatus[]} found */
function paint(found) {
  for (const one of found) {
    const shown = lines.get(one.id);
    const before = states.get(one.id);
    states.set(one.id, one.status);
    if (!shown) continue;
    paintStatus(shown, one.status);
    paintProgress(shown, UNSETTLED_STATUSES.has(one.status) ? one.progress : null);
    if (before !== one.status && SEARCHABLE_STATUSES.has(one.status)) paintProgressBar();
  }
}

function paintProgressBar() {
  const done = [...states.values()].filter((one) => SEARCHABLE_STATUSES.has(one)).length;
  byId("share").value = expected ? done / expected : 0;
  const all = expected > 0 && done === expected;
  if (all) byId("beginning").textContent = t("welcome.filled", { base: BASE });
  byId("shared").textContent = all
    ? t("welcome.took", { total: formatNumber(expected), seconds: formatNumber(Math.max(1, Math.round((Date.now() - began) / 1000))) })
    : t("welcome.shared", { done: formatNumber(done), total: formatNumber(expected) });
  if (done < Math.min(MIN_SEARCHABLE, expected)) return;
  byId("finding").hidden = false;
  if (!asked) runSearch();
}

let asked = false; // the user has searched
const searching = latest();

byId("ask").addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  asked = true;
  runSearch();
});

async function runSearch() {
  const signal = searching();
  const query = byId("ask").elements.query.value.trim();
  if (!query) return;
  const found = await tryOrNotify(() => request("POST", `${basePath(BASE)}/search`, { body: { query, limit: MAX_HITS }, signal }));
  if (!found || signal.aborted) return;
  byId("no-hits").hidden = found.hits.length > 0;
  byId("hits").replaceChildren(...found.hits.map(hitElement));
}

/** @param {any} one */
function hitElement(one) {
  const headings = one.headings.filter((/** @type {string} */ part) => part !== one.title).join(" › ");
  const link = el("a", { href: `/bases/${BASE}/documents/${one.document}?chunk=${one.chunk}` }, one.title || one.name);
  return el("li", {}, link, headings ? el("span", { class: "small dim" }, ` ${headings}`) : null, el("p", {}, excerpt(one.text)));
}

/** Return an excerpt that starts at the sentence with the most words of the query, without Markdown. @param {string} text */
function excerpt(text) {
  const words = byId("ask").elements.query.value.toLowerCase().split(/[\s?？。，,]+/).filter((/** @type {string} */ one) => one.length > 2);
  const sentences = text.replace(/^#+ .*$/gm, "").replace(/\*\*|`/g, "").replace(/\s+/g, " ").trim().split(/(?<=[.!?] )|(?<=[。！？])/);
  const scores = sentences.map((one) => words.filter((/** @type {string} */ word) => one.toLowerCase().includes(word)).length);
  const first = scores.indexOf(Math.max(...scores));
  const whole = sentences.slice(first).join("").trim();
  return `${first ? "… " : ""}${whole.length > MAX_HIT_CHARS ? `${whole.slice(0, MAX_HIT_CHARS).trimEnd()}…` : whole}`;
}
