// Pausing the queue, or one base of it, and going on.

import { post } from "./api.js";
import { tried } from "./dialog.js";
import { ask } from "./forms.js";
import { el } from "./html.js";
import { t } from "./words.js";

/**
 * Ask whether what runs is to be called back, too, and pause.
 * @param {string | null} base
 * @param {() => void} done
 */
export function pause(base, done) {
  const stop = el("input", { type: "checkbox", autofocus: true });
  const fields = [
    el("p", {}, t("queue.pausing")),
    el("label", { class: "tick" }, stop, el("span", {}, t("queue.call_back"), el("span", { class: "small dim" }, t("queue.call_back_hint")))),
  ];
  const title = base ? t("queue.pause_base", { base }) : t("queue.pause");
  ask(title, fields, title, () => post("/jobs:pause", { base, stop: stop.checked }).then(done));
}

/**
 * End a pause.
 * @param {string | null} base
 * @param {() => void} done
 */
export async function resume(base, done) {
  if (await tried(() => post("/jobs:resume", { base }))) done();
}
