// The details of a job in a dialog: facts, why it waits, the result of each index.

import { get } from "./api.js";
import { openDialog, tryOrNotify } from "./dialog.js";
import { el } from "./html.js";
import { explainCode, explainProblem, formatDate, formatMilliseconds, formatNumber, formatSize, indexName, t, translationOr } from "./i18n.js";
import { jobTitle } from "./job-rows.js";
import { jobStatusName } from "./status.js";

/** @param {string} id */
export async function openJobDialog(id) {
  /** @type {Job | undefined} */
  const job = await tryOrNotify(() => get(`/jobs/${encodeURIComponent(id)}`));
  if (!job) return;
  const results = Object.entries(job.results).map(([kind, one]) => resultItem(kind, one));
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
    job.cost?.spent.texts ? ["queue.detail.paid", formatTokens(job.cost.spent)] : null,
    job.cost?.saved.texts ? ["queue.detail.saved", formatTokens(job.cost.saved)] : null,
  ];
  const list = el("dl", { class: "facts" }, ...lines.filter((one) => one !== null).flatMap(([key, value]) => [el("dt", {}, t(/** @type {string} */ (key))), el("dd", {}, value)]));
  openDialog(t("pair", { name: t(`operation.${job.operation}`), value: jobTitle(job) }), [list]);
}

/** @param {string} kind @param {JobResult} one */
function resultItem(kind, one) {
  const state = [translationOr(`slot.${one.state}`, one.state), one.missing ? t("queue.detail.missing", { count: formatNumber(one.missing) }) : ""];
  const made = one.written === undefined ? "" : t("queue.detail.rows", { written: formatNumber(one.written), kept: formatNumber(one.kept ?? 0), removed: formatNumber(one.removed ?? 0) });
  const used = one.cpu_ms === undefined ? "" : t("queue.detail.used", { attempts: formatNumber(one.attempts ?? 0), cpu: formatMilliseconds(one.cpu_ms), memory: formatSize((one.peak_kb ?? 0) * 1024) });
  const details = [one.error ? explainCode(one.error) : "", made, used].filter(Boolean);
  return el("li", {}, t("pair", { name: indexName(kind), value: state.filter(Boolean).join(t("list.separator")) }), ...details.map((text) => el("div", { class: "small dim" }, text)));
}

/** @param {UsageTotal} total */
function formatTokens(total) {
  const tokens = formatNumber(total.tokens_in + total.tokens_out);
  return total.price === null ? tokens : t("queue.detail.price", { tokens, price: total.price.toPrecision(4) });
}
