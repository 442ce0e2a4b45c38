// What every page has around its own: looks, language, keys, the banner of a failed base.

import { at, call, get, post } from "./api.js";
import { show, tried } from "./dialog.js";
import { byId, data, el } from "./html.js";
import { localise, t, tellTimes } from "./words.js";

const YEAR = 31_536_000;
const MINUTE = 60_000; // milliseconds
const PAGES = { o: "overview", d: "documents", s: "search", a: "ask", g: "graph", c: "cards", q: "queue", t: "activity", e: "settings" };

localise(document);
document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone they are a strip
setInterval(() => document.hidden || tellTimes(document), MINUTE / 4);

/** @param {string} name @param {string} value */
const remember = (name, value) => (document.cookie = `${name}=${value}; path=/; max-age=${YEAR}; samesite=strict`);

document.addEventListener("change", (event) => {
  const chosen = /** @type {HTMLInputElement} */ (event.target);
  if (chosen.name === "theme" && chosen.closest(".choices")) {
    remember("holdfast_theme", chosen.value);
    document.documentElement.dataset.theme = chosen.value;
  }
  if (chosen.name === "language" && chosen.closest(".choices")) {
    remember("holdfast_language", chosen.value);
    location.reload();
  }
});

document.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  for (const open of document.querySelectorAll("details[data-picker][open]")) {
    if (!open.contains(target) || target.closest("li button")) open.removeAttribute("open");
  }
  const repair = target.closest("[data-repair]");
  if (repair) tried(() => post(`${at(repair.getAttribute("data-repair") ?? "")}:repair`)).then((done) => done && location.reload());
});

// ---------------------------------------------------------------- keys

let going = 0; // until when a letter means a page

/** @param {EventTarget | null} target */
const typing = (target) => target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape") {
    for (const open of document.querySelectorAll("details[data-picker][open]")) {
      if (open.contains(document.activeElement)) open.querySelector("summary")?.focus();
      open.removeAttribute("open");
    }
    if (typing(event.target)) /** @type {HTMLElement} */ (event.target).blur();
    return;
  }
  if (typing(event.target) || document.querySelector("dialog[open]")) return;
  if (event.key === "/") {
    const box = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-find]"));
    if (!box) return;
    event.preventDefault();
    box.focus();
    box.select();
  } else if (event.key === "?") {
    event.preventDefault();
    help();
  } else if (going > Date.now()) {
    going = 0;
    const page = PAGES[/** @type {keyof typeof PAGES} */ (event.key)];
    /** @type {HTMLAnchorElement | null} */ (document.querySelector(`.side [data-go="${page}"]`))?.click();
  } else if (event.key === "g") {
    going = Date.now() + 1500;
  }
});

function help() {
  const lines = [["/", "search"], ["?", "help"], ["↑ ↓", "move"], ["Enter", "open"], ["Space", "select"], ["Esc", "escape"], ["g …", "go"]];
  const rows = lines.map(([key, name]) => el("tr", {}, el("td", {}, el("kbd", { class: "mono" }, key)), el("td", {}, t(`keys.${name}`))));
  show(t("keys.title"), [el("table", {}, el("tbody", {}, ...rows))]);
}

// What needs scripts is shown once they have all run: a click on it before that would do nothing.
const others = [...document.querySelectorAll('script[type="module"]')].map((one) => /** @type {HTMLScriptElement} */ (one).src).filter((one) => one !== import.meta.url);
Promise.allSettled(others.map((one) => import(one))).then(() => (document.documentElement.dataset.ready = ""));

// ---------------------------------------------------------------- who is here

if (data.cursor !== undefined) {
  const session = await get("/session").catch(() => null);
  const leave = byId("signout");
  if (session?.signed_in && leave) {
    leave.hidden = false;
    leave.addEventListener("click", () => tried(() => call("DELETE", "/session")).then(() => location.assign("/signin")));
  }
}
