// Pausing the queue or one base of it, resuming, and the banner of a paused base.

import { get, post } from "./api.js";
import { tryOrNotify } from "./dialog.js";
import { openForm } from "./forms.js";
import { byId, el, field, icon, pageData, setText } from "./html.js";
import { t } from "./i18n.js";
import { followEvents, pollWhile } from "./stream.js";

/**
 * Follow the events of a base, and keep the banner of its pause up to date.
 * @param {import("./stream.js").Follower} follower
 * @param {() => boolean} [hasActiveWork] whether the page shows unfinished work
 * @param {() => void} [onChange] called when a pause begins or ends
 */
export function followBase(follower, hasActiveWork, onChange) {
  const checkPause = watchPause(hasActiveWork, onChange);
  const event = (/** @type {HoldfastEvent} */ one) => (one.type.startsWith("queue.") ? void checkPause() : follower.event?.(one));
  followEvents({ ...follower, event }, { base: pageData.base });
}

/**
 * Keep the banner of a pause up to date, on a page that follows no events.
 * @param {() => boolean} [hasActiveWork] whether the page shows unfinished work
 * @param {() => void} [onChange] called when a pause begins or ends
 * @returns {() => Promise<void>} checks the pause now
 */
export function watchPause(hasActiveWork = () => false, onChange = () => {}) {
  const checkPause = async () => {
    /** @type {QueueStats | null} */
    const queue = await get("/jobs/overview", { base: pageData.base }).catch(() => null);
    const paused = queue?.paused ? "queue" : queue?.paused_bases.includes(pageData.base) ? "base" : "";
    if (!queue || paused === pageData.paused) return;
    pageData.paused = paused;
    paintBanner(checkPause);
    onChange();
  };
  pollWhile(() => hasActiveWork() || pageData.paused !== "", checkPause); // a pause of the whole queue causes no event of this base
  paintBanner(checkPause);
  return checkPause;
}

/** @param {() => void} checkPause */
function paintBanner(checkPause) {
  const banner = byId("base-paused");
  banner.hidden = !pageData.paused;
  if (!pageData.paused) return;
  const whole = pageData.paused === "queue";
  setText(banner, "paused", t(whole ? "paused.queue" : "paused.base", { base: pageData.base }));
  const allowed = pageData.scope !== "read" && (!whole || pageData.everywhere);
  const button = el("button", { type: "button", onclick: () => resume(whole ? null : pageData.base, checkPause) }, icon("play"), whole ? t("queue.resume") : t("queue.resume_base", { base: pageData.base }));
  field(banner, "resume")?.replaceChildren(...(allowed ? [button] : []));
}

/**
 * Open the form that pauses the queue or a base, with the option to stop running work.
 * @param {string | null} base
 * @param {() => void} done
 */
export function askToPause(base, done) {
  const stop = el("input", { type: "checkbox", autofocus: true });
  const fields = [
    el("p", {}, t("queue.pausing")),
    el("label", { class: "tick" }, stop, el("span", {}, t("queue.call_back"), el("span", { class: "small dim" }, t("queue.call_back_hint")))),
  ];
  const title = base ? t("queue.pause_base", { base }) : t("queue.pause");
  openForm(title, fields, title, () => post("/jobs:pause", { base, stop: stop.checked }).then(done));
}

/**
 * @param {string | null} base
 * @param {() => void} done
 */
export async function resume(base, done) {
  if (await tryOrNotify(() => post("/jobs:resume", { base }))) done();
}
