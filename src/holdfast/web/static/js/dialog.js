// Dialogs, and short notices in the corner.

import { ApiError, ServerUnreachable } from "./api.js";
import { byId, el, icon } from "./html.js";
import { explainProblem, t } from "./i18n.js";

const NOTICE_MS = 8000;

/**
 * Open a dialog. When it closes, the focus returns to where it was.
 * @param {string} title
 * @param {Node[]} body
 * @param {{buttons?: Node[], wide?: boolean}} [options]
 * @returns {HTMLDialogElement}
 */
export function openDialog(title, body, { buttons = [], wide = false } = {}) {
  const active = /** @type {HTMLElement | null} */ (document.activeElement);
  const before = active?.closest("details[data-picker]")?.querySelector("summary") ?? active; // a menu closes on use, so its summary gets the focus
  const close = el("button", { type: "button", class: "icon-button", "aria-label": t("close"), onclick: () => dialog.close() }, icon("close"));
  const heading = el("h2", { id: "dialog-title" }, title);
  const form = el("div", { class: "body" }, el("div", { class: "head" }, heading, el("span", { class: "gap" }), close), ...body);
  if (buttons.length) form.append(el("div", { class: "end" }, ...buttons));
  const dialog = el("dialog", { class: wide ? "wide" : null, "aria-labelledby": "dialog-title" }, form);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Ask for confirmation.
 * @param {string} question
 * @param {string} yes
 * @param {{danger?: boolean, no?: string}} [options]
 * @returns {Promise<boolean>}
 */
export function askConfirmation(question, yes, { danger = false, no = t("cancel") } = {}) {
  return new Promise((resolve) => {
    let confirmed = false;
    const cancel = el("button", { type: "button", autofocus: true, onclick: () => dialog.close() }, no);
    const ok = el("button", { type: "button", class: danger ? "danger" : "first", onclick: () => { confirmed = true; dialog.close(); } }, yes);
    const dialog = openDialog(yes, [el("p", {}, question)], { buttons: [cancel, ok] });
    dialog.addEventListener("close", () => resolve(confirmed));
  });
}

/**
 * Show a notice for some seconds.
 * @param {string | Node} text
 * @param {{bad?: boolean, link?: {href: string, text: string}}} [options]
 */
export function showNotice(text, { bad = false, link } = {}) {
  const body = el("div", {}, text, link ? el("div", {}, el("a", { href: link.href }, link.text)) : null);
  const close = el("button", { type: "button", class: "icon-button", "aria-label": t("dismiss"), onclick: () => toast.remove() }, icon("close"));
  const toast = el("div", { class: bad ? "toast bad" : "toast" }, body, close);
  byId("toasts").append(toast);
  setTimeout(() => toast.remove(), NOTICE_MS);
}

/**
 * Run a request. Its error becomes a notice, and the result undefined; an abort shows nothing.
 * @template T
 * @param {() => Promise<T>} work
 * @param {string} [base] the base of the document that a conflict names
 * @returns {Promise<T | undefined>}
 */
export async function tryOrNotify(work, base) {
  try {
    return await work();
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") return undefined;
    if (error instanceof ServerUnreachable) showNotice(t("problem.offline"), { bad: true });
    else if (error instanceof ApiError) showNotice(explainError(error), { bad: true, link: conflictLink(error, base) });
    else throw error;
    return undefined;
  }
}

/** @param {ApiError} error */
export function explainError(error) {
  return error.verdict ? explainProblem({ ...error, message: error.message, params: { status: t(`status.${error.state}`) } }, "reply") : explainProblem(error);
}

/** @param {ApiError} error @param {string} [base] */
function conflictLink(error, base) {
  if (base && error.document) return { href: `/bases/${encodeURIComponent(base)}/documents/${error.document}`, text: t("conflict.document") };
  if (error.job) return { href: `/queue#job-${encodeURIComponent(error.job)}`, text: t("conflict.job") };
  return undefined;
}
