// Sign-in: the key is sent once; the server keeps it in a cookie that scripts cannot read.

import { ApiError, ServerUnreachable, post } from "../api.js";
import { byId, pageData } from "../html.js";
import { explainProblem, t } from "../i18n.js";

const form = byId("signin");
const input = form.elements.key;
let busy = false;

/** @param {string} why */
function refuse(why) {
  byId("signin-trouble").textContent = why;
  input.setAttribute("aria-invalid", "true");
  input.focus();
  input.select();
}

form.addEventListener("submit", async (/** @type {Event} */ event) => {
  event.preventDefault();
  if (busy) return;
  busy = true;
  try {
    await post("/session", { key: input.value.trim() });
    location.replace(pageData.next);
  } catch (error) {
    if (error instanceof ServerUnreachable) refuse(t("problem.offline"));
    else if (error instanceof ApiError) refuse(error.status === 401 ? t("signin.wrong") : explainProblem(error));
    else throw error;
  } finally {
    busy = false;
  }
});
form.addEventListener("input", () => {
  byId("signin-trouble").textContent = "";
  input.removeAttribute("aria-invalid");
});
form.hidden = false;
input.focus();
