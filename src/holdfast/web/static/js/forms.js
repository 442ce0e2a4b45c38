// Forms in dialogs. An error of the server is shown next to the fields, and the input stays.

import { ApiError, ServerUnreachable } from "./api.js";
import { explainError, openDialog } from "./dialog.js";
import { el, icon } from "./html.js";
import { t } from "./i18n.js";

/**
 * Open a form. The dialog stays open until `send` succeeds.
 * @param {string} title
 * @param {Node[]} fields
 * @param {string} yes
 * @param {() => Promise<unknown>} send
 * @param {{danger?: boolean, hindrance?: () => string}} [options] `hindrance` returns what is missing before the form can be sent
 */
export function openForm(title, fields, yes, send, { danger = false, hindrance = () => "" } = {}) {
  const trouble = el("p", { class: "trouble", role: "alert" });
  const ok = el("button", { type: "submit", class: danger ? "danger" : "first" }, yes);
  const cancel = el("button", { type: "button", onclick: () => dialog.close() }, t("cancel"));
  const form = el("form", {}, ...fields, trouble, el("div", { class: "end" }, cancel, ok));
  const dialog = openDialog(title, [form]);
  const judge = () => {
    const why = hindrance();
    if (why) ok.setAttribute("aria-disabled", "true");
    else ok.removeAttribute("aria-disabled");
    ok.title = why;
  };
  judge();
  form.addEventListener("input", judge);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    trouble.textContent = hindrance();
    if (hindrance() || form.inert) return;
    form.inert = true;
    const why = await errorOf(send);
    form.inert = false;
    if (!why) return dialog.close();
    trouble.textContent = why;
    /** @type {HTMLElement | null} */ (form.querySelector("input, select, textarea"))?.focus();
  });
  return dialog;
}

/**
 * Run a request and return its error as a text; empty if it succeeded.
 * @param {() => Promise<unknown>} work
 */
export async function errorOf(work) {
  try {
    await work();
    return "";
  } catch (error) {
    if (error instanceof ApiError) return explainError(error);
    if (error instanceof ServerUnreachable) return t("problem.offline");
    throw error;
  }
}

/**
 * Confirm an action that cannot be undone: the user has to type a name.
 * @param {string} title
 * @param {string} question
 * @param {string} name
 * @param {() => Promise<unknown>} send
 */
export function confirmByName(title, question, name, send) {
  const input = el("input", { type: "text", autofocus: true, autocomplete: "off", spellcheck: "false" });
  const fields = [el("p", {}, question), labelledField(t("settings.type_name", { name }), input)];
  return openForm(title, fields, title, send, { danger: true, hindrance: () => (input.value === name ? "" : t("settings.type_first")) });
}

/**
 * @param {string} text
 * @param {HTMLElement} input
 * @param {string} [hint]
 */
export const labelledField = (text, input, hint) => el("label", { class: "field" }, el("span", {}, text), input, hint ? el("span", { class: "small" }, hint) : null);

/**
 * @param {string} title
 * @param {string} name
 * @param {[value: string, text: string][]} options
 * @param {string[]} [ticked]
 */
export function checkboxGroup(title, name, options, ticked = []) {
  const lines = options.map(([value, text]) => el("label", {}, el("input", { type: "checkbox", name, value, checked: ticked.includes(value) }), " ", text));
  return el("fieldset", { class: "bare" }, el("legend", {}, title), el("div", { class: "ticks" }, ...lines));
}

/** @param {Element} within @param {string} name */
export const checkedValues = (within, name) => [...within.querySelectorAll(`input[name="${name}"]:checked`)].map((one) => /** @type {HTMLInputElement} */ (one).value);

/**
 * Make the fields that choose all bases or some of them; `value()` is null for all.
 * @param {string[]} names
 */
export function baseChoice(names) {
  const all = el("input", { type: "checkbox", checked: true });
  const some = checkboxGroup(t("settings.key_bases"), "bases", names.map((name) => [name, name]));
  some.hidden = true;
  all.addEventListener("change", () => (some.hidden = all.checked));
  return { fields: names.length ? [el("label", {}, all, " ", t("settings.key_all_bases")), some] : [], value: () => (all.checked ? null : checkedValues(some, "bases")) };
}

/**
 * Show a secret that cannot be shown again: neither a click outside nor Escape closes the dialog.
 * @param {string} title
 * @param {string} secret
 * @returns {Promise<void>} resolves when the dialog closes
 */
export function showSecret(title, secret) {
  const shown = el("input", { type: "text", class: "mono secret", readonly: true, value: secret, "aria-label": t("settings.secret"), autocomplete: "off", spellcheck: "false" });
  const copy = el("button", { type: "button", onclick: () => copyField(shown) }, icon("copy"), t("copy"));
  const kept = el("button", { type: "button", class: "first", onclick: () => dialog.close() }, t("settings.secret_kept"));
  const dialog = openDialog(title, [el("p", { class: "banner warn" }, t("settings.secret_once")), el("div", { class: "bar" }, shown, copy)], { buttons: [kept] });
  dialog.addEventListener("click", (event) => event.target === dialog && event.stopImmediatePropagation(), { capture: true });
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  shown.select();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve()));
}

/** Copy a field. If the browser forbids it, the text is selected. @param {HTMLInputElement} input */
async function copyField(input) {
  input.select();
  const done = await navigator.clipboard?.writeText(input.value).then(() => true, () => false);
  const message = t(done ? "copied" : "settings.copy_by_hand");
  const line = input.closest(".body")?.querySelector("[data-copied]") ?? el("p", { class: "small", role: "status", "data-copied": "" });
  line.textContent = message;
  input.closest(".bar")?.after(line);
}
