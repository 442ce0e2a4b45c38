// Lists the channels that a search could not use.

import { byId, el } from "./html.js";
import { explainProblem, t, translationOr } from "./i18n.js";

/** @param {Notice[]} notices */
export function showNotices(notices) {
  const list = byId("notices");
  list.hidden = !notices.length;
  list.replaceChildren(...notices.map((one) => el("li", {}, t("search.without", { channel: translationOr(`search.channel.${one.channel}`, one.channel), why: explainProblem(one) }))));
}
