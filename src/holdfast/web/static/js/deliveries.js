// What a webhook was sent, what it answered, and sending it once more.

import { label } from "./actions.js";
import { get, post } from "./api.js";
import { notice, tried } from "./dialog.js";
import { byId, data, el, field, icon, put } from "./html.js";
import { Newest } from "./newest.js";
import { follow } from "./stream.js";
import { known, localise, number, t } from "./words.js";

const SETTLE = 240; // milliseconds in which what happens is asked for together
const AGAIN = 2000; // milliseconds until we look again while something is on its way: an attempt is no event

/** Show the deliveries of the webhook that was chosen. */
export function deliveries() {
  const { webhook, cursor } = data.asked;
  if (!byId("list")) return follow({}); // nobody is told of anything
  let enabled = true;
  /** @type {Newest<Delivery>} */
  const list = new Newest(`/webhooks/${webhook}/deliveries`, {}, (row, one) => fill(row, one, send, enabled));
  let waiting = 0;

  const load = async () => {
    waiting = 0;
    if (document.hidden) return;
    const hook = await get(`/webhooks/${webhook}`).catch(() => null);
    if (hook) {
      enabled = hook.enabled;
      paintHook(hook);
    }
    const found = await list.load();
    if (!cursor) list.show(found);
    if (found.some((one) => one.state === "waiting")) soon(AGAIN);
  };
  /** @param {number} [later] */
  const soon = (later = SETTLE) => {
    waiting ||= setTimeout(load, later);
  };
  /** @param {number} id */
  const send = async (id) => {
    const sent = await tried(() => post(`/deliveries/${id}:redeliver`));
    if (!sent) return;
    notice(t("activity.redelivered"));
    list.show([sent]);
    soon();
  };

  follow({ event: () => soon(), reset: () => soon() });
  document.addEventListener("visibilitychange", () => document.hidden || soon());
  load();
}

/** @param {any} hook */
function paintHook(hook) {
  const banner = byId("hook");
  if (!banner) return;
  banner.className = `banner${!hook.enabled ? " bad" : hook.failures ? " warn" : ""}`;
  const text = !hook.enabled ? known(`activity.hook_off.${hook.disabled_reason}`, t("activity.hook_off")) : hook.failures ? t("activity.hook_failing", { count: number(hook.failures) }) : t("activity.hook_fine");
  const part = field(banner, "hook");
  if (part && part.textContent !== text) part.textContent = text;
}

/** @param {HTMLTableRowElement} row @param {Delivery} one @param {(id: number) => void} send @param {boolean} enabled */
function fill(row, one, send, enabled) {
  const chip = /** @type {HTMLElement} */ (field(row, "state"));
  chip.dataset.status = one.state === "sent" ? "success" : one.state;
  chip.textContent = t(`activity.delivery.${one.state}`);
  put(row, "type", one.type);
  put(row, "attempts", number(one.attempts));
  put(row, "answer", [one.status ? `HTTP ${one.status}` : "", one.reason ? known(`activity.answer.${one.reason}`, one.reason) : ""].filter(Boolean).join(" "));
  field(row, "at")?.setAttribute("datetime", one.created_at);
  const next = field(row, "next");
  const at = one.state === "waiting" ? (one.next_at ?? "") : "";
  next?.setAttribute("datetime", at);
  if (!at) next?.replaceChildren();
  localise(row);
  const acts = row.querySelector(".acts");
  if (acts && !acts.childElementCount) acts.append(el("button", { type: "button", class: "icon-button", onclick: () => acts.querySelector('[aria-disabled="true"]') ?? send(one.id) }, icon("redo")));
  const button = acts?.querySelector("button");
  if (button) label(button, t("activity.redeliver"), one.type, enabled ? null : t("activity.hook_off"));
}
