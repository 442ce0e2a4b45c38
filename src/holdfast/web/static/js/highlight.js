// The words of a query where they stand in a passage, in languages with and without spaces. `highlight.py` does the same.

import { el } from "./html.js";

const SHORT_WORD = 3; // letters of a word that may mean nothing by itself
const SPACELESS = "[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\u{20000}-\u{3ffff}]";
const LETTER = `(?:(?!${SPACELESS})[\\p{L}\\p{M}\\p{N}])`;
const WORD = new RegExp(`${SPACELESS}+|${LETTER}+`, "gu");
const STARTS_SPACELESS = new RegExp(`^${SPACELESS}`, "u");

/**
 * Cut a text where words of a query begin and end: texts, and marks for what is found.
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
