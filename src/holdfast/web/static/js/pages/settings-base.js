// One base: its settings, the progress of their rollout, and actions on the whole base.

import { basePath, get, post, request } from "../api.js";
import { showNotice, tryOrNotify } from "../dialog.js";
import { checkedValues, confirmByName, errorOf, labelledField, openForm } from "../forms.js";
import { byId, el, pageData } from "../html.js";
import { explainProblem, formatNumber, formatTotal, t } from "../i18n.js";
import { coalesced, followEvents } from "../stream.js";

const NUMBERS = ["chunk_size", "chunk_overlap", "budget_tokens", "jobs_per_day"];
const TEXTS = ["embedding", "chat", "on_duplicate", "tenant"];
const name = pageData.base;
const form = byId("base-settings");
let base = pageData.one;
let counts = pageData.counts;

/** @returns {Record<string, any>} */
function formValues() {
  const fields = form.elements;
  return {
    indexes: checkedValues(form, "indexes"),
    ...Object.fromEntries(NUMBERS.map((one) => [one, fields[one].value === "" ? null : Number(fields[one].value)])),
    ...Object.fromEntries(TEXTS.map((one) => [one, fields[one].value])),
    missing_share: Number(fields.missing_share.value) / 100,
    languages: fields.languages.value.split(/[\s,，、]+/).filter(Boolean),
    auto_index: fields.auto_index.checked,
  };
}

/** Compare two values of a setting; the order of indexes does not matter. @param {any} one @param {any} other @param {string} key */
const isSameValue = (one, other, key) => JSON.stringify(key === "indexes" ? [...one].sort() : one) === JSON.stringify(key === "indexes" ? [...other].sort() : other);

/** Return the changed settings. Only these are sent, so that concurrent changes of other settings stay. */
function changes() {
  return Object.fromEntries(Object.entries(formValues()).filter(([key, one]) => !isSameValue(one, base.settings[key], key)));
}

/** Fill the form with the settings of the base. @param {Record<string, any>} [typed] unsaved changes of the user; their fields stay */
function fill(typed = {}) {
  const fields = form.elements;
  const free = (/** @type {string} */ one) => !(one in typed);
  for (const one of [...NUMBERS, ...TEXTS].filter(free)) fields[one].value = base.settings[one] ?? "";
  if (free("missing_share")) fields.missing_share.value = Math.round(base.settings.missing_share * 1e6) / 1e4;
  if (free("languages")) fields.languages.value = base.settings.languages.join(", ");
  if (free("auto_index")) fields.auto_index.checked = base.settings.auto_index;
  if (free("indexes")) for (const box of form.querySelectorAll('[name="indexes"]')) box.checked = base.settings.indexes.includes(box.value);
}

/** Show why indexes of the settings are not enabled. */
function paintReasons() {
  for (const part of form.querySelectorAll("[data-reason]")) {
    const kind = part.dataset.reason;
    const why = base.not_enabled[kind];
    if (why || base.settings.indexes.includes(kind)) {
      part.hidden = !why;
      part.textContent = why ? t("settings.not_enabled", { reason: explainProblem(why) }) : "";
    }
  }
}

async function save() {
  const saved = byId("saved");
  const given = changes();
  saved.classList.remove("trouble");
  if (!Object.keys(given).length) return (saved.textContent = t("settings.unchanged"));
  const why = await errorOf(async () => {
    base = await request("PATCH", basePath(name), { body: given });
    counts = await loadCounts();
  });
  saved.classList.toggle("trouble", Boolean(why));
  saved.textContent = why || t("settings.saved");
  if (why) return;
  fill();
  paint();
}

function paint() {
  const rollout = base.rollout;
  byId("rollout").hidden = !rollout;
  byId("rollout-text").textContent = rollout?.total ? t("settings.rollout_done", { done: formatNumber(rollout.done), total: formatNumber(rollout.total) }) : t("settings.rollout_meanwhile");
  const bar = byId("rollout-bar");
  if (rollout?.total) bar.value = rollout.done / rollout.total;
  else bar.removeAttribute("value");
  const standing = byId("standing");
  standing.dataset.status = base.status;
  standing.textContent = t(`settings.base_${base.status}`);
  byId("documents").textContent = formatNumber(counts.documents);
  byId("documents").toggleAttribute("data-more", counts.more.length > 0);
  paintReasons();
}

const loadCounts = () => get(`${basePath(name)}/counts`).catch(() => counts);

async function refresh() {
  const before = base;
  const now = await get(basePath(name)).catch(() => null);
  if (!now) return;
  counts = await loadCounts();
  if (base !== before) return scheduleRefresh(); // saved during the request: this answer is older
  if (Boolean(base.problem) !== Boolean(now.problem)) location.reload();
  const typed = changes();
  base = now;
  fill(typed);
  paint();
}

/** Open the page of the renamed base, or the list if it was deleted. */
async function goToBase() {
  const found = (await get("/bases").catch(() => [])).find((/** @type {any} */ one) => one.id === pageData.one.id);
  location.replace(found ? `/settings?base=${encodeURIComponent(found.name)}` : "/settings?tab=bases");
}

const scheduleRefresh = coalesced(refresh);
// Follow all bases: a stream of this base could not be opened after its deletion.
const isThisBase = (/** @type {{base: any}} */ message) => Number(message.base) === pageData.one.id;
followEvents({
  event: (event) => isThisBase(event) && (event.type === "base.renamed" || event.type === "base.deleted" ? goToBase() : scheduleRefresh()),
  progress: (message) => isThisBase(message) && message.owner === "rollout" && scheduleRefresh(),
  reset: scheduleRefresh,
});

/** Cancel the rollout: updated documents stay updated, and the others keep their old indexes. */
async function cancelRollout() {
  await tryOrNotify(() => post(`/jobs/${encodeURIComponent(base.rollout_job)}:cancel`));
  scheduleRefresh();
}

const BASE_ACTIONS = {
  rename: () => {
    const to = el("input", { type: "text", required: true, maxlength: 200, value: name, autofocus: true, autocomplete: "off" });
    openForm(t("settings.rename"), [labelledField(t("settings.rename_to"), to)], t("settings.rename"), async () => {
      const now = await request("PATCH", basePath(name), { body: { name: to.value } });
      location.replace(`/settings?base=${encodeURIComponent(now.name)}`);
    });
  },
  clear: () =>
    confirmByName(t("settings.clear"), t("settings.clear_sure", { name, count: formatTotal(counts.documents, !counts.more.length) }), name, async () => {
      /** @type {BulkSummary} */
      const { jobs } = await post(`${basePath(name)}:clear`);
      const link = jobs[0] ? { href: `/queue#job-${encodeURIComponent(jobs[0])}`, text: t("documents.bulk_show") } : undefined;
      showNotice(t("settings.cleared", { name }), { link });
    }),
  delete: () =>
    confirmByName(t("settings.delete"), t("settings.delete_sure", { name, count: formatTotal(counts.documents, !counts.more.length) }), name, async () => {
      await request("DELETE", basePath(name));
      location.replace("/settings?tab=bases");
    }),
};

if (pageData.scope === "admin") {
  form.querySelector("fieldset").disabled = false;
  byId("saving").hidden = false;
  byId("rollout").append(el("button", { type: "button", onclick: cancelRollout }, t("settings.rollout_cancel")));
  for (const [deed, run] of Object.entries(BASE_ACTIONS)) {
    const danger = deed === "rename" ? null : "danger";
    document.querySelector(`[data-deed="${deed}"]`)?.append(el("button", { type: "button", class: danger, onclick: run }, `${t(`settings.${deed}`)}…`));
  }
}
form.addEventListener("submit", (/** @type {Event} */ event) => {
  event.preventDefault();
  save();
});
form.addEventListener("input", () => (byId("saved").textContent = ""));
paint();
