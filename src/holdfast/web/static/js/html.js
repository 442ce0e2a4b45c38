// Making elements. What is put into a template is text, never markup: nothing of a document can become part of the page.

/**
 * Make an element: its attributes, then its children. A handler is an attribute that begins with "on"; null and false
 * leave an attribute out.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.filter((one) => one !== null && one !== undefined && one !== false).map((one) => (one instanceof Node ? one : String(one))));
  return made;
}

/** @param {string} name */
export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(space, "use");
  use.setAttribute("href", `/static/icons.svg#${name}`);
  svg.append(use);
  return svg;
}

/**
 * Make an SVG element.
 * @param {string} name
 * @param {Record<string, string | number>} [attributes]
 * @param {...(Node | string)} children
 */
export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  made.append(...children);
  return made;
}

/**
 * Return the element with an id, which is there.
 * @param {string} id
 * @returns {any}
 */
export const byId = (id) => document.getElementById(id);

/**
 * Return the part of a row, card or page with a field.
 * @param {Element} within
 * @param {string} name
 * @returns {HTMLElement | null}
 */
export const field = (within, name) => within.querySelector(`[data-field="${name}"]`);

/**
 * Put something into the part of a row with a field.
 * @param {Element} within
 * @param {string} name
 * @param {string | Node} content
 */
export const setContent = (within, name, content) => field(within, name)?.replaceChildren(content);

/**
 * Write a text into the part of a row with a field, unless it is there already.
 * @param {Element} within
 * @param {string} name
 * @param {string} text
 * @param {{hide?: boolean, title?: boolean}} [options] `hide` hides the part while it has no text, `title` repeats the text as its title
 */
export function setText(within, name, text, { hide = false, title = false } = {}) {
  const part = field(within, name);
  if (!part) return;
  if (hide) part.hidden = !text;
  if (part.textContent !== text) part.textContent = text;
  if (title) part.title = text;
}

/** What the server gave this page to begin with. @type {any} */
export const pageData = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
