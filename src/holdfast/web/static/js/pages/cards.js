// Study cards: making a set, seeing how far it is, and leafing through what is shown.

import { label } from "../actions.js";
import { at, get, post, search } from "../api.js";
import { notice, tried } from "../dialog.js";
import { byId, data, el, field, icon } from "../html.js";
import { followUnlessPaused } from "../pauses.js";
import { MOVING } from "../standing.js";
import { known, number, replied, t, told } from "../words.js";

/** @typedef {{status: string, generation: number, cards: number, job: string | null, progress: Progress | null, error: Problem | null}} CardsStanding */
/** @typedef {{place: number, question: string, answer: string, document: number, name: string, chunk: number, headings: string[], passage: string}} Card */

const SETTLE = 240; // milliseconds in which what happens is asked for together
const base = data.base;
const path = at(base, "cards");
const list = byId("cards");
const standing = byId("standing");
/** @type {CardsStanding} */
let status = data.status;
/** @type {string | null} */
let cursor = data.next;

// ---------------------------------------------------------------- how they stand

const make = el("button", { type: "button", class: "first", onclick: () => ask("generate") }, icon("cards"), el("span"));
const stop = el("button", { type: "button", onclick: () => ask("cancel") }, icon("stop"), t("cards.cancel"));
const reveal = el("button", { type: "button", onclick: () => turnAll() }, icon("eye"), el("span"));
byId("acts").append(reveal, stop, make);
byId("acts").hidden = false;

/** Why no set can be asked for now; null when it can. */
function hindrance() {
  if (data.scope === "read") return t("why.scope");
  if (MOVING.has(status.status)) return t("cards.why_making");
  if (!data.possible && !status.cards) return byId("hindrance")?.querySelector("strong")?.textContent ?? null;
  return null;
}

function paint() {
  const { generation, cards, progress, error } = status;
  const making = MOVING.has(status.status);
  const chip = /** @type {HTMLElement} */ (field(standing, "status"));
  chip.hidden = status.status === "not_indexed";
  chip.dataset.status = status.status;
  put("status", known(`cards.status.${status.status}`, ""));
  put("set", generation ? t("cards.set", { generation: number(generation), count: number(cards) }) : t("cards.no_set"));
  put("error", making ? "" : told(error));
  const part = field(standing, "making");
  if (part) part.hidden = !making;
  const bar = part?.querySelector("progress");
  if (bar && progress?.steps) bar.value = progress.step / progress.steps;
  else bar?.removeAttribute("value");
  put("far", [progress ? known(`stage.${progress.stage}`, progress.stage) : t("status.queued"), progress?.steps ? t("cards.step", { step: number(progress.step), steps: number(progress.steps) }) : "", progress?.done ? t("cards.pairs", { count: number(progress.done) }) : ""].filter(Boolean).join(" · "));
  const name = t(generation ? "cards.generate_again" : "cards.generate");
  make.lastElementChild?.replaceChildren(name);
  label(make, name, base, hindrance());
  stop.hidden = !making;
  byId("exports").hidden = !cards;
}

/** @param {string} name @param {string} text */
function put(name, text) {
  const part = field(standing, name);
  if (!part) return;
  if (name === "error") part.hidden = !text;
  if (part.textContent !== text) part.textContent = text;
}

let busy = false;

/** @param {"generate" | "cancel"} what */
async function ask(what) {
  if (busy || (what === "generate" && hindrance())) return;
  busy = true;
  const reply = await tried(() => post(`${path}:${what}`), base);
  busy = false;
  if (reply) notice(replied(reply));
  load();
}

// ---------------------------------------------------------------- the cards

/** @param {Card} card */
function made(card) {
  const one = byId("card").content.firstElementChild.cloneNode(true);
  one.dataset.place = String(card.place);
  fill(one, card);
  return one;
}

/** @param {Element} one @param {Card} card */
function fill(one, card) {
  const texts = { question: card.question, answer: card.answer, source: [card.name, ...card.headings].join(" › "), passage: card.passage };
  for (const [name, text] of Object.entries(texts)) {
    const part = field(one, name);
    if (part && part.textContent !== text) part.textContent = text;
  }
  field(one, "source")?.setAttribute("href", `/bases/${encodeURIComponent(base)}/documents/${card.document}?chunk=${card.chunk}`);
}

/** Show these cards from the beginning; a card of the same set stays as it lies. @param {Card[]} cards */
function show(cards) {
  cards.forEach((card, index) => {
    const there = list.children[index];
    if (there && field(there, "question")?.textContent === card.question) {
      there.dataset.place = String(card.place);
      fill(there, card);
    } else if (there) there.replaceWith(made(card));
    else list.append(made(card));
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
  if (cursor) byId("more").href = search({ cursor });
}

byId("more").addEventListener("click", async (/** @type {MouseEvent} */ event) => {
  if (event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  /** @type {Page<Card> | undefined} */
  const found = await tried(() => get(path, { cursor, limit: data.limit }));
  if (!found) return;
  list.append(...found.items.map(made));
  cursor = found.next_cursor;
  paintList();
});

function turnAll() {
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

// ---------------------------------------------------------------- live

let waiting = 0;
let generation = status.generation;

async function load() {
  waiting = 0;
  const found = await tried(() => get(`${path}/status`));
  if (!found) return;
  status = found;
  paint();
  if (data.asked.cursor) return;
  const shown = Math.max(data.limit, generation === status.generation ? list.childElementCount : 0);
  generation = status.generation;
  /** @type {Page<Card> | undefined} */
  const page = await tried(() => get(path, { limit: Math.min(shown, 500) }));
  if (!page) return;
  if (list.childElementCount > shown) return soon(); // more were loaded meanwhile, and are to stay
  cursor = page.next_cursor;
  show(page.items);
}

const soon = () => {
  waiting ||= setTimeout(load, SETTLE);
};

followUnlessPaused(
  {
    event: (event) => {
      // A card is shown only while its passage is, so the end of a document counts, too.
      if (event.owner === "cards" || event.type.startsWith("cards.") || ["document.deleted", "document.changed", "base.cleared", "base.changed"].includes(event.type)) soon();
    },
    progress: (told) => {
      const part = told.owner === "cards" && told.parts[0];
      if (!part) return;
      status = { ...status, status: "indexing", progress: { share: null, ...part } };
      paint();
    },
    reset: soon,
  },
  () => MOVING.has(status.status),
  soon,
);

paint();
paintList();
