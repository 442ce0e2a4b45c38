// The list of entities: the accessible version of the drawing. Arrow keys move, Enter selects.

import { byId, cloneTemplate, el, setText } from "./html.js";
import { formatNumber, t } from "./i18n.js";

/** @typedef {import("./entity-panel.js").Entity} Entity */

/** A list with a roving tab stop: Tab reaches one link. */
export class EntityList {
  /**
   * @param {HTMLElement} list
   * @param {{choose: (key: string) => void, light: (key: string | null) => void, kind: (kind: string) => number}} handlers
   */
  constructor(list, handlers) {
    this.list = list;
    this.handlers = handlers;
    /** @type {string | null} */
    this.selected = null;
    list.addEventListener("keydown", (event) => this.onKey(event));
    list.addEventListener("click", (event) => {
      const key = keyOf(event.target);
      if (key === null || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      handlers.choose(key);
    });
    for (const name of ["focusin", "pointerover"]) list.addEventListener(name, (event) => handlers.light(keyOf(event.target)));
    for (const name of ["focusout", "pointerleave"]) list.addEventListener(name, () => handlers.light(null));
  }

  /** Show entities. Existing rows stay, with the focus. @param {Entity[]} found */
  show(found) {
    const before = new Map(this.links().map((link) => [link.dataset.key, link.closest("li")]));
    const rows = found.map((one) => before.get(one.key) ?? this.row(one));
    rows.forEach((row, place) => row && this.paintRow(row, found[place]));
    const focused = keyOf(document.activeElement);
    this.list.replaceChildren(...rows.filter((row) => row !== null && row !== undefined));
    byId("no-entities").hidden = found.length > 0;
    byId("listed").textContent = formatNumber(found.length);
    if (focused !== null) this.link(focused)?.focus({ preventScroll: true });
    this.updateTabStop();
  }

  /** @param {string | null} key */
  select(key) {
    this.selected = key;
    for (const link of this.links()) {
      if (link.dataset.key === key) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    this.updateTabStop();
    if (key !== null) this.link(key)?.scrollIntoView({ block: "nearest" });
  }

  links() {
    return /** @type {HTMLElement[]} */ ([...this.list.querySelectorAll("[data-key]")]);
  }

  /** @param {string} key */
  link(key) {
    return this.links().find((link) => link.dataset.key === key);
  }

  /** Make one link reachable by Tab: the focused one, else the selected one, else the first. */
  updateTabStop() {
    const links = this.links();
    const one = links.find((link) => link === document.activeElement) ?? links.find((link) => link.dataset.key === this.selected) ?? links[0];
    for (const link of links) link.tabIndex = link === one ? 0 : -1;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const links = this.links();
    const here = links.findIndex((link) => link === document.activeElement);
    const target = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: links.length - 1, PageDown: here + 10, PageUp: here - 10 }[event.key];
    if (here < 0 || target === undefined) return;
    event.preventDefault();
    links[Math.max(0, Math.min(links.length - 1, target))].focus();
    this.updateTabStop();
  }

  /** @param {Entity} one */
  row(one) {
    const made = cloneTemplate("row");
    const link = made.querySelector("a");
    link.dataset.key = one.key;
    link.href = `?${new URLSearchParams({ entity: one.key })}`;
    if (one.key === this.selected) link.setAttribute("aria-current", "true");
    return made;
  }

  /** @param {Element} row @param {Entity} one */
  paintRow(row, one) {
    const count = /** @type {HTMLElement | null} */ (row.querySelector("data"));
    setText(row, "label", one.label);
    setText(row, "kind", one.kind);
    if (count) {
      count.textContent = formatNumber(one.documents);
      count.title = t("graph.documents_of", { count: formatNumber(one.documents) });
    }
    row.querySelector(".dot")?.setAttribute("data-kind", String(this.handlers.kind(one.kind)));
  }
}

/** @param {EventTarget | null} target */
const keyOf = (target) => (target instanceof Element ? (/** @type {HTMLElement | null} */ (target.closest("[data-key]"))?.dataset.key ?? null) : null);

/** @param {Map<string, number>} kinds */
export function drawLegend(kinds) {
  const dot = (/** @type {number} */ kind) => el("span", { class: "dot", "data-kind": kind });
  const lines = [...kinds].map(([kind, place]) => el("li", {}, dot(place), kind));
  byId("legend").replaceChildren(...lines, el("li", {}, dot(0), kinds.size ? t("graph.no_kind") : t("graph.name")));
}
