// How a document stands, painted into the parts that the server made.

import { field } from "./html.js";
import { t, translationOr } from "./i18n.js";

export const UNSETTLED_STATUSES = new Set(["queued", "indexing", "deleting"]);

/**
 * Paint the status of a document, job or index.
 * @param {Element} within
 * @param {string} status
 */
export function paintStatus(within, status) {
  const chip = field(within, "status");
  if (!chip || chip.dataset.status === status) return;
  chip.dataset.status = status;
  chip.textContent = t(`status.${status}`);
}

/**
 * Paint how far work is; a share only where a total is known.
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
 * Return how far a document is, from what the stream tells of its parts: the part that is furthest behind its end.
 * @param {any} told
 * @returns {Progress | null}
 */
export function latestProgress(told) {
  const parts = Object.values(told.parts ?? {}).filter((one) => one.stage);
  if (!parts.length) return null;
  const one = parts[parts.length - 1];
  return { step: 0, steps: 0, done: 0, total: 0, ...one, share: one.share ?? (one.total ? one.done / one.total : null) };
}
