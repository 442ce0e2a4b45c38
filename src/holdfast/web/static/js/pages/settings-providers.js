// Whom each base asks, and whether they answer.

import { at, post } from "../api.js";
import { refusal } from "../forms.js";
import { data, el, field } from "../html.js";
import { follow } from "../stream.js";
import { number, t, told } from "../words.js";

/** @typedef {{role: string, provider: string, model: string | null, ok: boolean, took_ms: number, message: string, code: string | null}} Trial */

/** Say what came of a trial. @param {Trial} trial */
function outcome(trial) {
  if (!trial.ok) return t("settings.trial_failed", { why: told({ code: trial.code ?? "", message: trial.message }) });
  if (trial.provider === "none") return t("settings.trial_none");
  if (trial.provider === "offline") return t("settings.trial_here");
  return t("settings.trial_ok", { took: t("settings.milliseconds", { count: number(trial.took_ms) }) });
}

/** @param {Trial} trial */
function line(trial) {
  const who = trial.provider === "none" ? [] : [trial.provider === "offline" ? t("settings.this_machine") : trial.provider, trial.model].filter(Boolean);
  return el("li", { "data-ok": String(trial.ok) }, el("strong", {}, t(`settings.role_${trial.role}`)), who.length ? ` · ${who.join(" · ")}` : "", el("div", { class: trial.ok ? "fine" : "trouble" }, outcome(trial)));
}

/** @param {Element} panel @param {string} base @param {HTMLButtonElement} button */
async function test(panel, base, button) {
  if (button.getAttribute("aria-disabled")) return;
  const list = /** @type {HTMLElement} */ (field(panel, "trials"));
  button.setAttribute("aria-disabled", "true");
  list.replaceChildren(el("li", { class: "dim" }, t("settings.testing")));
  const why = await refusal(async () => list.replaceChildren(...(await post(`${at(base)}/providers:test`)).map(line)));
  if (why) list.replaceChildren(el("li", { class: "trouble" }, why));
  button.removeAttribute("aria-disabled");
}

for (const panel of document.querySelectorAll(".provider")) {
  const base = panel.getAttribute("data-base") ?? "";
  const why = data.scope === "admin" ? "" : t("why.scope");
  const name = t("settings.test_of", { name: base });
  const button = el("button", { type: "button", "aria-label": why ? `${name} (${why})` : name, title: why, "aria-disabled": why ? "true" : null, onclick: () => test(panel, base, button) }, t("settings.test"));
  field(panel, "tools")?.append(button);
}

/** Show the bases anew when they change; but not what somebody is reading. */
const anew = () => document.querySelector(".trials li") || location.reload();
follow({ event: (event) => event.type.startsWith("base.") && anew(), reset: anew });
