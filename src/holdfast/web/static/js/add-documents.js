// Adds documents: dropped or chosen files and folders, notes, web pages, sitemaps, folders of the server.

import { ApiError, basePath, encodeQuery, inParallel, post } from "./api.js";
import { explainError, openDialog, showNotice, tryOrNotify } from "./dialog.js";
import { byId, el, icon, pageData } from "./html.js";
import { explainReply, formatNumber, formatPercent, t } from "./i18n.js";

/** @typedef {{file: File, name: string}} Chosen */

/**
 * Show the controls that add documents to a base.
 * @param {string} base
 * @param {number | null} parent
 * @param {() => void} added
 */
export function offerAdding(base, parent, added) {
  const bar = byId("adding");
  if (!bar || pageData.scope === "read") return;
  bar.hidden = false;
  const files = el("input", { type: "file", multiple: true, hidden: true, "aria-label": t("documents.upload"), onchange: () => take(files) });
  const folder = el("input", { type: "file", webkitdirectory: true, hidden: true, "aria-label": t("documents.upload_folder"), onchange: () => take(folder) });
  /** @param {HTMLInputElement} input */
  const take = (input) => {
    upload(base, parent, [...(input.files ?? [])].map((file) => ({ file, name: file.webkitRelativePath || file.name })), added);
    input.value = "";
  };
  const other = [["note", "note"], ["url", "url"], ["sitemap", "sitemap"], ...(pageData.scope === "admin" ? [["folder", "directory"]] : [])];
  const menu = el("details", { class: "picker from-end", "data-picker": "" }, el("summary", {}, t("documents.add")),
    el("ul", {}, el("li", {}, menuItem("folder-plus", "documents.upload_folder", () => folder.click())), ...other.map(([name, kind]) => el("li", {}, menuItem(kind, `documents.add_${name}`, () => askForSource(base, parent, name, kind, added))))));
  bar.append(files, folder, el("button", { type: "button", class: "first", id: "upload", onclick: () => files.click() }, icon("upload"), t("documents.upload")), menu);
  acceptDrops(base, parent, added);
}

/** @param {string} name @param {string} text @param {() => void} used */
const menuItem = (name, text, used) => el("button", { type: "button", class: "plain", onclick: used }, icon(name), t(text));

/** @param {string} base @param {number | null} parent @param {() => void} added */
function acceptDrops(base, parent, added) {
  const zone = byId("main");
  byId("drop").dataset.drop = t("documents.drop", { base });
  let depth = 0;
  /** @param {boolean} on */
  const over = (on) => byId("drop").classList.toggle("over", on);
  zone.addEventListener("dragenter", (/** @type {DragEvent} */ event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    over(++depth > 0);
  });
  zone.addEventListener("dragleave", () => over((depth = Math.max(0, depth - 1)) > 0));
  zone.addEventListener("dragover", (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files") && event.preventDefault());
  zone.addEventListener("drop", async (/** @type {DragEvent} */ event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    over((depth = 0) > 0);
    upload(base, parent, await readDroppedFiles(event.dataTransfer), added);
  });
}

/**
 * Return the dropped files, also those in folders.
 * @param {DataTransfer} transfer
 * @returns {Promise<Chosen[]>}
 */
async function readDroppedFiles(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((one) => one !== null && one !== undefined);
  if (!entries.length) return [...transfer.files].map((file) => ({ file, name: file.name }));
  return (await Promise.all(entries.map((entry) => readEntry(entry, "")))).flat();
}

/** @param {FileSystemEntry} entry @param {string} path @returns {Promise<Chosen[]>} */
async function readEntry(entry, path) {
  const name = path + entry.name;
  if (entry.isFile) {
    const file = await new Promise((resolve, reject) => /** @type {FileSystemFileEntry} */ (entry).file(resolve, reject));
    return [{ file, name }];
  }
  const reader = /** @type {FileSystemDirectoryEntry} */ (entry).createReader();
  /** @type {Chosen[]} */
  const found = [];
  for (;;) {
    /** @type {FileSystemEntry[]} */
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!some.length) return found;
    for (const one of some) found.push(...(await readEntry(one, `${name}/`)));
  }
}

/**
 * Send files, a few at a time. Each has a row with its progress and its result, such as a duplicate.
 * @param {string} base
 * @param {number | null} parent
 * @param {Chosen[]} chosen
 * @param {() => void} added
 */
export async function upload(base, parent, chosen, added) {
  if (!chosen.length) return;
  const list = uploadList();
  const uploads = chosen.map((one) => ({ ...one, row: uploadRow(one.name) }));
  list.append(...uploads.map((one) => one.row));
  showUploadCounts(list);
  await inParallel(uploads, async ({ file, name, row }) => {
    await sendFile(base, parent, file, name, row);
    if (row.dataset.result === "refused") list.prepend(row); // the list scrolls: failures stay in sight
    showUploadCounts(list);
    added();
  });
}

/** Return the list of uploads; the first call makes it. @returns {HTMLUListElement} */
function uploadList() {
  const there = byId("uploads");
  if (there) return there;
  const list = el("ul", { id: "uploads", class: "uploads", tabindex: 0, "aria-label": t("documents.uploads") });
  const close = el("button", { type: "button", class: "icon-button", "aria-label": t("dismiss"), onclick: () => panel.remove() }, icon("close"));
  const panel = el("section", { class: "panel", "aria-label": t("documents.uploads") }, el("div", { class: "head" }, el("h2", {}, t("documents.uploads")), el("span", { id: "uploaded", class: "small dim number", role: "status" }), el("span", { class: "gap" }), close), list);
  byId("drop").before(panel);
  return list;
}

/** Show how many files are done, and how many failed. @param {HTMLUListElement} list */
function showUploadCounts(list) {
  const ended = [...list.children].map((one) => /** @type {HTMLElement} */ (one).dataset.result).filter(Boolean);
  const refusals = ended.filter((one) => one === "refused").length;
  const parts = [t("documents.uploads_done", { done: formatNumber(ended.length), total: formatNumber(list.children.length) }), refusals ? t("documents.uploads_failed", { count: formatNumber(refusals) }) : ""];
  const shown = list.closest("section")?.querySelector("#uploaded"); // the panel may be closed and out of the page
  if (shown) shown.textContent = parts.filter(Boolean).join(" · ");
}

/** @param {string} name */
const uploadRow = (name) => el("li", {}, el("span", { class: "clip", title: name, "data-field": "what" }, name), el("progress", { max: 1, value: 0, "aria-label": t("documents.uploading", { name }) }), el("span", { class: "small dim", "data-field": "result" }));

/**
 * Send one file. `fetch` reports no upload progress, so this uses XMLHttpRequest.
 * @param {string} base
 * @param {number | null} parent
 * @param {File} file
 * @param {string} name
 * @param {HTMLElement} shown
 * @returns {Promise<void>}
 */
function sendFile(base, parent, file, name, shown) {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    const bar = shown.querySelector("progress");
    request.open("POST", `/api/v1${basePath(base, "documents")}${encodeQuery({ name, parent })}`);
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = (event) => {
      if (bar && event.lengthComputable) bar.value = event.loaded / event.total;
      bar?.setAttribute("aria-valuetext", formatPercent(bar.value));
    };
    request.onloadend = () => {
      bar?.remove();
      showUploadResult(base, name, shown, request);
      resolve();
    };
    request.send(file);
  });
}

/** @param {string} base @param {string} name @param {HTMLElement} shown @param {XMLHttpRequest} request */
function showUploadResult(base, name, shown, request) {
  const result = /** @type {HTMLElement} */ (shown.querySelector('[data-field="result"]'));
  const accepted = request.status >= 200 && request.status < 300;
  shown.dataset.result = accepted ? "added" : "refused";
  if (!request.status) return result.append(t("documents.not_sent"));
  const answer = JSON.parse(request.responseText || "{}");
  const found = accepted ? answer.replies[0].document : answer.document;
  const why = accepted ? "" : explainError(new ApiError(answer));
  result.append(accepted ? t("documents.uploaded") : answer.status === 409 ? t("documents.duplicate", { name, why }) : why);
  if (found) result.append(" ", el("a", { href: `/bases/${encodeURIComponent(base)}/documents/${found}` }, t("conflict.document")));
}

/**
 * Open the form for a note, a web page, a sitemap or a folder of the server.
 * @param {string} base
 * @param {number | null} parent
 * @param {string} name
 * @param {string} kind
 * @param {() => void} added
 */
function askForSource(base, parent, name, kind, added) {
  const note = name === "note";
  const first = el("input", { type: name === "url" || name === "sitemap" ? "url" : "text", required: true, maxlength: 1000, autofocus: true, placeholder: note || name === "folder" ? "" : "https://" });
  const text = el("textarea", { required: true, rows: 10 });
  const label = note ? "documents.note_name" : name === "folder" ? "documents.folder_path" : "documents.address";
  const form = el("form", {}, el("label", { class: "field" }, el("span", {}, t(label)), first), note ? el("label", { class: "field" }, el("span", {}, t("documents.note_text")), text) : null,
    el("div", { class: "end" }, el("button", { type: "submit", class: "first" }, t("documents.add"))));
  const dialog = openDialog(t(`documents.add_${name}`), [form]);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const path = basePath(base, "documents");
    const done = await tryOrNotify(() => (note ? post(`${path}/notes`, { name: first.value, text: text.value, parent }) : post(`${path}/sources`, { kind, source: first.value })), base);
    if (!done) return;
    dialog.close();
    showNotice(explainReply(done.replies[0]));
    added();
  });
}
