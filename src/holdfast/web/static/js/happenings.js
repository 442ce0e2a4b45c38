// The history of all that happened: the newest on top, live.

import { get } from "./api.js";
import { byId, data, el, field, put } from "./html.js";
import { forget, showDocument } from "./naming.js";
import { Newest } from "./newest.js";
import { follow } from "./stream.js";
import { coded, known, number, short, t } from "./words.js";

const AWAY = 120; // pixels from the top, beyond which new rows would move what is being read

/** Show the history, and what comes to it. */
export function happenings() {
  const { base, topic, cursor } = data.asked;
  /** @type {Newest<HoldfastEvent>} */
  const list = new Newest("/events", { base, topic }, fill);
  /** @type {HoldfastEvent[]} what came and is not shown yet, newest first */
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
  addEventListener("scroll", () => held.length && !cursor && scrollY <= AWAY && release());

  follow(
    {
      event: async (event) => {
        if (event.type.startsWith("base.")) await rename();
        if (event.document !== null && event.type.startsWith("document.") && event.type !== "document.status") noted(event);
        if (topic && !event.type.startsWith(`${topic}.`)) return;
        held = [event, ...held];
        if (!cursor && scrollY <= AWAY) return release();
        button.hidden = false;
        button.textContent = t("activity.new", { count: number(held.length) });
      },
      reset: () => location.reload(),
    },
    base ? { base } : {},
  );
}

/** @param {HoldfastEvent} event */
function noted(event) {
  if (event.type === "document.deleted" || event.type === "document.removed") forget(/** @type {number} */ (event.document));
}

/** Learn what bases are called now. */
async function rename() {
  const found = await get("/bases").catch(() => null);
  if (found) data.bases = Object.fromEntries(found.map((/** @type {{id: number, name: string}} */ one) => [one.id, one.name]));
}

/** @param {HTMLTableRowElement} row @param {HoldfastEvent} event */
function fill(row, event) {
  const base = event.base === null ? undefined : data.bases[event.base];
  field(row, "at")?.setAttribute("datetime", event.at);
  put(row, "sentence", sentence(event));
  put(row, "error", error(event));
  showDocument(/** @type {HTMLElement} */ (field(row, "about")), base, event.document);
  put(row, "base", base ? el("a", { href: `/bases/${encodeURIComponent(base)}/documents` }, base) : event.base !== null ? el("span", { class: "dim" }, t("activity.gone_base", { id: event.base })) : event.type.startsWith("queue.") ? t("activity.whole_queue") : "");
  put(row, "job", event.job ? el("a", { class: "mono", href: `/queue#job-${encodeURIComponent(event.job)}`, title: event.job }, short(event.job)) : "");
  put(row, "who", event.data.requester === undefined ? "" : event.data.requester || t("queue.nobody"));
}

/** What happened, in a few words. @param {HoldfastEvent} event */
function sentence(event) {
  if (known(`activity.event.${event.type}`, "") === "") return event.type;
  const { operation = "index", missing = 0, status = "", from = "", to = "" } = event.data;
  return t(`activity.event.${event.type}`, { operation: t(`queue.operation.${operation}`), kind: known(`index.${event.kind}`, event.kind ?? ""), missing: number(missing), status: known(`status.${status}`, status), from, to });
}

/** Why it went wrong, if it did. @param {HoldfastEvent} event */
function error(event) {
  const results = /** @type {{error?: string}[]} */ (Object.values(event.data.results ?? {}));
  const code = event.data.error ?? results.find((one) => one.error)?.error;
  return code ? coded(code) : "";
}
