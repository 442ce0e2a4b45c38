// The providers of each base, and their tests.

import { basePath, post } from "../api.js";
import { errorOf } from "../forms.js";
import { el, field, pageData } from "../html.js";
import { explainProblem, formatNumber, t } from "../i18n.js";
import { followEvents } from "../stream.js";

/** @typedef {{role: string, provider: string, model: string | null, ok: boolean, took_ms: number, message: string, code: string | null, params: Record<string, string>}} ProviderTestResult */

/** @param {ProviderTestResult} result */
function outcome(result) {
  if (!result.ok) return t("settings.trial_failed", { why: explainProblem({ code: result.code ?? "", message: result.message, params: result.params }) });
  if (result.provider === "none") return t("settings.trial_none");
  if (result.provider === "offline") return t("settings.trial_here");
  return t("settings.trial_ok", { took: t("settings.milliseconds", { count: formatNumber(result.took_ms) }) });
}

/** @param {ProviderTestResult} trial */
function probeRow(trial) {
  const who = trial.provider === "none" ? [] : [trial.provider === "offline" ? t("settings.this_machine") : trial.provider, trial.model].filter(Boolean);
  return el("li", { "data-ok": String(trial.ok) }, el("strong", {}, t(`settings.role_${trial.role}`)), who.length ? ` · ${who.join(" · ")}` : "", el("div", { class: trial.ok ? "fine" : "trouble" }, outcome(trial)));
}

/** @param {Element} panel @param {string} base @param {HTMLButtonElement} button */
async function test(panel, base, button) {
  if (button.getAttribute("aria-disabled")) return;
  const list = /** @type {HTMLElement} */ (field(panel, "trials"));
  button.setAttribute("aria-disabled", "true");
  list.replaceChildren(el("li", { class: "dim" }, t("settings.testing")));
  const why = await errorOf(async () => list.replaceChildren(...(await post(`${basePath(base)}/providers:test`)).map(probeRow)));
  if (why) list.replaceChildren(el("li", { class: "trouble" }, why));
  button.removeAttribute("aria-disabled");
}

for (const panel of document.querySelectorAll(".provider")) {
  const base = panel.getAttribute("data-base") ?? "";
  const why = pageData.scope === "admin" ? "" : t("disabled.scope");
  const name = t("settings.test_of", { name: base });
  const button = el("button", { type: "button", "aria-label": why ? `${name} (${why})` : name, title: why, "aria-disabled": why ? "true" : null, onclick: () => test(panel, base, button) }, t("settings.test"));
  field(panel, "tools")?.append(button);
}

/** Reload when bases change, unless the page shows test results. */
const reloadUnlessTested = () => document.querySelector(".trials li") || location.reload();
followEvents({ event: (event) => event.type.startsWith("base.") && reloadUnlessTested(), reset: reloadUnlessTested });
