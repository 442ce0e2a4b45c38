// Requests that started no new work: requester, reason and avoided cost.

import { get } from "./api.js";
import { showDocumentName } from "./document-names.js";
import { byId, el, field, pageData, setContent } from "./html.js";
import { formatNumber, t, translationOr } from "./i18n.js";
import { NewestFirstTable } from "./newest-first-table.js";
import { coalesced, followEvents } from "./stream.js";

/** Show refused requests. They cause no event, so every other event reloads the list. */
export function startDuplicateList() {
  const { base, cursor } = pageData.asked;
  const list = new NewestFirstTable("/duplicates", { base }, fillRow);
  const scheduleLoad = coalesced(async () => {
    if (!cursor) list.show(await list.loadNewest());
    paintCounts(await get("/duplicates/counts", { base }).catch(() => null));
  });
  followEvents({ event: scheduleLoad, reset: scheduleLoad }, base ? { base } : {});
  document.addEventListener("visibilitychange", () => document.hidden || scheduleLoad());
  addEventListener("focus", scheduleLoad);
}

/** @param {HTMLTableRowElement} row @param {any} one */
function fillRow(row, one) {
  const about = /** @type {HTMLElement} */ (field(row, "about"));
  field(row, "at")?.setAttribute("datetime", one.at);
  setContent(row, "who", one.requester || t("queue.this_machine"));
  setContent(row, "operation", t(`operation.${one.operation}`));
  if (one.document) showDocumentName(about, one.base, one.document);
  else about.textContent = translationOr(`queue.subject.${one.subject}`, one.subject);
  setContent(row, "base", one.base ? el("a", { href: `/bases/${encodeURIComponent(one.base)}/documents` }, one.base) : "");
  setContent(row, "reason", translationOr(`activity.reason.${one.reason}`, one.reason));
  setContent(row, "job", one.job ? el("a", { href: `/queue#job-${encodeURIComponent(one.job)}` }, t("activity.the_job")) : "");
  setContent(row, "cost", formatCost(one.cost));
}

/** @param {any[] | null} counts */
function paintCounts(counts) {
  if (!counts) return;
  byId("counted").hidden = !counts.length;
  byId("counts").tBodies[0].replaceChildren(
    ...counts.map((one) =>
      el("tr", {}, el("td", {}, one.base), el("td", {}, one.requester || t("queue.this_machine")), el("td", {}, translationOr(`activity.reason.${one.reason}`, one.reason)),
        el("td", { class: "end number" }, formatNumber(one.count)), el("td", { class: "end number" }, formatCost(one.cost)))),
  );
}

/** @param {number} value */
const formatCost = (value) => (value ? formatNumber(value) : t("activity.cost_unknown"));
