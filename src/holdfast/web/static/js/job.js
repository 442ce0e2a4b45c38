// One job in a dialog: what is known of it, why it has not ended, what came of each part.

import { get } from "./api.js";
import { show, tried } from "./dialog.js";
import { el } from "./html.js";
import { called } from "./jobs.js";
import { coded, date, known, number, t, told } from "./words.js";

/** Show a job. @param {string} id */
export async function details(id) {
  /** @type {Job | undefined} */
  const job = await tried(() => get(`/jobs/${encodeURIComponent(id)}`));
  if (!job) return;
  const results = Object.entries(job.results).map(([kind, one]) =>
    el("li", {}, `${known(`index.${kind}`, kind)}: ${known(`slot.${one.state}`, one.state)}`, one.missing ? `, ${t("queue.detail.missing", { count: number(one.missing) })}` : "", one.error ? ` (${coded(one.error)})` : ""));
  const lines = [
    ["queue.state", t(`status.${job.state}`)],
    ["base", job.base],
    ["queue.detail.id", el("span", { class: "mono" }, job.id)],
    ["queue.detail.cause", job.cause],
    ["queue.priority", number(job.priority)],
    ["queue.detail.generation", number(job.generation)],
    ["queue.detail.created", date(job.created_at)],
    job.finished_at ? ["queue.detail.finished", date(job.finished_at)] : null,
    job.waiting_for.length ? ["queue.detail.waiting", el("ul", {}, ...job.waiting_for.map((one) => el("li", {}, told(one, "waits"))))] : null,
    results.length ? ["queue.detail.results", el("ul", {}, ...results)] : null,
  ];
  const list = el("dl", { class: "facts" }, ...lines.filter((one) => one !== null).flatMap(([key, value]) => [el("dt", {}, t(/** @type {string} */ (key))), el("dd", {}, value)]));
  show(`${t(`queue.operation.${job.operation}`)}: ${called(job)}`, [list]);
}
