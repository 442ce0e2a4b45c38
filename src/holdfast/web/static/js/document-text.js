// The text of a document, loaded in parts, with one marked range.
//
// Offsets count characters, as the server does. JavaScript counts some characters as two, hence `countCharacters`.

import { basePath, get } from "./api.js";
import { tryOrNotify } from "./dialog.js";
import { byId, el } from "./html.js";
import { t } from "./i18n.js";

const PART_CHARS = 10_000;
const CONTEXT_CHARS = 1_000; // loaded before and after a range

/** @typedef {{start: number, end: number, overlaps: [number, number][]}} Range */
/** @typedef {{start: number, end: number, text: string, shown: HTMLElement}} Part */

/** @param {string} text */
const countCharacters = (text) => (/[\ud800-\udbff]/.test(text) ? [...text].length : text.length);

/** @param {string} text @param {number} from @param {number} to */
const sliceCharacters = (text, from, to) => (/[\ud800-\udbff]/.test(text) ? [...text].slice(from, to).join("") : text.slice(from, to));

export class DocumentText {
  /**
   * @param {string} base
   * @param {number} document
   * @param {TextPart | null} first
   */
  constructor(base, document, first) {
    this.path = `${basePath(base, "documents", document)}/text`;
    this.box = byId("source");
    this.place = byId("text");
    /** @type {Part[]} */
    this.parts = [];
    /** @type {Range | null} */
    this.range = null;
    this.generation = 0;
    this.length = 0;
    this.loading = false;
    this.earlier = el("button", { type: "button", class: "more", hidden: true, onclick: () => this.loadMore(true) }, t("document.earlier"));
    this.later = el("button", { type: "button", class: "more", hidden: true, onclick: () => this.loadMore(false) }, t("document.later"));
    this.place.before(this.earlier);
    this.place.after(this.later);
    if (first) this.reset(first);
    new IntersectionObserver((seen) => seen.some((one) => one.isIntersecting) && this.loadMore(false), { root: this.box }).observe(this.later);
  }

  /** @returns {number} */
  get start() {
    return this.parts[0]?.start ?? 0;
  }

  /** @returns {number} */
  get end() {
    return this.parts[this.parts.length - 1]?.end ?? 0;
  }

  /** Replace all parts by this one. @param {TextPart} text */
  reset(text) {
    this.parts = [];
    this.place.replaceChildren();
    this.addPart(text, false);
  }

  /** @param {TextPart} text @param {boolean} before */
  addPart(text, before) {
    const part = { start: text.start, end: text.start + countCharacters(text.text), text: text.text, shown: el("span") };
    this.generation = text.generation;
    this.length = text.length;
    if (before) this.parts.unshift(part);
    else this.parts.push(part);
    this.paint(part);
    if (before) this.place.prepend(part.shown);
    else this.place.append(part.shown);
    this.earlier.hidden = this.start <= 0;
    this.later.hidden = this.end >= this.length;
    byId("no-text").hidden = true;
    byId("reader").hidden = false;
  }

  /**
   * Load a part. Returns null on an error, or while another part is loading.
   * @param {number} start
   * @param {number} count
   * @returns {Promise<TextPart | null>}
   */
  async load(start, count) {
    if (this.loading) return null;
    this.loading = true;
    try {
      return (await tryOrNotify(() => get(this.path, { start, length: count }))) ?? null;
    } finally {
      this.loading = false;
    }
  }

  /** Load the part before or after the loaded ones. @param {boolean} before */
  async loadMore(before) {
    const start = before ? Math.max(0, this.start - PART_CHARS) : this.end;
    const text = await this.load(start, before ? this.start - start : PART_CHARS);
    if (!text) return;
    if (text.generation !== this.generation) return this.reload();
    const height = this.box.scrollHeight;
    this.addPart(text, before);
    if (before) this.box.scrollTop += this.box.scrollHeight - height;
  }

  /** Load the text again after a rebuild. A range that is selected during the request stays marked. */
  async reload() {
    const before = this.range;
    const text = await get(this.path, { start: 0, length: PART_CHARS }).catch(() => null);
    if (!text) return;
    if (this.range === before) this.range = null;
    this.reset(text);
    this.box.scrollTop = 0;
    if (this.range) await this.show(this.range);
  }

  /** Mark a range and scroll to it. @param {Range} range */
  async show(range) {
    this.range = range;
    if (range.start < this.start || range.end > this.end) {
      const start = Math.max(0, range.start - CONTEXT_CHARS);
      const text = await this.load(start, Math.max(PART_CHARS, range.end - start + CONTEXT_CHARS));
      if (!text || this.range !== range) return;
      this.reset(text);
    } else {
      for (const part of this.parts) this.paint(part);
    }
    const mark = this.place.querySelector("mark");
    if (mark) this.box.scrollTop = mark.offsetTop - this.box.clientHeight / 5;
  }

  /** Paint a part with the marked range; text that neighbouring chunks repeat has its own class. @param {Part} part */
  paint(part) {
    const range = this.range;
    if (!range || range.end <= part.start || range.start >= part.end) return part.shown.replaceChildren(part.text);
    const places = [part.start, part.end, range.start, range.end, ...range.overlaps.flat()];
    const cuts = [...new Set(places)].filter((one) => one >= part.start && one <= part.end).sort((one, other) => one - other);
    part.shown.replaceChildren(
      ...cuts.slice(1).map((to, index) => {
        const from = cuts[index];
        const text = sliceCharacters(part.text, from - part.start, to - part.start);
        if (from < range.start || to > range.end) return text;
        const twice = range.overlaps.some(([first, last]) => from >= first && to <= last);
        return el("mark", twice ? { class: "overlap", title: t("document.overlap") } : {}, text);
      }),
    );
  }
}
