// API keys: create, show once, revoke. The first key locks the server, so this browser is signed in with it.

import { get, post, request } from "../api.js";
import { askConfirmation, showNotice, tryOrNotify } from "../dialog.js";
import { baseChoice, labelledField, openForm, showSecret } from "../forms.js";
import { byId, el, field, icon, pageData, setText } from "../html.js";
import { t } from "../i18n.js";
import { KeyedTable, setChip, setTime } from "../keyed-table.js";

/** @typedef {{id: number, name: string, prefix: string, scope: string, bases: string[] | null, created_at: string, expires_at: string | null, revoked_at: string | null, used_at: string | null}} Key */

const POLL_MS = 15_000;
const SCOPES = ["read", "write", "admin"];

/** @param {Key} key */
const expired = (key) => key.expires_at !== null && new Date(key.expires_at).getTime() <= Date.now();

/** @param {Key} key */
const isUsable = (key) => !key.revoked_at && !expired(key);

/** @param {HTMLTableRowElement} row @param {Key} key */
function paint(row, key) {
  setText(row, "name", key.name);
  setText(row, "prefix", `hf_${key.prefix}…`);
  setText(row, "scope", t(`settings.scope_${key.scope}`));
  setText(row, "bases", key.bases === null ? t("all") : key.bases.join(", ") || t("none"));
  setTime(row, "expires", key.expires_at, t("settings.never"));
  setTime(row, "used", key.used_at, t("settings.never"));
  const mine = field(row, "mine");
  if (mine) mine.hidden = key.id !== pageData.me;
  setChip(row, isUsable(key) ? "ready" : "failed", t(`settings.key_${key.revoked_at ? "revoked" : expired(key) ? "expired" : "valid"}`));
  const why = key.revoked_at ? t("settings.revoked_already") : "";
  const label = t("settings.revoke_of", { name: key.name });
  row.querySelector(".acts")?.replaceChildren(
    el("button", { type: "button", class: "danger", "aria-label": why ? `${label} (${why})` : label, title: why, "aria-disabled": why ? "true" : null, onclick: () => why || revoke(key, table) }, t("settings.revoke")),
  );
}

/** @type {KeyedTable<Key>} */
let table;

async function load() {
  const keys = await tryOrNotify(() => get("/keys"));
  if (keys) table.show(keys);
}

/** @param {Key} key @param {KeyedTable<Key>} list */
async function revoke(key, list) {
  const others = [...list.items.values()].filter((one) => one.id !== key.id && isUsable(one) && one.scope === "admin" && one.bases === null);
  const question = [t("settings.revoke_sure", { name: key.name }), key.id === pageData.me ? t("settings.revoke_mine") : "", isUsable(key) && key.scope === "admin" && !others.length ? t("settings.revoke_last") : ""];
  if (!(await askConfirmation(question.filter(Boolean).join(" "), t("settings.revoke"), { danger: true }))) return;
  if (!(await tryOrNotify(() => request("DELETE", `/keys/${key.id}`)))) return;
  showNotice(t("settings.revoked", { name: key.name }));
  load();
}

function create() {
  const first = table.items.size === 0;
  const name = el("input", { type: "text", required: true, maxlength: 200, autofocus: true, autocomplete: "off" });
  const scope = el("select", {}, ...(first ? ["admin"] : SCOPES).map((one) => el("option", { value: one }, t(`settings.scope_${one}`))));
  const days = el("input", { type: "number", min: 1, max: 36500 });
  const bases = baseChoice(first ? [] : Object.values(pageData.bases));
  const fields = [
    first ? el("p", { class: "banner warn" }, t("settings.key_first")) : "",
    labelledField(t("settings.name"), name),
    labelledField(t("settings.key_scope"), scope, first ? t("settings.key_first_scope") : ""),
    labelledField(t("settings.key_days"), days),
    ...bases.fields,
  ];
  openForm(t("settings.key_new"), fields.filter((one) => one instanceof Node), t("settings.key_create"), async () => {
    const wanted = { name: name.value, scope: scope.value, bases: bases.value(), days: days.value ? Number(days.value) : null };
    const made = await post("/keys", wanted);
    if (first) await post("/session", { key: made.secret });
    showSecret(t("settings.key_made", { name: made.key.name }), made.secret).then(() => (first ? location.reload() : load()));
  });
}

byId("live").remove(); // keys cause no events: the list is polled
if (pageData.everywhere) {
  table = new KeyedTable(paint);
  byId("tools").hidden = false;
  byId("tools").append(el("button", { type: "button", class: "first", onclick: create }, icon("plus"), t("settings.key_new")));
  table.show(pageData.list);
  document.addEventListener("visibilitychange", () => document.hidden || load());
  setInterval(() => document.hidden || load(), POLL_MS);
}
