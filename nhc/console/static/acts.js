// Acts: each says what it concerns, is confirmed by typing that, and is sent once.

import { ask, go } from "/static/app.js";
import { el, howMany } from "/static/dom.js";

function sender(form, note, path, body, done) {
  return async (event) => {
    event.preventDefault();
    const buttons = [...form.querySelectorAll("button")];
    buttons.forEach((button) => { button.disabled = true; });
    try {
      const value = await ask(path, body(new FormData(form), event.submitter));
      note.textContent = done(value);
      form.reset();
    } catch (error) { note.textContent = error.message; }
    buttons.forEach((button) => { button.disabled = false; });
  };
}

export function decisionForm(one) {
  const note = el("p", { role: "alert" });
  const form = el("form", { class: "act" },
    el("p", {}, `This agrees to: ${one.rung} of ${one.node}${one.device ? `, ${one.device}` : ""}. The fault is judged again before anything is sent.`),
    el("label", {}, `Type the node's name, ${one.node}`, el("input", { name: "confirm", autocomplete: "off", required: true })),
    el("label", {}, "Reason", el("input", { name: "reason", maxlength: 500 })),
    el("div", { class: "bar" }, el("button", { name: "decision", value: "approved" }, "Agree"), el("button", { name: "decision", value: "refused" }, "Refuse")));
  form.addEventListener("submit", sender(form, note, `/api/episode/${one.id}/decision`, (data, button) => ({
    decision: button?.value ?? "", digest: one.digest, confirm: String(data.get("confirm")), reason: String(data.get("reason")),
  }), (value) => `Written down: ${value.decision} by ${value.by}.`));
  return el("section", { class: "card", "aria-label": "Decision" }, el("h2", {}, "Decide"), form, note);
}

export function abortForm(one) {
  const note = el("p", { role: "alert" });
  const form = el("form", { class: "act" },
    el("p", {}, `This ends episode ${one.id}. ${one.node} stays as it is; a repair that was sent is not taken back.`),
    el("label", {}, `Type the node's name, ${one.node}`, el("input", { name: "confirm", autocomplete: "off", required: true })),
    el("label", {}, "Why", el("input", { name: "reason", required: true, maxlength: 500 })),
    el("div", {}, el("button", {}, "Abort")));
  form.addEventListener("submit", sender(form, note, `/api/episode/${one.id}/abort`, (data) => ({
    digest: one.digest, confirm: String(data.get("confirm")), reason: String(data.get("reason")),
  }), (value) => `Written down: ${value.said}.`));
  return el("section", { class: "card", "aria-label": "Abort" }, el("h2", {}, "Abort"), form, note);
}

export function holdForm(scope, name, count) {
  const note = el("p", { role: "alert" });
  const shown = el("p", {}, count === null ? "" : "It concerns 1 node.");
  const field = el("input", { name: "name", value: name, required: true, autocomplete: "off", placeholder: "rack=r12", onchange: async () => {
    try {
      const value = await ask(`/api/hold/preview?scope=${scope}&name=${encodeURIComponent(field.value)}`);
      shown.textContent = `It concerns ${howMany(value.count)}: ${value.nodes}`;
    } catch (error) { shown.textContent = error.message; }
  } });
  const form = el("form", { class: "act" },
    scope === "group" ? el("label", {}, "Group, as fact=value", field) : el("input", { type: "hidden", name: "name", value: name }),
    shown,
    el("label", {}, "Why", el("input", { name: "why", required: true, maxlength: 500 })),
    el("label", {}, "For", el("select", { name: "until" }, [["1 hour", 3600], ["8 hours", 28800], ["3 days", 259200], ["until it is released", ""]].map(([text, value]) => el("option", { value }, text)))),
    el("label", {}, "Type the number of nodes", el("input", { name: "confirm", inputmode: "numeric", autocomplete: "off", required: true })),
    el("div", {}, el("button", {}, "Hold")));
  form.addEventListener("submit", sender(form, note, "/api/hold", (data) => ({
    scope, name: String(data.get("name")), why: String(data.get("why")), until: String(data.get("until")), confirm: String(data.get("confirm")),
  }), (value) => `Held: ${howMany(value.nodes)}. Nothing is done to ${value.nodes === 1 ? "it" : "them"}.`));
  return el("section", { class: "card", "aria-label": "Hold" }, el("h2", {}, scope === "group" ? "Hold a group" : "Hold this node"), form, note);
}

export function releaseForm(one) {
  const note = el("span", { role: "alert" });
  const form = el("form", {}, el("button", { "aria-label": `Release ${one.scope} ${one.name}` }, "Release"));
  form.addEventListener("submit", sender(form, note, "/api/release", () => ({ scope: one.scope, name: one.name, why: "released on the page" }), () => { go(location.pathname); return "Released."; }));
  return el("span", {}, form, note);
}
