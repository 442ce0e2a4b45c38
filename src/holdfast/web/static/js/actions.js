// The actions on a document: which are possible now, why others are not, and running them.

import { basePath, post, request } from "./api.js";
import { askConfirmation, showNotice, tryOrNotify } from "./dialog.js";
import { el, icon, pageData } from "./html.js";
import { explainReply, t } from "./i18n.js";
import { UNSETTLED_STATUSES } from "./status.js";

/** @typedef {string} Action "view", "download", or an operation that the server offers */

/** @type {Action[]} the operations on a document, as the server declares them */
export const OPERATIONS = pageData.operations ?? [];
/** @type {Record<Action, string>} */
const ICONS = { view: "eye", download: "download", index: "play", reindex: "redo", refresh: "refresh", cancel: "cancel", retry: "retry", delete: "trash" };
const CONTAINERS = new Set(["directory", "sitemap"]);

/**
 * Return the actions of a document; they depend on its kind.
 * @param {Doc} doc
 * @returns {Action[]}
 */
export function actionsOf(doc) {
  const sourced = CONTAINERS.has(doc.kind) || doc.kind === "url";
  return ["view", "download", ...OPERATIONS.filter((operation) => operation !== "refresh" || sourced)];
}

/**
 * Return why an action is not possible now, or null if it is.
 * @param {Action} action
 * @param {Doc} doc
 * @returns {string | null}
 */
export function whyDisabled(action, doc) {
  const active = UNSETTLED_STATUSES.has(doc.status);
  if (doc.status === "deleting" && !(action === "retry" && doc.why)) return t("disabled.deleting");
  if (action === "view") return null;
  if (action === "download") return doc.sha256 ? null : t("disabled.no_original");
  if (pageData.scope === "read") return t("disabled.scope");
  if (action === "delete" || doc.status === "deleting") return null;
  if (action === "cancel") return active ? null : t("disabled.resting");
  if (active) return t(doc.status !== "queued" ? "disabled.active" : pageData.paused ? "disabled.paused" : "disabled.queued");
  if (pageData.base_failed) return t("disabled.base_failed");
  const lacks = doc.status === "failed" || doc.status === "degraded" || doc.why?.code === "newer_cancelled";
  if (action === "index") return doc.status === "not_indexed" || lacks ? null : t("disabled.indexed");
  if (action === "reindex") return doc.status === "not_indexed" ? t("disabled.not_indexed") : null;
  if (action === "retry") return lacks ? null : t("disabled.not_failed");
  if (action === "refresh") return doc.source ? null : t("disabled.no_source");
  return null;
}

/**
 * Make the buttons of a document. A disabled button has the reason as its title.
 * @param {() => Doc} current returns the document at the time of a click
 * @param {(action: Action) => void} done
 */
export function actionButtons(current, done) {
  return actionsOf(current()).map((action) => {
    const button = el("button", { type: "button", class: "icon-button", "data-action": action, onclick: () => runAction(action, current(), done) }, icon(ICONS[action] ?? "play"));
    paintButton(button, current());
    return button;
  });
}

/**
 * Update the label of a button, and whether it is disabled.
 * @param {HTMLElement} button
 * @param {Doc} doc
 */
export function paintButton(button, doc) {
  const action = /** @type {Action} */ (button.dataset.action);
  const label = action === "refresh" && CONTAINERS.has(doc.kind) ? "rescan" : action;
  labelButton(button, t(`action.${label}`), doc.name, whyDisabled(action, doc));
}

/**
 * Label a button with its action and target, and disable it if there is a reason.
 * @param {HTMLElement} button
 * @param {string} name
 * @param {string} what
 * @param {string | null} reason
 */
export function labelButton(button, name, what, reason) {
  button.setAttribute("aria-label", `${t("pair", { name, value: what })}${reason ? ` (${reason})` : ""}`);
  button.title = reason ? t("pair", { name, value: reason }) : name;
  if (reason) button.setAttribute("aria-disabled", "true");
  else button.removeAttribute("aria-disabled");
}

/**
 * Run an action. Further clicks do nothing while a request for the same document is pending.
 * @param {Action} action
 * @param {Doc} doc
 * @param {(action: Action) => void} done
 */
export async function runAction(action, doc, done) {
  if (whyDisabled(action, doc) || pendingDocuments.has(doc.id)) return;
  const page = `/bases/${encodeURIComponent(doc.base)}/documents/${doc.id}`;
  if (action === "view") return location.assign(page);
  if (action === "download") return location.assign(`/api/v1${basePath(doc.base, "documents", doc.id, "original")}`);
  if (action === "delete" && !(await askConfirmation(t("confirm.delete", { name: doc.name }), t("action.delete"), { danger: true }))) return;
  pendingDocuments.add(doc.id);
  try {
    const reply = await tryOrNotify(() => (action === "delete" ? request("DELETE", basePath(doc.base, "documents", doc.id)) : post(`${basePath(doc.base, "documents", doc.id)}:${action}`)), doc.base);
    if (reply) {
      showNotice(explainReply(reply));
      done(action);
    }
  } finally {
    pendingDocuments.delete(doc.id);
  }
}

/** @type {Set<number>} */
const pendingDocuments = new Set();
