// The list of events, newest first, live.

import { get } from "./api.js";
import { markDeleted, showDocumentName } from "./document-names.js";
import { byId, el, field, pageData, setContent } from "./html.js";
import { explainCode, formatNumber, indexName, shortId, t, translationOr } from "./i18n.js";
import { NewestFirstTable } from "./newest-first-table.js";
import { followEvents } from "./stream.js";

const SCROLL_TOLERANCE = 120; // pixels; further down, new rows would move the text under the reader

/** Show events. New ones wait behind a button while the reader has scrolled down. */
export function startEventList() {
  const { base, topic, cursor } = pageData.asked;
  /** @type {NewestFirstTable<HoldfastEvent>} */
  const list = new NewestFirstTable("/events", { base, topic }, fillRow);
  /** @type {HoldfastEvent[]} received and not shown yet, newest first */
  let held = [];
  const button = byId("new");

  const release = () => {
    if (cursor) return location.assign(location.pathname + (topic || base ? `?${new URLSearchParams({ topic, base })}` : ""));
    list.show(held);
    held = [];
    button.hidden = true;
  };
  button.addEventListener("click", () => {
    release();
    scrollTo({ top: 0 });
    byId("main").focus({ preventScroll: true });
  });
  addEventListener("scroll", () => held.length && !cursor && scrollY <= SCROLL_TOLERANCE && release());

  followEvents(
    {
      event: async (event) => {
        if (event.type.startsWith("base.")) await reloadBaseNames();
        if (event.document !== null && event.type.startsWith("document.") && event.type !== "document.status") forgetIfDeleted(event);
        if (topic && !event.type.startsWith(`${topic}.`)) return;
        held = [event, ...held];
        if (!cursor && scrollY <= SCROLL_TOLERANCE) return release();
        button.hidden = false;
        button.textContent = t("activity.new", { count: formatNumber(held.length) });
      },
      reset: () => location.reload(),
    },
    base ? { base } : {},
  );
}

/** @param {HoldfastEvent} event */
function forgetIfDeleted(event) {
  if (event.type === "document.deleted" || event.type === "document.removed") markDeleted(/** @type {number} */ (event.document));
}

async function reloadBaseNames() {
  const found = await get("/bases").catch(() => null);
  if (found) pageData.bases = Object.fromEntries(found.map((/** @type {{id: number, name: string}} */ one) => [one.id, one.name]));
}

/** @param {HTMLTableRowElement} row @param {HoldfastEvent} event */
function fillRow(row, event) {
  const base = event.base === null ? undefined : pageData.bases[event.base];
  field(row, "at")?.setAttribute("datetime", event.at);
  setContent(row, "sentence", describeEvent(event));
  setContent(row, "error", describeError(event));
  showDocumentName(/** @type {HTMLElement} */ (field(row, "about")), base, event.document);
  setContent(row, "base", base ? el("a", { href: `/bases/${encodeURIComponent(base)}/documents` }, base) : event.base !== null ? el("span", { class: "dim" }, t("activity.gone_base", { id: event.base })) : event.type.startsWith("queue.") ? t("activity.whole_queue") : "");
  setContent(row, "job", event.job ? el("a", { class: "mono", href: `/queue#job-${encodeURIComponent(event.job)}`, title: event.job }, shortId(event.job)) : "");
  setContent(row, "who", event.data.requester === undefined ? "" : event.data.requester || t("queue.this_machine"));
}

/** @param {HoldfastEvent} event */
function describeEvent(event) {
  if (translationOr(`activity.event.${event.type}`, "") === "") return event.type;
  const { operation = "index", missing = 0, status = "", from = "", to = "" } = event.data;
  return t(`activity.event.${event.type}`, { operation: t(`operation.${operation}`), kind: indexName(event.kind ?? ""), missing: formatNumber(missing), status: translationOr(`status.${status}`, status), from, to });
}

/** Return the reason of a failure, or an empty text. @param {HoldfastEvent} event */
function describeError(event) {
  const results = /** @type {{error?: string}[]} */ (Object.values(event.data.results ?? {}));
  const code = event.data.error ?? results.find((one) => one.error)?.error;
  return code ? explainCode(code) : "";
}
