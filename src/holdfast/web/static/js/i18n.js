// Translations, and numbers, sizes and times in the format of the browser's locale.

const root = document.documentElement;
export const language = root.lang.startsWith("zh") ? "zh" : "en";
export const locale = language === "zh" ? "zh-CN" : navigator.language.startsWith("en") ? navigator.language : "en";

/** @type {Record<string, string>} */
const texts = root.dataset.words ? await (await fetch(root.dataset.words)).json() : {};

/**
 * Return a text with its placeholders filled: `t("page.of", { from, to, total })`.
 * @param {string} key
 * @param {Record<string, unknown>} [values]
 */
export function t(key, values = {}) {
  return (texts[key] ?? key).replace(/\{(\w+)\}/g, (placeholder, name) => (name in values ? String(values[name]) : placeholder));
}

/**
 * Return a text, or `otherwise` if the catalogue has none.
 * @param {string} key
 * @param {string} otherwise
 */
export const translationOr = (key, otherwise) => texts[key] ?? otherwise;

/** @param {string} kind */
export const indexName = (kind) => translationOr(`index.${kind}`, kind);

/** @typedef {{code: string, message: string, params?: Record<string, string>, subcode?: string | null}} Explained */

/**
 * Explain a problem, or why work waits, in the reader's language if the catalogue has its code.
 * A placeholder without a value becomes "…".
 * @param {Explained | null} problem
 * @param {"problem" | "waits" | "reply"} [prefix]
 */
export function explainProblem(problem, prefix = "problem") {
  if (!problem) return "";
  if (problem.message && prefix === "problem" && language === "en") return problem.message; // a plug-in may have its own message for a code of ours
  const text = texts[`${prefix}.${problem.subcode}`] ?? texts[`${prefix}.${problem.code}`] ?? "{message}";
  const params = problem.params ?? {};
  /** @param {string} given @param {Record<string, string>} values */
  const fill = (given, values) => given.replace(/\{(\w+)\}/g, (_, name) => (name === "message" ? problem.message : name in values ? translateParameter(name, values[name]) : "…"));
  const cause = texts[`problem.${params.cause}`]; // the text of the problem that caused this one
  return fill(text, cause ? { ...params, cause: fill(cause, params) } : params);
}

/**
 * Explain an error of which only the code is known, such as the result of a job.
 * A text with parameters would have gaps, so the reader is sent to the document, which has the whole text.
 * @param {string} code
 */
export function explainCode(code) {
  const text = texts[`problem.${code}`] ?? code.replaceAll("_", " ");
  return text.includes("{") ? t("error.see_document") : text;
}

/** @param {Reply} reply */
export const explainReply = (reply) => (`reply.${reply.reason}` in texts ? explainProblem({ code: reply.reason, message: reply.message, params: { status: t(`status.${reply.status}`) } }, "reply") : t("done.accepted"));

/** @type {Record<string, string>} parameters of problems whose values the catalogue translates, with its section */
const NAMED = { kind: "index", state: "slot", stage: "stage", status: "status", why: "why" };

/** @param {string} name @param {string} value */
function translateParameter(name, value) {
  if (name === "at" || name === "since") return formatDate(value);
  return name in NAMED ? translationOr(`${NAMED[name]}.${value}`, value) : value;
}

const numbers = new Intl.NumberFormat(locale, { maximumFractionDigits: 1 });
const shares = new Intl.NumberFormat(locale, { style: "percent", maximumFractionDigits: 0 });
const dates = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });
const spans = new Intl.RelativeTimeFormat(locale, { numeric: "auto", style: "short" });

/** @param {number} value */
export const formatNumber = (value) => numbers.format(value);

export const MAX_COUNT = 10_000; // the server counts no further, see paging.py

/** Format a count that may be a lower limit: "10,000+". @param {number} value */
export const formatTotal = (value, exact = value < MAX_COUNT) => formatNumber(value) + (exact ? "" : "+");

/** @param {number} value */
export const formatPercent = (value) => shares.format(value);

/** @param {number} bytes */
export function formatSize(bytes) {
  let value = bytes;
  for (const unit of ["byte", "kilobyte", "megabyte", "gigabyte"]) {
    if (value < 1000 || unit === "gigabyte") {
      return new Intl.NumberFormat(locale, { style: "unit", unit, unitDisplay: unit === "byte" ? "narrow" : "short", maximumFractionDigits: value < 10 && unit !== "byte" ? 1 : 0 }).format(value);
    }
    value /= 1000;
  }
  return "";
}

/** Return the end of a job's id: it is random, while jobs of the same seconds begin alike. @param {string} id */
export const shortId = (id) => id.slice(-8);

/**
 * @param {number} seconds
 */
export function formatDuration(seconds) {
  /** @type {[string, number][]} */
  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const [unit, length] = units.find(([, one]) => seconds >= 2 * one) ?? ["second", 1];
  return new Intl.NumberFormat(locale, { style: "unit", unit, unitDisplay: "short", maximumFractionDigits: seconds < 10 ? 1 : 0 }).format(seconds / length);
}

/** Format a short time, such as processor time. @param {number} value */
export const formatMilliseconds = (value) => `${formatNumber(Math.round(value))} ms`;

/** @param {string | null} at */
export const formatDate = (at) => (at ? dates.format(new Date(at)) : "");

/**
 * Format a time relative to now, past or future.
 * @param {string} at
 */
export function formatAgo(at) {
  const seconds = (new Date(at).getTime() - Date.now()) / 1000;
  if (Math.abs(seconds) < 5) return t("ago.now");
  /** @type {[Intl.RelativeTimeFormatUnit, number][]} */
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  for (const [unit, length] of units) {
    if (Math.abs(seconds) >= length) return spans.format(Math.round(seconds / length), unit);
  }
  return spans.format(0, "second");
}

/**
 * Format every `<time>` within an element: relative during the first day, then as a date.
 * @param {ParentNode} within
 */
export function localiseTimes(within) {
  for (const one of within.querySelectorAll("time[datetime]")) {
    const at = one.getAttribute("datetime") ?? "";
    if (!at) continue;
    one.textContent = Date.now() - new Date(at).getTime() < 86_400_000 ? formatAgo(at) : formatDate(at);
    one.setAttribute("title", formatDate(at));
  }
}

/**
 * Format every time, size, duration and number within an element for the locale.
 * @param {ParentNode} within
 */
export function localise(within) {
  localiseTimes(within);
  for (const one of within.querySelectorAll("data.size")) one.textContent = one.getAttribute("value") ? formatSize(Number(one.getAttribute("value"))) : "–";
  for (const one of within.querySelectorAll("data.span")) one.textContent = formatDuration(Number(one.getAttribute("value")));
  for (const one of within.querySelectorAll("data.count")) one.textContent = formatNumber(Number(one.getAttribute("value")));
}
