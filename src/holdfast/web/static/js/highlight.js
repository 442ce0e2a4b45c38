// Highlights the words of a query in a passage, also in languages without spaces. `highlight.py` does the same.

import { el } from "./html.js";

const SHORT_WORD = 3; // up to this length a word may be an article or a preposition
const SPACELESS = "[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\u{20000}-\u{3ffff}]";
const LETTER = `(?:(?!${SPACELESS})[\\p{L}\\p{M}\\p{N}])`;
const WORD = new RegExp(`${SPACELESS}+|${LETTER}+`, "gu");
const STARTS_SPACELESS = new RegExp(`^${SPACELESS}`, "u");

/**
 * Split a text into strings and `<mark>` elements around the words of a query.
 * @param {string} text
 * @param {string} query
 * @returns {(string | HTMLElement)[]}
 */
export function highlightWords(text, query) {
  const words = query.match(WORD) ?? [];
  const telling = words.filter((one) => one.length > SHORT_WORD || STARTS_SPACELESS.test(one) || one !== one.toLowerCase() || one === one.toUpperCase());
  const found = [...new Set((telling.length ? telling : words).flatMap(wordPatterns))].sort((one, other) => other.length - one.length);
  if (!found.length) return [text];
  return text.split(new RegExp(`((?:${found.join("|")})+)`, "giu")).map((one, place) => (place % 2 ? el("mark", {}, one) : one));
}

/** @param {string} word */
function wordPatterns(word) {
  const letters = [...word];
  if (STARTS_SPACELESS.test(word)) return [word, ...letters.slice(1).map((_, place) => letters[place] + letters[place + 1])];
  return [`(?<!${LETTER})${word}${letters.length > SHORT_WORD ? `${LETTER}*` : `(?!${LETTER})`}`];
}
