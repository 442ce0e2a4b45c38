// All bases: live counts, create, import, repair.

import { basePath, get, post, request } from "../api.js";
import { showNotice, tryOrNotify } from "../dialog.js";
import { checkboxGroup, checkedValues, labelledField, openForm } from "../forms.js";
import { byId, el, field, icon, pageData, setText } from "../html.js";
import { explainProblem, formatNumber, indexName, t } from "../i18n.js";
import { KeyedTable, iconButton, setChip, setCount } from "../keyed-table.js";
import { coalesced, followEvents } from "../stream.js";

/** @typedef {{id: number, name: string, status: string, problem: Problem | null, settings: any}} Base */
/** @typedef {{documents: number, bytes: number | null, by_status: Record<string, number>, more: string[]}} Counts */

/** @param {string} name */
const place = (name) => `/settings?base=${encodeURIComponent(name)}`;

/** @type {KeyedTable<Base & {counts?: Counts}>} */
const table = new KeyedTable((row, base) => {
  setText(row, "name", base.name);
  /** @type {HTMLAnchorElement} */ (field(row, "name")).href = place(base.name);
  setText(row, "problem", explainProblem(base.problem), { hide: true });
  setChip(row, base.status, t(`settings.base_${base.status}`));
  setText(row, "indexes", base.settings.indexes.map(indexName).join(t("list.separator")));
  if (base.counts) {
    const { by_status: counts, more } = base.counts;
    setCount(row, "documents", base.counts.documents, more.length > 0);
    setCount(row, "moving", (counts.queued ?? 0) + (counts.indexing ?? 0), more.includes("queued") || more.includes("indexing"));
    setCount(row, "failed", counts.failed ?? 0, more.includes("failed"));
    setCount(row, "size", base.counts.bytes);
  }
  const repairable = pageData.scope === "admin" && base.problem && base.problem.code !== "being_restored";
  row.querySelector(".acts")?.replaceChildren(...(repairable ? [iconButton("retry", t("settings.repair_of", { name: base.name }), () => repair(base.name))] : []));
});

/** @param {string} name */
async function repair(name) {
  if (await tryOrNotify(() => post(`${basePath(name)}:repair`))) showNotice(t("settings.repaired", { name }));
}

/** @type {Set<number>} */
const changedIds = new Set();
const schedule = coalesced(refresh);
let reloadAll = false;

/** @param {boolean} all whether bases may have been added, deleted or renamed */
function scheduleRefresh(all) {
  reloadAll ||= all;
  schedule();
}

async function refresh() {
  const all = reloadAll;
  const ids = [...changedIds];
  reloadAll = false;
  changedIds.clear();
  const bases = all ? await tryOrNotify(() => get("/bases")) : [...table.items.values()].filter((one) => ids.includes(one.id));
  if (!bases) return;
  if (all) table.show(bases.map((/** @type {Base} */ one) => ({ ...one, counts: table.items.get(one.id)?.counts })));
  await Promise.all(bases.map(loadCounts));
}

/** Load a base and its counts. A deleted base is ignored: its own event reloads the list. @param {Base} base */
async function loadCounts(base) {
  const [now, counts] = await Promise.all([get(basePath(base.name)), get(`${basePath(base.name)}/counts`)]).catch(() => [null, null]);
  if (now) table.patch({ ...now, counts });
}

followEvents({
  event: (event) => {
    if (event.base !== null) changedIds.add(Number(event.base));
    scheduleRefresh(["base.created", "base.renamed", "base.deleted"].includes(event.type));
  },
  reset: () => scheduleRefresh(true),
});

function create() {
  const name = el("input", { type: "text", required: true, maxlength: 200, autofocus: true, autocomplete: "off" });
  const indexes = checkboxGroup(t("settings.indexes"), "indexes", pageData.kinds.map((/** @type {string} */ kind) => [kind, indexName(kind)]), ["vector", "fulltext"]);
  openForm(t("settings.create"), [labelledField(t("settings.name"), name), indexes, el("p", { class: "small dim" }, t("settings.create_hint"))], t("settings.create_do"), async () => {
    const made = await post("/bases", { name: name.value, indexes: checkedValues(indexes, "indexes") });
    location.assign(place(made.name));
  });
}

function restore() {
  const file = el("input", { type: "file", required: true, accept: ".zip,application/zip" });
  const name = el("input", { type: "text", maxlength: 200, autocomplete: "off" });
  const status = el("p", { class: "small", role: "status" });
  const fields = [labelledField(t("settings.import_file"), file), labelledField(t("settings.import_name"), name), el("p", { class: "small dim" }, t("settings.import_hint")), status];
  openForm(t("settings.import"), fields, t("settings.import_do"), async () => {
    const archive = /** @type {FileList} */ (file.files)[0];
    status.textContent = t("settings.importing", { name: archive.name });
    const made = await request("POST", "/archives", { body: archive, query: { name: name.value } }).finally(() => (status.textContent = ""));
    showNotice(t("settings.imported", { documents: formatNumber(made.documents), base: made.base }), { link: { href: place(made.base), text: t("settings.open", { name: made.base }) } });
  });
}

if (pageData.everywhere) {
  byId("tools").hidden = false;
  byId("tools").append(
    el("button", { type: "button", class: "first", onclick: create }, icon("plus"), t("settings.create")),
    el("button", { type: "button", onclick: restore }, icon("upload"), t("settings.import")),
  );
}
table.show(pageData.list);
