// The details of a job in a dialog: facts, why it waits, the result of each index.

import { get } from "./api.js";
import { openDialog, tryOrNotify } from "./dialog.js";
import { el } from "./html.js";
import { explainCode, explainProblem, formatDate, formatNumber, indexName, t, translationOr } from "./i18n.js";
import { jobTitle } from "./job-rows.js";
import { jobStatusName } from "./status.js";

/** @param {string} id */
export async function openJobDialog(id) {
  /** @type {Job | undefined} */
  const job = await tryOrNotify(() => get(`/jobs/${encodeURIComponent(id)}`));
  if (!job) return;
  const results = Object.entries(job.results).map(([kind, one]) =>
    el("li", {}, t("pair", { name: indexName(kind), value: [translationOr(`slot.${one.state}`, one.state), one.missing ? t("queue.detail.missing", { count: formatNumber(one.missing) }) : ""].filter(Boolean).join(t("list.separator")) }), one.error ? el("div", { class: "small dim" }, explainCode(one.error)) : ""));
  const lines = [
    ["queue.status", jobStatusName(job.state)],
    ["base", job.base],
    ["queue.detail.id", el("span", { class: "mono" }, job.id)],
    ["queue.detail.cause", translationOr(`cause.${job.cause}`, job.cause)],
    ["queue.priority", formatNumber(job.priority)],
    ["queue.detail.generation", formatNumber(job.generation)],
    ["queue.detail.created", formatDate(job.created_at)],
    job.finished_at ? ["queue.detail.finished", formatDate(job.finished_at)] : null,
    job.waiting_for.length ? ["queue.detail.waiting", el("ul", {}, ...job.waiting_for.map((one) => el("li", {}, explainProblem(one, "waits"))))] : null,
    results.length ? ["queue.detail.results", el("ul", {}, ...results)] : null,
  ];
  const list = el("dl", { class: "facts" }, ...lines.filter((one) => one !== null).flatMap(([key, value]) => [el("dt", {}, t(/** @type {string} */ (key))), el("dd", {}, value)]));
  openDialog(t("pair", { name: t(`operation.${job.operation}`), value: jobTitle(job) }), [list]);
}
