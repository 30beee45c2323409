// The page: which screen stands in the address, one stream of changes for all tabs, and what the person may do.

import { age, el, link, WORDS } from "/static/dom.js";
import { SCREENS } from "/static/views.js";

const main = document.getElementById("main");
const state = document.getElementById("state");
export const page = { me: null, layout: null, fleet: null, screen: null, age: 0 };

export async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, { credentials: "same-origin", ...options });
  const value = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw Object.assign(new Error(value.error || String(answer.status)), { status: answer.status });
  return value;
}

export const say = (text) => { document.getElementById("said").textContent = text; };

export const may = (right) => page.me !== null && page.me.rights.includes(right);

export function go(path, replace = false) {
  if (replace) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
  return replace ? Promise.resolve() : show();
}

function wanted() {
  const [, , name = "map", ...rest] = location.pathname.split("/");
  return { name: name || "map", rest: rest.map(decodeURIComponent), query: new URLSearchParams(location.search) };
}

async function show() {
  const { name, rest, query } = wanted();
  const screen = Object.hasOwn(SCREENS, name) ? SCREENS[name] : { title: "No such screen", show: async () => { throw new Error(`there is no screen called ${name}`); } };
  document.title = `${screen.title} · nhc console`;
  navigation(name);
  page.screen = null;
  try {
    const made = await screen.show(rest, query);
    main.replaceChildren(...made.content);
    page.screen = made;
    made.ready?.();
  } catch (error) {
    main.replaceChildren(el("h1", {}, screen.title), el("p", { class: "error" }, error.message), error.status === 401 ? login() : "");
  }
  main.dataset.screen = name;
}

function navigation(current) {
  const shown = Object.entries(SCREENS).filter(([, screen]) => !screen.hidden && (!screen.right || may(screen.right)) && (!screen.store || page.me?.store));
  document.getElementById("nav").replaceChildren(...shown.map(([name, screen]) =>
    el("a", { href: `/view/${name}`, "aria-current": name === current ? "page" : null }, screen.title)));
}

function login() {
  const form = el("form", { class: "act", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await ask("/login", { token: new FormData(form).get("token") });
      location.reload();
    } catch (error) { note.textContent = error.message; }
  } }, el("input", { name: "username", autocomplete: "username", hidden: true, value: "token" }), el("label", {}, "Token ", el("input", { name: "token", type: "password", autocomplete: "current-password", required: true })),
  el("button", {}, "Log in"));
  const note = el("p", { role: "alert" });
  return el("div", { class: "card" }, el("h2", {}, "Log in"), form, note);
}

function person() {
  const box = document.getElementById("who");
  if (page.me.name) {
    const out = el("button", { type: "button", onclick: async () => { await ask("/logout", {}); location.reload(); } }, "Log out");
    box.replaceChildren(`${page.me.name} (${page.me.roles.join(", ") || "no role"}) `, page.me.door === "token" ? out : "");
  } else box.replaceChildren(link("/view/login", "Log in"));
}

SCREENS.login = { title: "Log in", hidden: true, show: async () => ({ content: [el("h1", {}, "Log in"), login()] }) };

// The stream. One tab of a browser holds it and hands on what it hears: browsers allow six connections to a host.

const channel = new BroadcastChannel("nhc");
channel.onmessage = (event) => heard(event.data);

function stream() {
  const source = new EventSource("/api/stream");
  for (const kind of ["beat", "letters", "layout", "problems", "episodes", "holds", "trouble", "resync"]) {
    source.addEventListener(kind, (event) => {
      const message = { kind, data: JSON.parse(event.data) };
      channel.postMessage(message);
      heard(message);
    });
  }
  source.onerror = () => { channel.postMessage({ kind: "lost", data: {} }); heard({ kind: "lost", data: {} }); };
  return new Promise(() => {}); // for as long as the tab lives
}

let lost = false;
let trouble = "";
let beat = Date.now();

function heard({ kind, data }) {
  if (kind === "lost") { lost = true; return status(); }
  lost = false;
  beat = Date.now();
  if (kind === "trouble") trouble = data.why;
  if (kind === "beat" && page.fleet) { page.fleet.counts = data.counts; page.fleet.at = data.at; }
  if (kind === "letters" && page.fleet && page.fleet.layout === data.layout) {
    const letters = [...page.fleet.letters];
    for (const [index, letter] of data.changes) letters[index] = letter;
    page.fleet.letters = letters.join("");
  }
  // What is being typed, selected or scrolled stays: a screen changes its own parts, or is left as it is.
  page.screen?.heard?.(kind, data);
  status();
}

function status() {
  const late = Date.now() - beat > 30000;
  const text = lost ? "The stream is lost: what is shown may be old. Trying again." : late ? `Nothing was heard for ${age((Date.now() - beat) / 1000)}: what is shown may be old.` : trouble ? `The fleet cannot be read (${trouble}): the last picture is shown.` : counts();
  state.className = lost || late || trouble ? "trouble" : "";
  if (state.textContent !== text) state.textContent = text;
}

function counts() {
  if (!page.fleet) return "";
  return [..."cuwsno"].filter((one) => page.fleet.counts[one]).map((one) => `${page.fleet.counts[one].toLocaleString("en")} ${WORDS[one]}`).join(" · ");
}

export async function fleet() {
  if (!page.layout || !page.fleet || page.fleet.layout !== page.layout.layout) {
    [page.layout, page.fleet] = await Promise.all([ask("/api/layout"), ask("/api/fleet")]);
    trouble = page.fleet.trouble ?? "";
  }
  return page;
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href^='/']");
  if (!anchor || event.metaKey || event.ctrlKey || event.shiftKey || anchor.hasAttribute("download")) return;
  event.preventDefault();
  go(anchor.getAttribute("href")).then(() => main.focus({ preventScroll: true }));
});
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  go(`/view/find?text=${encodeURIComponent(new FormData(event.target).get("text"))}`);
});
addEventListener("popstate", show);
setInterval(status, 5000);

async function start() {
  page.me = await ask("/api/me");
  person();
  if (may("state")) {
    await fleet().catch(() => {});
    if (navigator.locks) navigator.locks.request("nhc-stream", stream);
    else stream();
  }
  await show();
  status();
  document.body.dataset.ready = "yes";
}

start().catch((error) => main.replaceChildren(el("p", { class: "error" }, error.message)));
