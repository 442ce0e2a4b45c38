// Webhooks: their events, their health, and their secrets, which are shown once.

import { get, post, request } from "../api.js";
import { askConfirmation, showNotice, tryOrNotify } from "../dialog.js";
import { baseChoice, checkboxGroup, checkedValues, labelledField, openForm, showSecret } from "../forms.js";
import { byId, el, field, icon, pageData, setText } from "../html.js";
import { formatNumber, t, translationOr } from "../i18n.js";
import { KeyedTable, iconButton, setChip, setTime } from "../keyed-table.js";
import { coalesced, followEvents } from "../stream.js";

/** @typedef {{id: number, url: string, types: string[], bases: string[] | null, enabled: boolean, disabled_reason: string | null, failures: number, failing_since: string | null, state: "healthy" | "failing" | "disabled", retry_at: string | null, waiting: number, created_at: string}} Webhook */

/** Colour and text of each state. */
const CHIPS = { healthy: ["ready", "settings.hook_on"], failing: ["degraded", "settings.hook_probing"], disabled: ["failed", "settings.hook_off"] };

/** @param {HTMLTableRowElement} row @param {Webhook} hook */
function paint(row, hook) {
  setText(row, "url", hook.url);
  setText(row, "types", hook.types.join(", "));
  setText(row, "bases", hook.bases === null ? t("all") : hook.bases.join(", ") || t("none"));
  setText(row, "trouble", hook.failures ? t("settings.hook_failures", { count: formatNumber(hook.failures) }) : "", { hide: true });
  const [look, word] = CHIPS[hook.state];
  setChip(row, look, t(word));
  setText(row, "waits", hook.retry_at ? t("settings.hook_waits", { count: formatNumber(hook.waiting) }) : "", { hide: true });
  setTime(row, "retry", hook.retry_at ?? "", "");
  setText(row, "reason", hook.enabled ? "" : translationOr(`settings.hook_${hook.disabled_reason}`, hook.disabled_reason ?? ""), { hide: true });
  setTime(row, "created", hook.created_at, "");
  const link = /** @type {HTMLAnchorElement} */ (field(row, "deliveries"));
  link.href = `/activity?view=deliveries&webhook=${hook.id}`;
  const label = (/** @type {string} */ name) => t("pair", { name: t(`settings.hook_${name}`), value: hook.url });
  row.querySelector(".acts")?.replaceChildren(
    link,
    hook.enabled ? iconButton("pause", label("disable"), () => setEnabled(hook, "disable")) : iconButton("play", label("enable"), () => setEnabled(hook, "enable")),
    iconButton("key", label("rotate"), () => rotate(hook)),
    iconButton("trash", label("remove"), () => remove(hook)),
  );
}

/** @type {KeyedTable<Webhook>} */
let table;
const scheduleLoad = coalesced(load);

async function load() {
  const hooks = await tryOrNotify(() => get("/webhooks"));
  if (hooks) table.show(hooks);
}

/** @param {Webhook} hook @param {"enable" | "disable"} how */
async function setEnabled(hook, how) {
  const now = await tryOrNotify(() => post(`/webhooks/${hook.id}:${how}`));
  if (now) table.patch(now);
}

/** @param {Webhook} hook */
async function rotate(hook) {
  if (!(await askConfirmation(t("settings.hook_rotate_sure", { url: hook.url }), t("settings.hook_rotate")))) return;
  const made = await tryOrNotify(() => post(`/webhooks/${hook.id}:rotate`));
  if (made) showSecret(t("settings.hook_made", { url: hook.url }), made.secret);
}

/** @param {Webhook} hook */
async function remove(hook) {
  if (!(await askConfirmation(t("settings.hook_remove_sure", { url: hook.url }), t("settings.hook_remove"), { danger: true }))) return;
  if ((await tryOrNotify(() => request("DELETE", `/webhooks/${hook.id}`))) === undefined) return;
  showNotice(t("settings.hook_removed"));
  load();
}

function create() {
  const url = el("input", { type: "url", required: true, maxlength: 4000, autofocus: true, placeholder: "https://", autocomplete: "off" });
  const topics = checkboxGroup(t("settings.hook_topics"), "types", pageData.topics.map((/** @type {string} */ one) => [`${one}.*`, `${one}.*`]));
  const more = el("input", { type: "text", autocomplete: "off" });
  const bases = baseChoice(Object.values(pageData.bases));
  const fields = [labelledField(t("settings.hook_url"), url), topics, labelledField(t("settings.hook_more"), more), ...bases.fields];
  openForm(t("settings.hook_new"), fields, t("settings.hook_create"), async () => {
    const types = [...checkedValues(topics, "types"), ...more.value.split(/[\s,，、]+/).filter(Boolean)];
    const made = await post("/webhooks", { url: url.value, types: types.length ? types : ["*"], bases: bases.value() });
    showSecret(t("settings.hook_made", { url: made.webhook.url }), made.secret).then(load);
  });
}

if (pageData.everywhere) {
  table = new KeyedTable(paint);
  byId("tools").hidden = false;
  byId("tools").append(el("button", { type: "button", class: "first", onclick: create }, icon("plus"), t("settings.hook_new")));
  table.show(pageData.list);
  followEvents({ event: (event) => event.type.startsWith("webhook.") && scheduleLoad(), reset: load });
}
