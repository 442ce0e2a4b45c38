// Questions: streamed answers with citations that open their passages. Output of a model is only inserted as text.

import { streamAnswer } from "../answer-stream.js";
import { encodeQuery } from "../api.js";
import { tryOrNotify } from "../dialog.js";
import { byId, el, pageData } from "../html.js";
import { formatNumber, t } from "../i18n.js";
import { openPassageDialog, passageHref } from "../passage-dialog.js";
import { watchPause } from "../pause.js";
import { showNotices } from "../search-notices.js";

const base = pageData.base;
const form = byId("ask");
/** @type {AbortController | null} */
let request = null;

/** Send the question. A pending answer is aborted. */
async function ask() {
  const question = form.elements.q.value.trim();
  const mode = form.elements.mode.value;
  if (!question) return;
  request?.abort();
  const mine = (request = new AbortController());
  history.replaceState(null, "", location.pathname + encodeQuery({ q: question, mode }));
  showPending();
  const answer = await tryOrNotify(() => streamAnswer(base, { question, mode }, (text) => byId("answer").append(text), mine.signal));
  if (request !== mine) return;
  showDone(mine.signal.aborted ? t("ask.stopped") : "");
  if (answer) paintAnswer(answer);
  else if (!byId("answer").textContent && !mine.signal.aborted) byId("said").hidden = true;
}

function showPending() {
  byId("begin").hidden = true;
  byId("said").hidden = false;
  for (const name of ["answer", "citations", "context"]) byId(name).replaceChildren();
  showNotices([]);
  byId("answer").setAttribute("aria-busy", "true");
  byId("told").textContent = t("ask.thinking");
  byId("stop").hidden = false;
}

/** @param {string} message */
function showDone(message) {
  byId("answer").removeAttribute("aria-busy");
  byId("told").textContent = message;
  byId("stop").hidden = true;
}

/** @param {Answer} answer */
function paintAnswer(answer) {
  byId("told").textContent = t(`ask.outcome.${answer.outcome}`) + (answer.cut ? ` ${t("ask.cut")}` : "");
  showNotices(answer.notices);
  const left = [...answer.citations]; // in the order of their markers, one for each
  byId("answer").replaceChildren(
    ...answer.text.split(/(\[\d+\])/).map((part) => {
      const place = left.findIndex((one) => part === `[${one.number}]`);
      if (place < 0) return part;
      const [one] = left.splice(place, 1);
      return passageLink(one, part, t("ask.cite", { number: one.number, name: one.name }));
    }),
  );
  if (answer.citations.length) byId("citations").replaceChildren(el("h3", {}, t("ask.citations")), el("ol", { class: "quotes" }, ...answer.citations.map((one) => quote(one, `[${one.number}] ${one.name}`, one.quote))));
  const passages = el("details", {}, el("summary", {}, t("ask.context", { count: formatNumber(answer.context.length) })),
    answer.facts.length ? el("h3", {}, t("ask.facts")) : null, answer.facts.length ? el("ul", {}, ...answer.facts.map((one) => el("li", {}, one))) : null,
    el("ol", { class: "quotes" }, ...answer.context.map((one) => quote({ ...one, start: undefined, end: undefined }, [one.name, ...one.headings].join(" › "), one.text))));
  byId("context").replaceChildren(...(answer.context.length ? [passages] : []));
}

/**
 * Make a link that opens a passage in a dialog, or its document in a new tab.
 * @param {{document: number, chunk: number, start?: number, end?: number}} place
 * @param {string} text
 * @param {string} [label]
 */
function passageLink(place, text, label) {
  return el("a", { href: passageHref(base, place), "aria-label": label, title: label, onclick: (/** @type {MouseEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    openPassageDialog(base, place);
  } }, text);
}

/** @param {{document: number, chunk: number, start?: number, end?: number}} place @param {string} name @param {string} text */
const quote = (place, name, text) => el("li", {}, passageLink(place, name), el("p", { class: "small" }, text));

form.addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  ask();
});
form.elements.q.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
byId("stop").addEventListener("click", () => request?.abort());
addEventListener("pagehide", () => request?.abort());
byId("go").hidden = false;
watchPause();
