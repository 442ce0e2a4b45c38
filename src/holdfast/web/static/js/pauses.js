// A base whose queue is paused: the page says so where documents wait, and offers to resume it.

import { get } from "./api.js";
import { byId, data, el, field, icon } from "./html.js";
import { resume } from "./pausing.js";
import { follow, lookAgain } from "./stream.js";
import { t } from "./words.js";

/**
 * Keep the banner of a base right, beside a page that follows the events of that base.
 * @param {import("./stream.js").Follower} follower
 * @param {() => boolean} [moving] whether the page shows work that has not ended
 * @param {() => void} [changed] called when a pause began or ended
 */
export function followUnlessPaused(follower, moving, changed) {
  const look = watchPauses(moving, changed);
  const event = (/** @type {HoldfastEvent} */ one) => (one.type.startsWith("queue.") ? void look() : follower.event?.(one));
  follow({ ...follower, event }, { base: data.base });
}

/**
 * Keep the banner of a base right while it is paused, on a page that follows no events.
 * @param {() => boolean} [moving] whether the page shows work that has not ended
 * @param {() => void} [changed] called when a pause began or ended
 * @returns {() => Promise<void>} looks now whether it is paused
 */
export function watchPauses(moving = () => false, changed = () => {}) {
  const look = async () => {
    /** @type {Queue | null} */
    const queue = await get("/jobs/overview", { base: data.base }).catch(() => null);
    const paused = queue?.paused ? "queue" : queue?.paused_bases.includes(data.base) ? "base" : "";
    if (!queue || paused === data.paused) return;
    data.paused = paused;
    paint(look);
    changed();
  };
  lookAgain(() => moving() || data.paused !== "", look); // a pause of the whole queue is no event of this base
  paint(look);
  return look;
}

/** @param {() => void} look */
function paint(look) {
  const banner = byId("base-paused");
  banner.hidden = !data.paused;
  if (!data.paused) return;
  const whole = data.paused === "queue";
  const text = field(banner, "paused");
  if (text) text.textContent = t(whole ? "paused.queue" : "paused.base", { base: data.base });
  const allowed = data.scope !== "read" && (!whole || data.everywhere);
  const button = el("button", { type: "button", onclick: () => resume(whole ? null : data.base, look) }, icon("play"), whole ? t("queue.resume") : t("queue.resume_base", { base: data.base }));
  field(banner, "resume")?.replaceChildren(...(allowed ? [button] : []));
}
