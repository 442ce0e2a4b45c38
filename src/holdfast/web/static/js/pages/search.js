// Search without leaving the page; the address always names the shown query.

import { basePath, encodeQuery, latest, request } from "../api.js";
import { tryOrNotify } from "../dialog.js";
import { highlightWords } from "../highlight.js";
import { byId, cloneTemplate, el, field, pageData, svg } from "../html.js";
import { formatNumber, t, translationOr } from "../i18n.js";
import { passageHref } from "../passage-dialog.js";
import { followBase } from "../pause.js";
import { showNotices } from "../search-notices.js";

const base = pageData.base;
const form = byId("search");
const list = byId("hits");
const channels = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll(`[name="channel"]`)]).map((box) => box.value);

function formValues() {
  const boxes = /** @type {HTMLInputElement[]} */ ([...form.querySelectorAll('[name="channel"]:not(:disabled)')]);
  const on = boxes.filter((one) => one.checked).map((one) => one.value);
  return { q: form.elements.q.value, channel: on.length === boxes.length ? [] : on, limit: Number(form.elements.limit.value), below: form.elements.below?.value ?? "" };
}

const searching = latest();

/** Search. A pending search is aborted. */
async function runSearch() {
  const { q, channel, limit, below } = formValues();
  const signal = searching();
  byId("stale").hidden = true;
  if (!q.trim()) return paint([], 0, q, []);
  byId("told").textContent = t("search.searching");
  const body = { query: q, limit, channels: channel.length ? channel : null, below: below ? [Number(below)] : [] };
  const found = await tryOrNotify(() => request("POST", `${basePath(base)}/search`, { body, signal }));
  if (signal.aborted) return;
  if (found) paint(found.hits, found.took_ms, q, found.notices);
  else byId("told").textContent = "";
}

/** @param {Hit[]} hits @param {number} took @param {string} q @param {Notice[]} notices */
function paint(hits, took, q, notices) {
  showNotices(notices);
  list.replaceChildren(...hits.map((one) => hitElement(one, q, bestScores(hits))));
  byId("told").textContent = hits.length ? t("search.found", { count: formatNumber(hits.length), took: formatNumber(Math.round(took)) }) : "";
  byId("begin").hidden = Boolean(q.trim());
  byId("nothing").hidden = hits.length > 0 || !q.trim();
  byId("empty").hidden = true;
  scrollToMatches();
}

/** Scroll long passages to their first highlighted word. */
function scrollToMatches() {
  for (const passage of list.querySelectorAll(".passage")) {
    const mark = passage.querySelector("mark");
    if (mark && mark.offsetTop > passage.clientHeight / 2) passage.scrollTop = mark.offsetTop - passage.clientHeight / 4;
  }
}

/** Return the best score of each channel. Scales differ, so a bar compares a score with its channel's best. @param {Hit[]} hits */
function bestScores(hits) {
  /** @type {Record<string, number>} */
  const found = {};
  for (const hit of hits) for (const [kind, one] of Object.entries(hit.channels)) found[kind] = Math.max(found[kind] ?? 0, one.score);
  return found;
}

/** @param {Hit} one @param {string} q @param {Record<string, number>} most */
function hitElement(one, q, most) {
  const made = cloneTemplate("hit");
  made.dataset.document = String(one.document);
  const link = /** @type {HTMLAnchorElement} */ (field(made, "name"));
  link.href = passageHref(base, one);
  link.textContent = one.name;
  /** @type {Record<string, (string | Node)[]>} */
  const parts = {
    rank: [String(one.rank)],
    headings: [one.headings.join(" › ")],
    facts: [`${t("search.score", { score: one.score.toFixed(3) })} · ${t("search.generation", { number: one.generation })}`],
    passage: highlightWords(one.text, q),
    channels: channels.filter((kind) => kind in one.channels).map((kind) => channelScore(kind, one.channels[kind], most[kind])),
  };
  for (const [name, nodes] of Object.entries(parts)) field(made, name)?.replaceChildren(...nodes);
  return made;
}

/** @param {string} kind @param {{score: number, rank: number}} one @param {number} most */
function channelScore(kind, one, most) {
  const name = translationOr(`search.channel.${kind}`, kind);
  const score = one.score.toFixed(3);
  const bar = svg("svg", { viewBox: "0 0 100 1", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("rect", { width: most ? Math.max(0, (100 * one.score) / most) : 0, height: 1 }));
  return el("li", { "data-channel": kind, title: t(one.rank ? "search.ranked" : "search.unranked", { channel: name, score, rank: one.rank }) }, el("span", {}, name), bar, el("span", { class: "number" }, score, one.rank ? el("strong", {}, ` #${one.rank}`) : null));
}

/** Search, and put the query into the address. */
function submitSearch() {
  history.pushState(null, "", location.pathname + encodeQuery(formValues()));
  runSearch();
}

form.addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  submitSearch();
});
form.addEventListener("change", (/** @type {Event} */ event) => {
  if (/** @type {HTMLElement} */ (event.target).getAttribute("type") !== "search" && form.elements.q.value.trim()) submitSearch();
});
byId("stale").addEventListener("click", runSearch);

addEventListener("popstate", () => {
  const query = new URLSearchParams(location.search);
  form.elements.q.value = query.get("q") ?? "";
  form.elements.limit.value = query.get("limit") ?? "10";
  if (form.elements.below) form.elements.below.value = query.get("below") ?? "";
  const on = query.getAll("channel");
  for (const box of form.querySelectorAll('[name="channel"]:not(:disabled)')) box.checked = !on.length || on.includes(box.value);
  runSearch();
});

document.addEventListener("keydown", (event) => {
  if (!["ArrowDown", "ArrowUp"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const target = /** @type {HTMLElement} */ (event.target);
  const links = /** @type {HTMLElement[]} */ ([...list.querySelectorAll('a[data-field="name"]')]);
  const place = links.indexOf(target);
  if (place < 0 && target !== form.elements.q) return;
  const to = event.key === "ArrowDown" ? links[place + 1] : place > 0 ? links[place - 1] : form.elements.q;
  if (!to) return;
  event.preventDefault();
  to.focus();
});

followBase({
  event: (event) => {
    if (!list.childElementCount && byId("nothing").hidden) return;
    if (event.type === "document.deleted") list.querySelector(`[data-document="${event.document}"]`)?.remove();
    if (event.type.startsWith("index.") || event.type === "document.deleted" || event.type.startsWith("base.")) byId("stale").hidden = false;
  },
  reset: () => (byId("stale").hidden = !list.childElementCount),
});

scrollToMatches();
