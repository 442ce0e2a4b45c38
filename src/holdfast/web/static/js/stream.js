// Follows events: one stream per tab, closed while the tab is hidden, resumed at the last event.
//
// A browser reconnects by itself, except after an error response; then this module does. Either way the stream continues
// after the last event, so none is lost and none comes twice.

import { encodeQuery } from "./api.js";
import { byId, pageData } from "./html.js";
import { t } from "./i18n.js";

const RECONNECT_MS = 1500; // if the browser does not reconnect
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
 * @property {(event: HoldfastEvent) => void} [event]
 * @property {(progress: any) => void} [progress] progress of a document or base
 * @property {() => void} [reset] too many events were missed: load everything again
 */

/**
 * Follow the events of one base or of all, from the cursor of the rendered page.
 * @param {Follower} follower
 * @param {{base?: string, document?: number}} [only]
 */
export function followEvents(follower, only = {}) {
  /** @type {EventSource | null} */
  let source = null;
  /** @type {string | null} */
  let cursor = pageData.cursor ?? null;
  let timer = 0;

  const open = () => {
    clearTimeout(timer);
    source?.close();
    const stream = new EventSource(`/api/v1/events/stream${encodeQuery({ ...only, after: cursor })}`);
    source = stream;
    stream.onopen = () => showConnection("on");
    stream.onerror = () => {
      showConnection("off");
      if (stream.readyState === EventSource.CLOSED) timer = setTimeout(open, RECONNECT_MS);
    };
    for (const name of EVENT_TYPES) {
      stream.addEventListener(name, (message) => {
        cursor = message.lastEventId || cursor;
        follower.event?.(JSON.parse(message.data));
      });
    }
    stream.addEventListener("progress", (message) => follower.progress?.(JSON.parse(message.data)));
    stream.addEventListener("reset", (message) => {
      cursor = message.lastEventId || cursor;
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

export const POLL_MS = 5000;

/**
 * Poll while work is unfinished: a failed attempt that is retried later causes no event.
 * @param {() => boolean} isActive
 * @param {() => void} poll
 */
export const pollWhile = (isActive, poll) => setInterval(() => document.hidden || !isActive() || poll(), POLL_MS);

/**
 * Return a function that schedules `work`. Calls before it runs are joined and do not delay it.
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
