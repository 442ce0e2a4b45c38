// Requests that made no new work: who asked, what stood in the way, what that would have cost.

import { get } from "./api.js";
import { byId, data, el, field, put } from "./html.js";
import { showDocument } from "./naming.js";
import { Newest } from "./newest.js";
import { follow } from "./stream.js";
import { known, number, t } from "./words.js";

const SETTLE = 240; // milliseconds in which what happens is asked for together

/** Show refusals, and look for new ones whenever something happens: a refusal itself is no event. */
export function refusals() {
  const { base, cursor } = data.asked;
  const list = new Newest("/duplicates", { base }, fill);
  let waiting = 0;
  const load = async () => {
    waiting = 0;
    if (!cursor) list.show(await list.load());
    count(await get("/duplicates/counts", { base }).catch(() => null));
  };
  const soon = () => {
    waiting ||= setTimeout(load, SETTLE);
  };
  follow({ event: soon, reset: soon }, base ? { base } : {});
  document.addEventListener("visibilitychange", () => document.hidden || soon());
  addEventListener("focus", soon);
}

/** @param {HTMLTableRowElement} row @param {any} one */
function fill(row, one) {
  const about = /** @type {HTMLElement} */ (field(row, "about"));
  field(row, "at")?.setAttribute("datetime", one.at);
  put(row, "who", one.requester || t("queue.nobody"));
  put(row, "operation", t(`queue.operation.${one.operation}`));
  if (one.document) showDocument(about, one.base, one.document);
  else about.textContent = known(`queue.subject.${one.subject}`, one.subject);
  put(row, "base", one.base ? el("a", { href: `/bases/${encodeURIComponent(one.base)}/documents` }, one.base) : "");
  put(row, "reason", known(`activity.reason.${one.reason}`, one.reason));
  put(row, "job", one.job ? el("a", { href: `/queue#job-${encodeURIComponent(one.job)}` }, t("activity.the_job")) : "");
  put(row, "cost", cost(one.cost));
}

/** @param {any[] | null} counts */
function count(counts) {
  if (!counts) return;
  byId("counted").hidden = !counts.length;
  byId("counts").tBodies[0].replaceChildren(
    ...counts.map((one) =>
      el("tr", {}, el("td", {}, one.base), el("td", {}, one.requester || t("queue.nobody")), el("td", {}, known(`activity.reason.${one.reason}`, one.reason)),
        el("td", { class: "end number" }, number(one.count)), el("td", { class: "end number" }, cost(one.cost)))),
  );
}

/** @param {number} value */
const cost = (value) => (value ? number(value) : t("activity.cost_unknown"));
