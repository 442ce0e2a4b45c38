// Makes elements. Content is always inserted as text, never as markup, so documents cannot inject HTML.

/**
 * Make an element with attributes and children. An attribute that begins with "on" is an event handler; null and false
 * omit an attribute. Example: `el("button", { type: "button", onclick: save }, t("save"))`.
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
 * Return the element with an id. It is typed as present; check it where a page may lack it.
 * @param {string} id
 * @returns {any}
 */
export const byId = (id) => document.getElementById(id);

/**
 * Clone the first element of a `<template>`.
 * @param {string} id
 * @returns {any}
 */
export const cloneTemplate = (id) => byId(id).content.firstElementChild.cloneNode(true);

/**
 * Return the element of a row, card or page that has `data-field="name"`.
 * @param {Element} within
 * @param {string} name
 * @returns {HTMLElement | null}
 */
export const field = (within, name) => within.querySelector(`[data-field="${name}"]`);

/**
 * Replace the content of a field.
 * @param {Element} within
 * @param {string} name
 * @param {string | Node} content
 */
export const setContent = (within, name, content) => field(within, name)?.replaceChildren(content);

/**
 * Write a text into a field, unless it has that text already.
 * @param {Element} within
 * @param {string} name
 * @param {string} text
 * @param {{hide?: boolean, title?: boolean}} [options] `hide` hides the field while it has no text, `title` also sets its title
 */
export function setText(within, name, text, { hide = false, title = false } = {}) {
  const part = field(within, name);
  if (!part) return;
  if (hide) part.hidden = !text;
  if (part.textContent !== text) part.textContent = text;
  if (title) part.title = text;
}

/** The data that the server rendered into the page. @type {any} */
export const pageData = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
