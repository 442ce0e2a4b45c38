// The keys: made, told once, revoked. The first one locks the server, so this browser is signed in with it at once.

import { call, get, post } from "../api.js";
import { confirmed, notice, tried } from "../dialog.js";
import { ask, boxes, labelled, tellSecret, ticked } from "../forms.js";
import { byId, data, el, field, icon } from "../html.js";
import { Listing, chip, moment, put } from "../listing.js";
import { t } from "../words.js";

/** @typedef {{id: number, name: string, prefix: string, scope: string, bases: string[] | null, created_at: string, expires_at: string | null, revoked_at: string | null, used_at: string | null}} Key */

const AGAIN = 15_000; // milliseconds
const SCOPES = ["read", "write", "admin"];

/** @param {Key} key */
const expired = (key) => key.expires_at !== null && new Date(key.expires_at).getTime() <= Date.now();

/** @param {Key} key */
const opens = (key) => !key.revoked_at && !expired(key);

/** Paint a key. @param {HTMLTableRowElement} row @param {Key} key */
function paint(row, key) {
  put(row, "name", key.name);
  put(row, "prefix", `hf_${key.prefix}…`);
  put(row, "scope", t(`settings.scope_${key.scope}`));
  put(row, "bases", key.bases === null ? t("all") : key.bases.join(", ") || t("none"));
  moment(row, "expires", key.expires_at, t("settings.never"));
  moment(row, "used", key.used_at, t("settings.never"));
  const mine = field(row, "mine");
  if (mine) mine.hidden = key.id !== data.me;
  chip(row, opens(key) ? "ready" : "failed", t(`settings.key_${key.revoked_at ? "revoked" : expired(key) ? "expired" : "valid"}`));
  const why = key.revoked_at ? t("settings.revoked_already") : "";
  const label = t("settings.revoke_of", { name: key.name });
  row.querySelector(".acts")?.replaceChildren(
    el("button", { type: "button", class: "danger", "aria-label": why ? `${label} (${why})` : label, title: why, "aria-disabled": why ? "true" : null, onclick: () => why || revoke(key, listing) }, t("settings.revoke")),
  );
}

/** @type {Listing<Key>} */
let listing;

async function load() {
  const keys = await tried(() => get("/keys"));
  if (keys) listing.show(keys);
}

/** @param {Key} key @param {Listing<Key>} list */
async function revoke(key, list) {
  const others = [...list.items.values()].filter((one) => one.id !== key.id && opens(one) && one.scope === "admin" && one.bases === null);
  const question = [t("settings.revoke_sure", { name: key.name }), key.id === data.me ? t("settings.revoke_mine") : "", opens(key) && key.scope === "admin" && !others.length ? t("settings.revoke_last") : ""];
  if (!(await confirmed(question.filter(Boolean).join(" "), t("settings.revoke"), { danger: true }))) return;
  if (!(await tried(() => call("DELETE", `/keys/${key.id}`)))) return;
  notice(t("settings.revoked", { name: key.name }));
  load();
}

function create() {
  const first = listing.items.size === 0;
  const name = el("input", { type: "text", required: true, maxlength: 200, autofocus: true, autocomplete: "off" });
  const scope = el("select", {}, ...(first ? ["admin"] : SCOPES).map((one) => el("option", { value: one }, t(`settings.scope_${one}`))));
  const days = el("input", { type: "number", min: 1, max: 36500 });
  const all = el("input", { type: "checkbox", checked: true });
  const names = Object.values(data.bases);
  const some = boxes(t("settings.key_bases"), "bases", names.map((one) => [one, one]));
  some.hidden = true;
  all.addEventListener("change", () => (some.hidden = all.checked));
  const fields = [
    first ? el("p", { class: "banner warn" }, t("settings.key_first")) : "",
    labelled(t("settings.name"), name),
    labelled(t("settings.key_scope"), scope, first ? t("settings.key_first_scope") : ""),
    labelled(t("settings.key_days"), days),
    first || !names.length ? "" : el("label", {}, all, " ", t("settings.key_all_bases")),
    first || !names.length ? "" : some,
  ];
  ask(t("settings.key_new"), fields.filter((one) => one instanceof Node), t("settings.key_create"), async () => {
    const wanted = { name: name.value, scope: scope.value, bases: all.checked ? null : ticked(some, "bases"), days: days.value ? Number(days.value) : null };
    const made = await post("/keys", wanted);
    if (first) await post("/session", { key: made.secret });
    tellSecret(t("settings.key_made", { name: made.key.name }), made.secret).then(() => (first ? location.reload() : load()));
  });
}

byId("live").remove(); // no event tells of keys: they are looked at again from time to time
if (data.everywhere) {
  listing = new Listing(paint);
  byId("tools").hidden = false;
  byId("tools").append(el("button", { type: "button", class: "first", onclick: create }, icon("plus"), t("settings.key_new")));
  listing.show(data.list);
  document.addEventListener("visibilitychange", () => document.hidden || load());
  setInterval(() => document.hidden || load(), AGAIN);
}
