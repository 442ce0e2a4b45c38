// A passage with its surrounding text in a dialog; citations open it.

import { basePath, get } from "./api.js";
import { openDialog, tryOrNotify } from "./dialog.js";
import { el } from "./html.js";
import { t } from "./i18n.js";

/** @param {string} base @param {{document: number, chunk: number}} place */
export const passageHref = (base, place) => `/bases/${encodeURIComponent(base)}/documents/${place.document}?chunk=${place.chunk}#chunk-${place.chunk}`;

/**
 * Show a passage with its quote marked; without a quote, all of it.
 * @param {string} base
 * @param {{document: number, chunk: number, start?: number, end?: number, quote?: string}} place
 */
export async function openPassageDialog(base, place) {
  /** @type {PassageInContext | undefined} */
  const found = await tryOrNotify(() => get(`${basePath(base, "documents", place.document)}/passages/${place.chunk}`));
  if (!found) return;
  const letters = [...found.text];
  const first = Math.max(0, (place.start ?? found.start) - found.start);
  const last = Math.min(letters.length, (place.end ?? found.end) - found.start);
  const where = [...found.headings, ...(found.page ? [t("passage.page", { page: found.page })] : [])].join(" › ");
  const text = el("div", { class: "around", tabindex: 0, role: "region", "aria-label": found.name }, el("span", {}, found.before), letters.slice(0, first).join(""), el("mark", {}, letters.slice(first, last).join("")), letters.slice(last).join(""), el("span", {}, found.after));
  openDialog(t("passage.title", { name: found.name }), [el("p", { class: "small dim" }, where), text], { buttons: [el("a", { class: "button", href: passageHref(base, place) }, t("passage.open"))], wide: true });
  const mark = text.querySelector("mark");
  if (mark) text.scrollTop = mark.offsetTop - text.clientHeight / 5;
}
