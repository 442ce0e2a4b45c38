// Study cards: generating a set, its progress, and the cards.

import { labelButton } from "../actions.js";
import { basePath, encodeQuery, get, post } from "../api.js";
import { showNotice, tryOrNotify } from "../dialog.js";
import { byId, cloneTemplate, el, field, icon, pageData, setText } from "../html.js";
import { explainProblem, explainReply, formatNumber, t, translationOr } from "../i18n.js";
import { followBase } from "../pause.js";
import { UNSETTLED_STATUSES } from "../status.js";
import { coalesced } from "../stream.js";

/** @typedef {{status: string, generation: number, cards: number, job: string | null, progress: Progress | null, error: Problem | null}} CardSetStatus */

const base = pageData.base;
const path = basePath(base, "cards");
const list = byId("cards");
const statusPanel = byId("standing");
/** @type {CardSetStatus} */
let status = pageData.status;
/** @type {string | null} */
let cursor = pageData.next;

const generateButton = el("button", { type: "button", class: "first", onclick: () => requestCards("generate") }, icon("cards"), el("span"));
const stop = el("button", { type: "button", onclick: () => requestCards("cancel") }, icon("stop"), t("cards.cancel"));
const reveal = el("button", { type: "button", onclick: () => toggleAll() }, icon("eye"), el("span"));
byId("acts").append(reveal, stop, generateButton);
byId("acts").hidden = false;

/** Return why no set can be generated now, or null if it can. */
function whyDisabled() {
  if (pageData.scope === "read") return t("disabled.scope");
  if (UNSETTLED_STATUSES.has(status.status)) return t("cards.why_making");
  if (!pageData.possible && !status.cards) return byId("hindrance")?.querySelector("strong")?.textContent ?? null;
  return null;
}

function paint() {
  const { generation, cards, progress, error } = status;
  const making = UNSETTLED_STATUSES.has(status.status);
  const chip = /** @type {HTMLElement} */ (field(statusPanel, "status"));
  chip.hidden = status.status === "not_indexed";
  chip.dataset.status = status.status;
  setText(statusPanel, "status", translationOr(`cards.status.${status.status}`, ""));
  setText(statusPanel, "set", generation ? t("cards.set", { generation: formatNumber(generation), count: formatNumber(cards) }) : t("cards.no_set"));
  setText(statusPanel, "error", making ? "" : explainProblem(error), { hide: true });
  const part = field(statusPanel, "making");
  if (part) part.hidden = !making;
  const bar = part?.querySelector("progress");
  if (bar && progress?.steps) bar.value = progress.step / progress.steps;
  else bar?.removeAttribute("value");
  setText(statusPanel, "far", [progress ? translationOr(`stage.${progress.stage}`, progress.stage) : t("status.queued"), progress?.steps ? t("cards.step", { step: formatNumber(progress.step), steps: formatNumber(progress.steps) }) : "", progress?.done ? t("cards.pairs", { count: formatNumber(progress.done) }) : ""].filter(Boolean).join(" · "));
  const name = t(generation ? "cards.generate_again" : "cards.generate");
  generateButton.lastElementChild?.replaceChildren(name);
  labelButton(generateButton, name, base, whyDisabled());
  stop.hidden = !making;
  byId("exports").hidden = !cards;
}

let busy = false;

/** @param {"generate" | "cancel"} what */
async function requestCards(what) {
  if (busy || (what === "generate" && whyDisabled())) return;
  busy = true;
  const reply = await tryOrNotify(() => post(`${path}:${what}`), base);
  busy = false;
  if (reply) showNotice(explainReply(reply));
  load();
}

/** @param {Card} card */
function cardElement(card) {
  const one = cloneTemplate("card");
  one.dataset.place = String(card.place);
  fill(one, card);
  return one;
}

/** @param {Element} one @param {Card} card */
function fill(one, card) {
  const texts = { question: card.question, answer: card.answer, source: [card.name, ...card.headings].join(" › "), passage: card.passage };
  for (const [name, text] of Object.entries(texts)) setText(one, name, text);
  field(one, "source")?.setAttribute("href", `/bases/${encodeURIComponent(base)}/documents/${card.document}?chunk=${card.chunk}`);
}

/** Show cards from the first on. An unchanged card stays open or closed. @param {Card[]} cards */
function show(cards) {
  cards.forEach((card, index) => {
    const there = list.children[index];
    if (there && field(there, "question")?.textContent === card.question) {
      there.dataset.place = String(card.place);
      fill(there, card);
    } else if (there) there.replaceWith(cardElement(card));
    else list.append(cardElement(card));
  });
  for (const one of [...list.children].slice(cards.length)) one.remove();
  paintList();
}

function paintList() {
  const some = list.childElementCount > 0;
  byId("nothing").hidden = some;
  byId("hint").hidden = !some;
  reveal.hidden = !some;
  reveal.lastElementChild?.replaceChildren(t(list.querySelector("details:not([open])") || !some ? "cards.reveal" : "cards.hide"));
  byId("more").hidden = !cursor;
  if (cursor) byId("more").href = encodeQuery({ cursor });
}

byId("more").addEventListener("click", async (/** @type {MouseEvent} */ event) => {
  if (event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  /** @type {Page<Card> | undefined} */
  const found = await tryOrNotify(() => get(path, { cursor, limit: pageData.limit }));
  if (!found) return;
  list.append(...found.items.map(cardElement));
  cursor = found.next_cursor;
  paintList();
});

function toggleAll() {
  const open = list.querySelector("details:not([open])") !== null;
  for (const one of list.querySelectorAll("details")) one.open = open;
}
list.addEventListener("toggle", paintList, true);
list.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  const here = /** @type {Element} */ (event.target).closest("li");
  const to = { ArrowDown: here?.nextElementSibling, ArrowUp: here?.previousElementSibling }[event.key];
  if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  to.querySelector("summary")?.focus();
});

let generation = status.generation;

async function load() {
  const found = await tryOrNotify(() => get(`${path}/status`));
  if (!found) return;
  status = found;
  paint();
  if (pageData.asked.cursor) return;
  const shown = Math.max(pageData.limit, generation === status.generation ? list.childElementCount : 0);
  generation = status.generation;
  /** @type {Page<Card> | undefined} */
  const page = await tryOrNotify(() => get(path, { limit: Math.min(shown, 500) }));
  if (!page) return;
  if (list.childElementCount > shown) return scheduleLoad(); // more cards were loaded during the request
  cursor = page.next_cursor;
  show(page.items);
}

const scheduleLoad = coalesced(load);

followBase(
  {
    event: (event) => {
      // A card exists only while its passage does, so deleted documents count, too.
      if (event.owner === "cards" || event.type.startsWith("cards.") || ["document.deleted", "document.changed", "base.cleared", "base.changed"].includes(event.type)) scheduleLoad();
    },
    progress: (message) => {
      const part = message.owner === "cards" && message.parts[0];
      if (!part) return;
      status = { ...status, status: "indexing", progress: { share: null, ...part } };
      paint();
    },
    reset: scheduleLoad,
  },
  () => UNSETTLED_STATUSES.has(status.status),
  scheduleLoad,
);

paint();
paintList();
