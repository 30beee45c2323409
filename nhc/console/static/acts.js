// Acts: each says what it concerns, is confirmed by typing that, and is sent once.

import { ask, done } from "/static/app.js";
import { el, howMany } from "/static/dom.js";

// One act: its fields and a button that sends it. Enter in a field sends nothing.
function act(title, parts, label, path, body, said, kind = "") {
  const note = el("p", { role: "alert" });
  const button = el("button", { type: "button" }, label);
  const hint = (event) => { event.preventDefault(); note.textContent = `Nothing was sent. Press the button ${label}.`; };
  const form = el("form", { class: "act", onsubmit: hint, onkeydown: (event) => { if (event.key === "Enter" && event.target.matches("input")) hint(event); } }, ...parts, el("div", {}, button));
  button.addEventListener("click", async () => {
    if (!form.reportValidity()) return;
    button.disabled = true;
    try {
      await done(said(await ask(path, body(new FormData(form)))));
    } catch (error) {
      note.textContent = error.message;
      button.disabled = false;
    }
  });
  return el("section", { class: `card ${kind}`, "aria-label": title }, el("h2", {}, title), form, note);
}

const nameField = (episode) => el("label", {}, `Type the node's name, ${episode.node}`, el("input", { name: "confirm", autocomplete: "off", required: true }));

// Two acts, apart from one another: the one repairs, the other leaves the node as it is.
export function decisionForms(episode) {
  const send = (decision) => (data) => ({ decision, digest: episode.digest, confirm: String(data.get("confirm")), reason: String(data.get("reason")) });
  const path = `/api/episode/${episode.id}/decision`, said = (value) => `Written down: ${value.decision} by ${value.by}.`;
  const what = `${episode.rung} of ${episode.node}${episode.device ? `, ${episode.device}` : ""}`;
  return [
    act("Agree", [el("p", {}, `This agrees to: ${what}. The fault is judged again before anything is sent.`), nameField(episode), el("label", {}, "Reason", el("input", { name: "reason", maxlength: 500 }))],
      `Agree to ${episode.rung}`, path, send("approved"), said, "agree"),
    act("Refuse", [el("p", {}, `This refuses: ${what}. The node stays as it is, and the episode goes to a person.`), el("input", { type: "hidden", name: "confirm", value: episode.node }), el("label", {}, "Why", el("input", { name: "reason", required: true, maxlength: 500 }))],
      "Refuse", path, send("refused"), said, "refuse"),
  ];
}

// One decision about nodes with one cause and one repair, confirmed by typing their set.
export function alikeForms(alike) {
  const send = (decision) => (data) => ({ decision, episodes: alike.episodes, confirm: String(data.get("confirm")), reason: String(data.get("reason")) });
  const written = (value) => `Written down: ${value.decision} by ${value.by} for ${howMany(value.count)}, ${value.nodes}.${value.refused.length ? ` Not for ${value.refused.join("; ")}.` : ""}`;
  const set = () => el("label", {}, `Type the set of nodes, ${alike.nodes}`, el("input", { name: "confirm", autocomplete: "off", required: true }));
  const why = (required) => el("label", {}, required ? "Why" : "Reason", el("input", { name: "reason", required, maxlength: 500 }));
  const title = `${alike.rung} of ${alike.nodes}, ${alike.reason || alike.check}`;
  return el("details", { class: "card" }, el("summary", {}, `Decide about ${howMany(alike.count)} alike: ${title}`),
    act(`Agree to ${title}`, [el("p", {}, "The fault of each node is judged again before anything is sent, and the loop stays within its bounds."), set(), why(false)], `Agree to ${alike.rung} of ${howMany(alike.count)}`, "/api/decisions", send("approved"), written, "agree"),
    act(`Refuse ${title}`, [el("p", {}, "The nodes stay as they are, and each episode goes to a person."), set(), why(true)], `Refuse ${alike.rung} of ${howMany(alike.count)}`, "/api/decisions", send("refused"), written, "refuse"));
}

export function abortForm(episode) {
  return act("Abort", [el("p", {}, `This ends episode ${episode.id}. ${episode.node} stays as it is; a repair that was sent is not taken back.`), nameField(episode), el("label", {}, "Why", el("input", { name: "reason", required: true, maxlength: 500 }))],
    "Abort", `/api/episode/${episode.id}/abort`, (data) => ({ digest: episode.digest, confirm: String(data.get("confirm")), reason: String(data.get("reason")) }), (value) => `Written down: ${value.said}.`, "refuse");
}

export function holdForm(scope, name, count) {
  const shown = el("p", {}, count === null ? "" : "It concerns 1 node.");
  const field = el("input", { name: "name", value: name, required: true, autocomplete: "off", placeholder: "rack=r12", onchange: async () => {
    try {
      const value = await ask(`/api/hold/preview?scope=${scope}&name=${encodeURIComponent(field.value)}`);
      shown.textContent = `It concerns ${howMany(value.count)}: ${value.nodes}`;
    } catch (error) { shown.textContent = error.message; }
  } });
  return act(scope === "group" ? "Hold a group" : "Hold this node", [
    scope === "group" ? el("label", {}, "Group, as fact=value", field) : el("input", { type: "hidden", name: "name", value: name }),
    shown,
    el("label", {}, "Why", el("input", { name: "why", required: true, maxlength: 500 })),
    el("label", {}, "For", el("select", { name: "until" }, [["1 hour", 3600], ["8 hours", 28800], ["3 days", 259200], ["until it is released", ""]].map(([text, value]) => el("option", { value }, text)))),
    el("label", {}, "Type the number of nodes", el("input", { name: "confirm", inputmode: "numeric", autocomplete: "off", required: true })),
  ], "Hold", "/api/hold", (data) => ({
    scope, name: String(data.get("name")), why: String(data.get("why")), until: String(data.get("until")), confirm: String(data.get("confirm")),
  }), (value) => `Held: ${howMany(value.nodes)}. Nothing is done to ${value.nodes === 1 ? "it" : "them"}.`);
}

export function releaseForm(hold) {
  const note = el("span", { role: "alert" });
  const button = el("button", { type: "button", "aria-label": `Release ${hold.scope} ${hold.name}`, onclick: async () => {
    button.disabled = true;
    try {
      await ask("/api/release", { scope: hold.scope, name: hold.name, why: "released on the page" });
      await done(`Released: ${hold.scope} ${hold.name}.`);
    } catch (error) { note.textContent = error.message; button.disabled = false; }
  } }, "Release");
  return el("span", {}, button, note);
}
