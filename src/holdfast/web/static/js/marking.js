// The words of a query where they stand in a passage, in languages with and without spaces. `marking.py` does the same.

import { el } from "./html.js";

const SHORT = 3; // letters of a word that may mean nothing by itself
const SPACELESS = "[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\u{20000}-\u{3ffff}]";
const LETTER = `(?:(?!${SPACELESS})[\\p{L}\\p{M}\\p{N}])`;
const WORD = new RegExp(`${SPACELESS}+|${LETTER}+`, "gu");
const RUN = new RegExp(`^${SPACELESS}`, "u");

/**
 * Cut a text where words of a query begin and end: texts, and marks for what is found.
 * @param {string} text
 * @param {string} query
 * @returns {(string | HTMLElement)[]}
 */
export function marked(text, query) {
  const words = query.match(WORD) ?? [];
  const telling = words.filter((one) => one.length > SHORT || RUN.test(one) || one !== one.toLowerCase() || one === one.toUpperCase());
  const found = [...new Set((telling.length ? telling : words).flatMap(patterns))].sort((one, other) => other.length - one.length);
  if (!found.length) return [text];
  return text.split(new RegExp(`((?:${found.join("|")})+)`, "giu")).map((one, place) => (place % 2 ? el("mark", {}, one) : one));
}

/** @param {string} word */
function patterns(word) {
  const letters = [...word];
  if (RUN.test(word)) return [word, ...letters.slice(1).map((_, place) => letters[place] + letters[place + 1])];
  return [`(?<!${LETTER})${word}${letters.length > SHORT ? `${LETTER}*` : `(?!${LETTER})`}`];
}
