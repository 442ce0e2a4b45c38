// Shared by all pages: theme, language, keyboard shortcuts, sign-out, repair of a failed base.

import { basePath, get, post, request } from "./api.js";
import { openDialog, tryOrNotify } from "./dialog.js";
import { byId, el, pageData } from "./html.js";
import { localise, localiseTimes, t } from "./i18n.js";

const YEAR = 31_536_000;
const MINUTE = 60_000;
const PAGES = { o: "overview", d: "documents", s: "search", a: "ask", g: "graph", c: "cards", q: "queue", t: "activity", e: "settings" };

localise(document);
document.querySelector(".side [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone the navigation scrolls sideways
setInterval(() => document.hidden || localiseTimes(document), MINUTE / 4);

/** @param {string} name @param {string} value */
const setCookie = (name, value) => (document.cookie = `${name}=${value}; path=/; max-age=${YEAR}; samesite=strict`);

document.addEventListener("change", (event) => {
  const chosen = /** @type {HTMLInputElement} */ (event.target);
  if (chosen.name === "theme" && chosen.closest(".choices")) {
    setCookie("holdfast_theme", chosen.value);
    document.documentElement.dataset.theme = chosen.value;
  }
  if (chosen.name === "language" && chosen.closest(".choices")) {
    setCookie("holdfast_language", chosen.value);
    location.reload();
  }
});

document.addEventListener("click", (event) => {
  const target = /** @type {Element} */ (event.target);
  for (const open of document.querySelectorAll("details[data-picker][open]")) {
    if (!open.contains(target) || target.closest("li button")) open.removeAttribute("open");
  }
  const repair = target.closest("[data-repair]");
  if (repair) tryOrNotify(() => post(`${basePath(repair.getAttribute("data-repair") ?? "")}:repair`)).then((done) => done && location.reload());
});

let pageKeyUntil = 0; // until then a letter opens a page, after "g"

/** @param {EventTarget | null} target */
const isEditable = (target) => target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape") {
    for (const open of document.querySelectorAll("details[data-picker][open]")) {
      if (open.contains(document.activeElement)) open.querySelector("summary")?.focus();
      open.removeAttribute("open");
    }
    if (isEditable(event.target)) /** @type {HTMLElement} */ (event.target).blur();
    return;
  }
  if (isEditable(event.target) || document.querySelector("dialog[open]")) return;
  if (event.key === "/") {
    const box = /** @type {HTMLInputElement | null} */ (document.querySelector("[data-find]"));
    if (!box) return;
    event.preventDefault();
    box.focus();
    box.select();
  } else if (event.key === "?") {
    event.preventDefault();
    showShortcuts();
  } else if (pageKeyUntil > Date.now()) {
    pageKeyUntil = 0;
    const page = PAGES[/** @type {keyof typeof PAGES} */ (event.key)];
    /** @type {HTMLAnchorElement | null} */ (document.querySelector(`.side [data-go="${page}"]`))?.click();
  } else if (event.key === "g") {
    pageKeyUntil = Date.now() + 1500;
  }
});

function showShortcuts() {
  const lines = [["/", "search"], ["?", "help"], ["↑ ↓", "move"], ["Enter", "open"], ["Space", "select"], ["Esc", "escape"], ["g …", "go"]];
  const rows = lines.map(([key, name]) => el("tr", {}, el("td", {}, el("kbd", { class: "mono" }, key)), el("td", {}, t(`keys.${name}`))));
  openDialog(t("keys.title"), [el("table", {}, el("tbody", {}, ...rows))]);
}

// Controls that need scripts appear once all scripts have run: an earlier click would do nothing.
const others = [...document.querySelectorAll('script[type="module"]')].map((one) => /** @type {HTMLScriptElement} */ (one).src).filter((one) => one !== import.meta.url);
Promise.allSettled(others.map((one) => import(one))).then(() => (document.documentElement.dataset.ready = ""));

if (pageData.cursor !== undefined) {
  const session = await get("/session").catch(() => null);
  const leave = byId("signout");
  if (session?.signed_in && leave) {
    leave.hidden = false;
    leave.addEventListener("click", () => tryOrNotify(() => request("DELETE", "/session")).then(() => location.assign("/signin")));
  }
}
