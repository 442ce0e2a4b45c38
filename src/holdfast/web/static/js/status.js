// Paints status and progress into elements that the server rendered.

import { field } from "./html.js";
import { t, translationOr } from "./i18n.js";

export const UNSETTLED_STATUSES = new Set(["queued", "indexing", "deleting"]);

/**
 * @param {Element} within
 * @param {string} status
 * @param {string} [text] its name, if the catalogue has another one for this kind of item
 */
export function paintStatus(within, status, text = t(`status.${status}`)) {
  const chip = field(within, "status");
  if (!chip || chip.dataset.status === status) return;
  chip.dataset.status = status;
  chip.textContent = text;
}

/** Name the status of a job: a document is ready, a job has succeeded. @param {string} status */
export const jobStatusName = (status) => translationOr(`job_status.${status}`, t(`status.${status}`));

/**
 * Paint progress. The bar shows a share only if the total is known.
 * @param {Element} within
 * @param {Progress | null} progress
 */
export function paintProgress(within, progress) {
  const part = field(within, "progress");
  if (!part) return;
  part.hidden = !progress;
  if (!progress) return;
  const bar = /** @type {HTMLProgressElement} */ (part.querySelector("progress"));
  if (progress.share === null) bar.removeAttribute("value");
  else bar.value = progress.share;
  const stage = part.querySelector(".stage");
  if (stage) stage.textContent = describeStage(progress);
  part.title = progress.steps > 1 ? t("progress.step", { step: progress.step, steps: progress.steps }) : "";
}

/** @param {Progress} progress */
export function describeStage(progress) {
  const stage = translationOr(`stage.${progress.stage}`, progress.stage);
  return progress.total ? `${stage} ${t("progress.done", { done: progress.done, total: progress.total })}` : stage;
}

/**
 * Return the progress of a document from a message of the stream: that of its last active part.
 * @param {any} message
 * @returns {Progress | null}
 */
export function latestProgress(message) {
  const parts = Object.values(message.parts ?? {}).filter((one) => one.stage);
  if (!parts.length) return null;
  const one = parts[parts.length - 1];
  return { step: 0, steps: 0, done: 0, total: 0, ...one, share: one.share ?? (one.total ? one.done / one.total : null) };
}
