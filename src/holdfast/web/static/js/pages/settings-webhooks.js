// The webhooks: who is told of what, whether it works, and their secrets, told once.

import { call, get, post } from "../api.js";
import { confirmed, notice, tried } from "../dialog.js";
import { ask, boxes, labelled, tellSecret, ticked } from "../forms.js";
import { byId, data, el, field, icon } from "../html.js";
import { Listing, chip, iconButton, moment, put } from "../listing.js";
import { follow } from "../stream.js";
import { known, number, t } from "../words.js";

/** @typedef {{id: number, url: string, types: string[], bases: string[] | null, enabled: boolean, disabled_reason: string | null, failures: number, failing_since: string | null, state: "healthy" | "failing" | "disabled", retry_at: string | null, waiting: number, created_at: string}} Webhook */

/** How each state looks, and its word. */
const CHIPS = { healthy: ["ready", "settings.hook_on"], failing: ["degraded", "settings.hook_probing"], disabled: ["failed", "settings.hook_off"] };

/** Paint a webhook. @param {HTMLTableRowElement} row @param {Webhook} hook */
function paint(row, hook) {
  put(row, "url", hook.url);
  put(row, "types", hook.types.join(", "));
  put(row, "bases", hook.bases === null ? t("all") : hook.bases.join(", ") || t("none"));
  put(row, "trouble", hook.failures ? t("settings.hook_failures", { count: number(hook.failures) }) : "");
  const [look, word] = CHIPS[hook.state];
  chip(row, look, t(word));
  put(row, "waits", hook.retry_at ? t("settings.hook_waits", { count: number(hook.waiting) }) : "");
  moment(row, "retry", hook.retry_at ?? "", "");
  put(row, "reason", hook.enabled ? "" : known(`settings.hook_${hook.disabled_reason}`, hook.disabled_reason ?? ""));
  moment(row, "created", hook.created_at, "");
  const link = /** @type {HTMLAnchorElement} */ (field(row, "deliveries"));
  link.href = `/activity?view=deliveries&webhook=${hook.id}`;
  const label = (/** @type {string} */ name) => `${t(`settings.hook_${name}`)}: ${hook.url}`;
  row.querySelector(".acts")?.replaceChildren(
    link,
    hook.enabled ? iconButton("pause", label("disable"), () => turn(hook, "disable")) : iconButton("play", label("enable"), () => turn(hook, "enable")),
    iconButton("key", label("rotate"), () => rotate(hook)),
    iconButton("trash", label("remove"), () => remove(hook)),
  );
}

/** @type {Listing<Webhook>} */
let listing;
let waiting = 0;

async function load() {
  waiting = 0;
  const hooks = await tried(() => get("/webhooks"));
  if (hooks) listing.show(hooks);
}

/** @param {Webhook} hook @param {"enable" | "disable"} how */
async function turn(hook, how) {
  const now = await tried(() => post(`/webhooks/${hook.id}:${how}`));
  if (now) listing.patch(now);
}

/** @param {Webhook} hook */
async function rotate(hook) {
  if (!(await confirmed(t("settings.hook_rotate_sure", { url: hook.url }), t("settings.hook_rotate")))) return;
  const made = await tried(() => post(`/webhooks/${hook.id}:rotate`));
  if (made) tellSecret(t("settings.hook_made", { url: hook.url }), made.secret);
}

/** @param {Webhook} hook */
async function remove(hook) {
  if (!(await confirmed(t("settings.hook_remove_sure", { url: hook.url }), t("settings.hook_remove"), { danger: true }))) return;
  if ((await tried(() => call("DELETE", `/webhooks/${hook.id}`))) === undefined) return;
  notice(t("settings.hook_removed"));
  load();
}

function create() {
  const url = el("input", { type: "url", required: true, maxlength: 4000, autofocus: true, placeholder: "https://", autocomplete: "off" });
  const topics = boxes(t("settings.hook_topics"), "types", data.topics.map((/** @type {string} */ one) => [`${one}.*`, `${one}.*`]));
  const more = el("input", { type: "text", autocomplete: "off" });
  const names = Object.values(data.bases);
  const bases = boxes(t("settings.key_bases"), "bases", names.map((one) => [one, one]));
  const all = el("input", { type: "checkbox", checked: true });
  bases.hidden = true;
  all.addEventListener("change", () => (bases.hidden = all.checked));
  const fields = [labelled(t("settings.hook_url"), url), topics, labelled(t("settings.hook_more"), more), ...(names.length ? [el("label", {}, all, " ", t("settings.key_all_bases")), bases] : [])];
  ask(t("settings.hook_new"), fields, t("settings.hook_create"), async () => {
    const types = [...ticked(topics, "types"), ...more.value.split(/[\s,，、]+/).filter(Boolean)];
    const made = await post("/webhooks", { url: url.value, types: types.length ? types : ["*"], bases: all.checked ? null : ticked(bases, "bases") });
    tellSecret(t("settings.hook_made", { url: made.webhook.url }), made.secret).then(load);
  });
}

if (data.everywhere) {
  listing = new Listing(paint);
  byId("tools").hidden = false;
  byId("tools").append(el("button", { type: "button", class: "first", onclick: create }, icon("plus"), t("settings.hook_new")));
  listing.show(data.list);
  follow({ event: (event) => event.type.startsWith("webhook.") && (waiting ||= setTimeout(load, 100)), reset: load });
}
