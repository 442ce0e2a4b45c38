// The passages that indexes of a document lack: which, why, and where they stand in the text.

import { at, get } from "./api.js";
import { byId, field, put } from "./html.js";
import { known, number, t, told } from "./words.js";

/**
 * Load and paint what is missing; where nothing is, nothing is asked for.
 * @param {string} base
 * @param {Doc} doc
 */
export async function loadMissing(base, doc) {
  const count = doc.indexes.reduce((sum, one) => sum + one.missing, 0);
  /** @type {Missing[] | null} */
  const found = count ? await get(`${at(base, "documents", doc.id)}/missing`).catch(() => null) : [];
  if (!found) return;
  byId("missing").tBodies[0].replaceChildren(...found.map(rowOf));
  byId("lacking").hidden = !found.length;
  const more = byId("more-missing");
  more.hidden = count <= found.length;
  more.textContent = t("document.more_missing", { count: number(count - found.length) });
}

/** @param {Missing} one */
function rowOf(one) {
  const row = /** @type {HTMLElement} */ (byId("missing-row").content.firstElementChild.cloneNode(true));
  put(row, "index", known(`index.${one.index}`, one.index));
  put(row, "passage", t("document.nth_passage", { number: one.ordinal + 1 }));
  put(row, "text", one.text);
  put(row, "why", told(one.problem));
  /** @type {HTMLAnchorElement} */ (field(row, "passage")).href = `?chunk=${one.chunk}#chunk-${one.chunk}`;
  return row;
}
