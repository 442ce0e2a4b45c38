// All bases: live counts, a new one, one from an archive, the repair of one that failed.

import { at, call, get, post } from "../api.js";
import { notice, tried } from "../dialog.js";
import { ask, boxes, labelled, ticked } from "../forms.js";
import { byId, data, el, field, icon } from "../html.js";
import { Listing, chip, count, iconButton, put } from "../listing.js";
import { follow } from "../stream.js";
import { known, number, t, told } from "../words.js";

/** @typedef {{id: number, name: string, status: string, problem: Problem | null, settings: any}} Base */
/** @typedef {{documents: number, bytes: number, by_status: Record<string, number>}} Counts */

const TOGETHER = 250; // milliseconds in which what happens is asked for together

/** @param {string} name */
const place = (name) => `/settings?base=${encodeURIComponent(name)}`;

/** @type {Listing<Base & {counts?: Counts}>} */
const listing = new Listing((row, base) => {
  put(row, "name", base.name);
  /** @type {HTMLAnchorElement} */ (field(row, "name")).href = place(base.name);
  put(row, "problem", told(base.problem));
  chip(row, base.status, t(`settings.base_${base.status}`));
  put(row, "indexes", base.settings.indexes.map((/** @type {string} */ kind) => known(`index.${kind}`, kind)).join(", "));
  if (base.counts) {
    count(row, "documents", base.counts.documents);
    count(row, "moving", (base.counts.by_status.queued ?? 0) + (base.counts.by_status.indexing ?? 0));
    count(row, "failed", base.counts.by_status.failed ?? 0);
    count(row, "size", base.counts.bytes);
  }
  const repairable = data.scope === "admin" && base.problem && base.problem.code !== "being_restored";
  row.querySelector(".acts")?.replaceChildren(...(repairable ? [iconButton("retry", t("settings.repair_of", { name: base.name }), () => repair(base.name))] : []));
});

/** @param {string} name */
async function repair(name) {
  if (await tried(() => post(`${at(name)}:repair`))) notice(t("settings.repaired", { name }));
}

// ---------------------------------------------------------------- live

/** @type {Set<number>} */
const stirred = new Set();
let waiting = 0;
let anew = false;

/** @param {boolean} all whether bases may have come, gone or changed their names */
function soon(all) {
  anew ||= all;
  waiting ||= setTimeout(refresh, TOGETHER);
}

async function refresh() {
  const all = anew;
  const ids = [...stirred];
  waiting = 0;
  anew = false;
  stirred.clear();
  const bases = all ? await tried(() => get("/bases")) : [...listing.items.values()].filter((one) => ids.includes(one.id));
  if (!bases) return;
  if (all) listing.show(bases.map((/** @type {Base} */ one) => ({ ...one, counts: listing.items.get(one.id)?.counts })));
  await Promise.all(bases.map(counted));
}

/** Ask how one base stands; one that is gone meanwhile is told of by its own event. @param {Base} base */
async function counted(base) {
  const [now, counts] = await Promise.all([get(at(base.name)), get(`${at(base.name)}/counts`)]).catch(() => [null, null]);
  if (now) listing.patch({ ...now, counts });
}

follow({
  event: (event) => {
    if (event.base !== null) stirred.add(Number(event.base));
    soon(["base.created", "base.renamed", "base.deleted"].includes(event.type));
  },
  reset: () => soon(true),
});

// ---------------------------------------------------------------- new ones

function create() {
  const name = el("input", { type: "text", required: true, maxlength: 200, autofocus: true, autocomplete: "off" });
  const indexes = boxes(t("settings.indexes"), "indexes", data.kinds.map((/** @type {string} */ kind) => [kind, known(`index.${kind}`, kind)]), ["vector", "fulltext"]);
  ask(t("settings.create"), [labelled(t("settings.name"), name), indexes, el("p", { class: "small dim" }, t("settings.create_hint"))], t("settings.create_do"), async () => {
    const made = await post("/bases", { name: name.value, indexes: ticked(indexes, "indexes") });
    location.assign(place(made.name));
  });
}

function restore() {
  const file = el("input", { type: "file", required: true, accept: ".zip,application/zip" });
  const name = el("input", { type: "text", maxlength: 200, autocomplete: "off" });
  const status = el("p", { class: "small", role: "status" });
  const fields = [labelled(t("settings.import_file"), file), labelled(t("settings.import_name"), name), el("p", { class: "small dim" }, t("settings.import_hint")), status];
  ask(t("settings.import"), fields, t("settings.import_do"), async () => {
    const archive = /** @type {FileList} */ (file.files)[0];
    status.textContent = t("settings.importing", { name: archive.name });
    const made = await call("POST", "/archives", { body: archive, query: { name: name.value } }).finally(() => (status.textContent = ""));
    notice(t("settings.imported", { documents: number(made.documents), base: made.base }), { link: { href: place(made.base), text: t("settings.open", { name: made.base }) } });
  });
}

if (data.everywhere) {
  byId("tools").hidden = false;
  byId("tools").append(
    el("button", { type: "button", class: "first", onclick: create }, icon("plus"), t("settings.create")),
    el("button", { type: "button", onclick: restore }, icon("upload"), t("settings.import")),
  );
}
listing.show(data.list);
