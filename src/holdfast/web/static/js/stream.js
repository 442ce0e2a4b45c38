// Following what happens: one stream a tab, closed while nobody looks, read on from where it ended.
//
// A browser connects again by itself after a break, except when it was answered with an error; then we do. Either way
// the stream goes on behind the last event, so nothing is missed and nothing comes twice.

import { encodeQuery } from "./api.js";
import { byId, pageData } from "./html.js";
import { t } from "./i18n.js";

const RECONNECT_MS = 1500; // milliseconds until we connect again, where the browser does not
const EVENT_TYPES = [
  ...["accepted", "success", "degraded", "failed", "superseded", "cancelled", "deleted", "reprioritised"].map((one) => `job.${one}`),
  ...["ready", "failed", "removed"].map((one) => `index.${one}`),
  ...["added", "changed", "status", "deleted", "removed"].map((one) => `document.${one}`),
  ...["created", "renamed", "changed", "failed", "repaired", "cleared", "deleted", "removed"].map((one) => `base.${one}`),
  ...["ready", "failed", "removed"].map((one) => `cards.${one}`),
  ...["queue.paused", "queue.resumed", "webhook.disabled"],
];

/**
 * @typedef {object} Follower
 * @property {(event: HoldfastEvent) => void} [event] something happened
 * @property {(progress: any) => void} [progress] work on a document went on
 * @property {() => void} [reset] too much was missed, or nothing was looked at for long: load everything anew
 */

/**
 * Follow a base, or all of them, from where the page was painted.
 * @param {Follower} follower
 * @param {{base?: string, document?: number}} [only]
 */
export function followEvents(follower, only = {}) {
  /** @type {EventSource | null} */
  let source = null;
  /** @type {string | null} */
  let place = pageData.cursor ?? null;
  let timer = 0;

  const open = () => {
    clearTimeout(timer);
    source?.close();
    const stream = new EventSource(`/api/v1/events/stream${encodeQuery({ ...only, after: place })}`);
    source = stream;
    stream.onopen = () => showConnection("on");
    stream.onerror = () => {
      showConnection("off");
      if (stream.readyState === EventSource.CLOSED) timer = setTimeout(open, RECONNECT_MS);
    };
    for (const name of EVENT_TYPES) {
      stream.addEventListener(name, (message) => {
        place = message.lastEventId || place;
        follower.event?.(JSON.parse(message.data));
      });
    }
    stream.addEventListener("progress", (message) => follower.progress?.(JSON.parse(message.data)));
    stream.addEventListener("reset", (message) => {
      place = message.lastEventId || place;
      follower.reset?.();
    });
  };
  const pause = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
    showConnection("paused");
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : open()));
  addEventListener("pagehide", pause);
  addEventListener("pageshow", (event) => event.persisted && open());
  if (!document.hidden) open();
}

/** @param {"on" | "off" | "paused"} state */
function showConnection(state) {
  const badge = byId("live");
  if (!badge || badge.dataset.state === state) return;
  badge.hidden = false;
  badge.dataset.state = state;
  badge.textContent = t(`live.${state}`);
}

export const POLL_MS = 5000; // milliseconds after which it is looked again at what is under way

/**
 * Look now and then while something is under way: that an attempt or a clean-up failed and is made again later is no event.
 * @param {() => boolean} moving
 * @param {() => void} look
 */
export const pollWhile = (moving, look) => setInterval(() => document.hidden || !moving() || look(), POLL_MS);

/**
 * Return a function that calls `work` after a moment. Calls that come before that are one call, and do not delay it.
 * Example: `const scheduleLoad = coalesced(load);`
 * @param {() => unknown} work
 * @param {number | (() => number)} [wait] milliseconds
 */
export function coalesced(work, wait = 240) {
  let timer = 0;
  const run = () => {
    timer = 0;
    work();
  };
  return () => {
    timer ||= setTimeout(run, typeof wait === "number" ? wait : wait());
  };
}
