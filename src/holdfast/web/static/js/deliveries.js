// The deliveries of a webhook with their responses, and sending one again.

import { labelButton } from "./actions.js";
import { get, post } from "./api.js";
import { showNotice, tryOrNotify } from "./dialog.js";
import { byId, el, field, icon, pageData, setContent, setText } from "./html.js";
import { formatNumber, localise, t, translationOr } from "./i18n.js";
import { NewestFirstTable } from "./newest-first-table.js";
import { coalesced, followEvents } from "./stream.js";

const POLL_MS = 2000; // while a delivery is pending; attempts cause no event

/** Show the deliveries of the selected webhook. */
export function startDeliveryList() {
  const { webhook, cursor } = pageData.asked;
  if (!byId("list")) return followEvents({}); // there is no webhook
  let enabled = true;
  /** @type {NewestFirstTable<Delivery>} */
  const list = new NewestFirstTable(`/webhooks/${webhook}/deliveries`, {}, (row, one) => fillRow(row, one, send, enabled));

  const load = async () => {
    if (document.hidden) return;
    const hook = await get(`/webhooks/${webhook}`).catch(() => null);
    if (hook) {
      enabled = hook.enabled;
      paintWebhook(hook);
    }
    const found = await list.loadNewest();
    if (!cursor) list.show(found);
    if (found.some((one) => one.state === "waiting")) schedulePoll();
  };
  const scheduleLoad = coalesced(load);
  const schedulePoll = coalesced(load, POLL_MS);
  /** @param {number} id */
  const send = async (id) => {
    const sent = await tryOrNotify(() => post(`/deliveries/${id}:redeliver`));
    if (!sent) return;
    showNotice(t("activity.redelivered"));
    list.show([sent]);
    scheduleLoad();
  };

  followEvents({ event: scheduleLoad, reset: scheduleLoad });
  document.addEventListener("visibilitychange", () => document.hidden || scheduleLoad());
  load();
}

/** @param {any} hook */
function paintWebhook(hook) {
  const banner = byId("hook");
  if (!banner) return;
  banner.className = `banner${!hook.enabled ? " bad" : hook.failures ? " warn" : ""}`;
  const text = !hook.enabled ? translationOr(`activity.hook_off.${hook.disabled_reason}`, t("activity.hook_off")) : hook.failures ? t("activity.hook_failing", { count: formatNumber(hook.failures) }) : t("activity.hook_fine");
  setText(banner, "hook", text);
}

/** @param {HTMLTableRowElement} row @param {Delivery} one @param {(id: number) => void} send @param {boolean} enabled */
function fillRow(row, one, send, enabled) {
  const chip = /** @type {HTMLElement} */ (field(row, "state"));
  chip.dataset.status = one.state === "sent" ? "success" : one.state;
  chip.textContent = t(`activity.delivery.${one.state}`);
  setContent(row, "type", one.type);
  setContent(row, "attempts", formatNumber(one.attempts));
  setContent(row, "answer", [one.status ? `HTTP ${one.status}` : "", one.reason ? translationOr(`activity.answer.${one.reason}`, one.reason) : ""].filter(Boolean).join(" "));
  field(row, "at")?.setAttribute("datetime", one.created_at);
  const next = field(row, "next");
  const at = one.state === "waiting" ? (one.next_at ?? "") : "";
  next?.setAttribute("datetime", at);
  if (!at) next?.replaceChildren();
  localise(row);
  const acts = row.querySelector(".acts");
  if (acts && !acts.childElementCount) acts.append(el("button", { type: "button", class: "icon-button", onclick: () => acts.querySelector('[aria-disabled="true"]') ?? send(one.id) }, icon("redo")));
  const button = acts?.querySelector("button");
  if (button) labelButton(button, t("activity.redeliver"), one.type, enabled ? null : t("activity.hook_off"));
}
