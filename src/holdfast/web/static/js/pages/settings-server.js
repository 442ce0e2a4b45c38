// The doctor: its findings and repairs.

import { post } from "../api.js";
import { errorOf } from "../forms.js";
import { byId, el, icon, pageData } from "../html.js";
import { formatNumber, indexName, t } from "../i18n.js";

/** @typedef {{code: string, where: string, count: number, sentence: string, examples: string[], fixable: boolean, fixed: number, params: Record<string, string>}} Finding */

const deep = el("input", { type: "checkbox" });
const check = el("button", { type: "button", class: "first", onclick: () => run(false) }, icon("pulse"), t("settings.doctor_run"));
const fix = el("button", { type: "button", hidden: true, onclick: () => run(true) }, t("settings.doctor_fix"));
let busy = false;

/** @param {Finding} one */
function findingRow(one) {
  const state = one.fixed ? t("settings.doctor_fixed", { fixed: formatNumber(one.fixed), count: formatNumber(one.count) }) : t(one.fixable ? "settings.doctor_fixable" : "settings.doctor_manual");
  const chip = el("span", { class: "chip", "data-status": one.fixed >= one.count ? "success" : one.fixable ? "degraded" : "failed" }, state);
  const sentence = t(`finding.${one.code}`, { ...one.params, count: formatNumber(one.count), kind: indexName(one.params.kind ?? "") });
  return el("li", {}, el("p", {}, sentence, " ", chip), one.examples.length ? el("p", { class: "small mono break" }, one.examples.join(", ")) : null);
}

/** @param {boolean} repairing */
async function run(repairing) {
  if (busy) return;
  busy = true;
  const verdict = byId("verdict");
  verdict.hidden = false;
  verdict.className = "dim";
  verdict.textContent = t("settings.doctor_running");
  for (const one of [check, fix]) one.setAttribute("aria-disabled", "true");
  const why = await errorOf(async () => show(await post("/doctor", undefined, { fix: repairing || "", deep: deep.checked || "" })));
  for (const one of [check, fix]) one.removeAttribute("aria-disabled");
  busy = false;
  if (!why) return;
  verdict.className = "trouble";
  verdict.textContent = why;
}

/** @param {Finding[]} findings */
function show(findings) {
  const verdict = byId("verdict");
  verdict.className = findings.length ? "trouble" : "fine";
  verdict.textContent = findings.length ? t("settings.doctor_found", { count: formatNumber(findings.length) }) : t("settings.doctor_well");
  const list = byId("findings");
  list.hidden = !findings.length;
  list.replaceChildren(...findings.map(findingRow));
  fix.hidden = !findings.some((one) => one.fixable && one.fixed < one.count);
}

byId("live").remove(); // this page follows no events
if (pageData.everywhere) {
  byId("tools").hidden = false;
  byId("tools").append(el("label", { class: "small" }, deep, " ", t("settings.doctor_deep")), fix, check);
}
