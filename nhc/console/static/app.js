// The page: which screen stands in the address, one stream of changes for all tabs, and what the person may do.

import { age, el, local, released, replace, stamp, WORDS } from "/static/dom.js";
import { choices } from "/static/table.js";
import { GROUPS, SCREENS } from "/static/views.js";

const main = document.getElementById("main");
const state = document.getElementById("state");
export const page = { me: null, layout: null, fleet: null, missed: false, screen: null, shown: 0 };

// When somebody last used the page: what it asks by itself does not keep a session alive.
let usedAt = 0;
for (const kind of ["pointerdown", "keydown", "wheel"]) addEventListener(kind, () => { usedAt = Date.now(); }, { capture: true, passive: true });

// An address of this page's own server, else its first page. Compared as the browser reads it: "/\t/host" is another's.
export function ours(path) {
  try {
    const address = new URL(path, location.origin);
    if (path.startsWith("/") && address.origin === location.origin) return address.href;
  } catch { /* no address at all */ }
  return `${location.origin}/`;
}

export async function ask(path, body) {
  const options = body === undefined ? { headers: Date.now() - usedAt < 60000 ? { "X-Nhc-Attended": "yes" } : {} } : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, { credentials: "same-origin", ...options });
  const value = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw Object.assign(new Error(value.error || String(answer.status)), { status: answer.status });
  return value;
}

export const say = (text) => { document.getElementById("said").textContent = text; };

export const may = (right) => page.me !== null && page.me.rights.includes(right);

history.scrollRestoration = "manual"; // the content comes later than the browser would scroll

export function go(path, replace = false) {
  if (replace) { history.replaceState(history.state, "", path); return Promise.resolve(); }
  history.replaceState({ scroll: scrollY }, "");
  history.pushState(null, "", path);
  return show();
}

// Another address in place of this one: Back does not lead here again.
export function redirect(path) {
  history.replaceState(null, "", path);
  return show();
}

// How a table is sorted, filtered and turned stands in the address, with the rest of the view.
choices.get = (key) => new URLSearchParams(location.search).get(`table.${key}`) ?? "";
choices.set = (key, text) => {
  const query = new URLSearchParams(location.search);
  text ? query.set(`table.${key}`, text) : query.delete(`table.${key}`);
  go(`${location.pathname}${query.size ? `?${query}` : ""}`, true);
};

function wanted() {
  const [, , name = "", ...rest] = location.pathname.split("/");
  return { name: name || "needs", rest: rest.map(decodeURIComponent), query: new URLSearchParams(location.search) };
}

const screenOf = (name) => (Object.hasOwn(SCREENS, name) ? SCREENS[name] : { title: "No such screen", show: async () => { throw new Error(`there is no screen called ${name}`); } });

let showing = 0; // which call of `show` is the newest: an older one that is answered later is dropped

async function show(scroll = 0) {
  const turn = ++showing;
  const { name, rest, query } = wanted();
  const screen = screenOf(name);
  navigation(name);
  titled();
  page.screen = null;
  main.setAttribute("aria-busy", "true");
  const slow = setTimeout(() => { if (turn === showing) main.replaceChildren(el("h1", {}, screen.title), el("p", { class: "loading", role: "status" }, "Loading…")); }, 300);
  let made;
  try {
    made = await screen.show(rest, query);
  } catch (error) {
    made = { content: [el("h1", {}, screen.title), el("p", { class: "error" }, error.message), error.status === 401 || error.status === 403 ? login(el("h2", {}, "Log in")) : ""] };
  }
  clearTimeout(slow);
  if (turn !== showing) return;
  put(made);
  scrollTo(0, scroll);
  main.dataset.screen = name;
  main.removeAttribute("aria-busy");
}

function put(made, renewed = false) {
  const content = made.content.flat(Infinity);
  renewed ? replace(main, ...content) : main.replaceChildren(...content);
  page.screen = made;
  page.shown = Date.now();
  made.ready?.();
  status();
}

// What was done is said on the screen as it is after that.
export async function done(text) {
  await show(scrollY);
  main.querySelector("h1")?.after(el("p", { role: "alert", class: "done" }, text));
}

// A screen that does not change its own parts is made anew when what it shows has changed, and once a minute. What a
// person is typing or has selected stays: then the screen says that there is something new.

let due = 0;

function renew(kind, data) {
  const { name, rest } = wanted();
  const concerns = kind === "resync" || screenOf(name).of?.(kind, data, rest, page.screen);
  if (page.screen === null || page.screen.heard || !(concerns || Date.now() - page.shown > 60000)) return;
  clearTimeout(due);
  due = setTimeout(refresh, 300);
}

async function refresh() {
  if (touched()) return offer();
  const turn = showing;
  const { name, rest, query } = wanted();
  const made = await screenOf(name).show(rest, query).catch(() => null);
  await released();
  if (made === null || turn !== showing) return;
  if (touched()) return offer();
  const scroll = scrollY, focus = document.activeElement, inside = main.contains(focus), caret = focus.matches?.("input[type=search]") ? [focus.selectionStart, focus.selectionEnd] : null;
  const same = (one) => ["href", "name", "aria-label"].every((key) => one.getAttribute(key) === focus.getAttribute(key));
  const told = main.querySelector("p.done"); // the stream tells of the act itself a moment later
  put(made, true);
  if (told) { told.removeAttribute("role"); main.querySelector("h1")?.after(told); }
  scrollTo(0, scroll);
  const now = inside && focus !== main ? [...main.querySelectorAll(focus.tagName)].find(same) : null;
  now?.focus({ preventScroll: true });
  if (caret) now?.setSelectionRange(...caret);
}

// A table's filter is no such field: it stands in the address, and keeps its caret.
function touched() {
  const here = document.activeElement, typed = [...main.querySelectorAll("form input, form textarea")], chosen = [...main.querySelectorAll("form.act select")];
  const selected = getSelection();
  return (here.matches("input, select, textarea") && main.contains(here) && !here.closest(".tools"))
    || typed.some((one) => one.value !== one.defaultValue) || chosen.some((one) => one.selectedIndex > 0)
    || (!selected.isCollapsed && main.contains(selected.anchorNode));
}

function offer() {
  if (main.querySelector(".new")) return;
  main.prepend(el("p", { class: "new", role: "status" }, "What is shown here has changed. ", el("button", { type: "button", onclick: () => show(scrollY) }, "Show it")));
}

// The screens at the side, in groups; what needs a person has its number, which the page's title bears as well.
function navigation(current) {
  const shown = ([name, screen]) => screen && (!screen.right || may(screen.right)) && (!screen.store || page.me?.store);
  const item = ([name, screen]) => el("li", {}, el("a", { href: `/view/${name}`, "aria-current": name === current ? "page" : null }, screen.title, name === "needs" ? el("span", { class: "badge", hidden: true }) : ""));
  document.getElementById("nav").replaceChildren(...GROUPS.flatMap(([title, names]) => {
    const items = names.map((name) => [name, SCREENS[name]]).filter(shown).map(item);
    return items.length ? [el("h2", {}, title), el("ul", { "aria-label": title }, items)] : [];
  }));
  menu(false);
}

function menu(open) {
  document.getElementById("nav").classList.toggle("open", open);
  document.getElementById("menu").setAttribute("aria-expanded", String(open));
}

function titled() {
  const count = page.fleet?.needs ?? 0, badge = document.querySelector("#nav .badge");
  document.title = `${screenOf(wanted().name).title}${count ? ` · ${count.toLocaleString("en")} need you` : ""} · nhc console`;
  if (badge) { badge.hidden = !count; badge.textContent = count.toLocaleString("en"); }
}

function login(heading = "") {
  const form = el("form", { class: "act", onsubmit: async (event) => {
    event.preventDefault();
    try {
      await ask("/login", { token: new FormData(form).get("token") });
      const then = new URLSearchParams(location.search).get("then") ?? "";
      if (wanted().name === "login") location.assign(ours(then));
      else location.reload();
    } catch (error) { note.textContent = error.message; }
  } }, el("input", { name: "username", autocomplete: "username", hidden: true, value: "token" }), el("label", {}, "Token ", el("input", { name: "token", type: "password", autocomplete: "current-password", required: true })),
  el("button", { class: "first-choice" }, "Log in"));
  const note = el("p", { role: "alert" });
  return el("div", { class: "card" }, heading, form, note);
}

function person() {
  const box = document.getElementById("who");
  if (page.me.name) {
    const out = el("button", { type: "button", onclick: async () => { await ask("/logout", {}); location.reload(); } }, "Log out");
    box.replaceChildren(page.me.name, el("span", { class: "role" }, ` (${page.me.roles.join(", ") || "no role"})`), " ", page.me.door === "token" ? out : "");
  } else box.replaceChildren(el("a", { href: "/view/login", onclick: (event) => { event.currentTarget.href = `/view/login?then=${encodeURIComponent(location.pathname + location.search)}`; } }, "Log in"));
}

SCREENS.login = { title: "Log in", show: async () => ({ content: [el("h1", {}, "Log in"), login()] }) };

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
let joined = false;
let trouble = "";
let beat = Date.now();
let changes = 0;

function heard({ kind, data }) {
  if (kind === "lost") { lost = true; return status(); }
  lost = false;
  beat = Date.now();
  if (kind === "trouble") trouble = data.why;
  if (kind === "beat" && page.fleet) { page.fleet.counts = data.counts; page.fleet.at = data.at; page.fleet.notes = data.notes; page.fleet.needs = data.needs; titled(); }
  if (kind === "letters" || kind === "layout") changes += 1;
  if (kind === "layout") moved(data);
  if (kind === "resync") page.missed = true;
  if (kind === "letters" && page.fleet?.letters && page.fleet.layout === data.layout) {
    const letters = [...page.fleet.letters];
    for (const [index, letter] of data.changes) letters[index] = letter;
    page.fleet.letters = letters.join("");
  }
  page.screen?.heard?.(kind, data);
  if (kind === "resync" && !joined) joined = true; // the stream's first message: what is shown was read just now
  else renew(kind, data);
  status();
}

function status() {
  const late = Date.now() - beat > 30000;
  const notes = page.fleet?.notes ?? [];
  const text = lost ? "The stream is lost: what is shown may be old. Trying again." : late ? `Nothing was heard for ${age((Date.now() - beat) / 1000)}: what is shown may be old.` : trouble ? `The fleet cannot be read (${trouble}): the last picture is shown.` : "";
  state.className = text || notes.length ? "trouble" : "";
  const parts = text ? [text] : [...counts(), ...notes].flatMap((one, place) => (place ? [el("span", { class: "dot" }, " · "), one] : [one]));
  const made = el("p", {}, parts);
  if (state.textContent !== made.textContent) state.replaceChildren(...made.childNodes);
  const at = page.screen?.heard ? beat : page.shown;
  document.getElementById("asof").textContent = at ? `As of ${[stamp(at / 1000), local(at / 1000)].filter((one) => one).join(" · ")}, ${age((Date.now() - at) / 1000)} ago` : "";
}

// How many nodes are in which state, each a link to those.
function counts() {
  if (!page.fleet) return [];
  return [..."cuwsno"].filter((one) => page.fleet.counts[one]).map((one) => el("a", { class: `count ${one}`, href: `/view/nodes?show=${one}` }, `${page.fleet.counts[one].toLocaleString("en")} ${WORDS[one]}`));
}

// Another layout: the message says what came, went or moved; where it does not, or follows another layout than ours,
// the map asks for all of it when it is shown.
function moved(change) {
  const { layout, fleet } = page;
  page.layout = null;
  if (!layout || !fleet || !change.put || layout.layout !== change.before || fleet.layout !== change.before || change.put.some((one) => Object.keys(one[3]).some((fact) => !layout.facts.includes(fact)))) return;
  const letters = [...fleet.letters];
  const take = (place) => { layout.names.splice(place, 1); letters.splice(place, 1); for (const fact of layout.facts) layout.places[fact].splice(place, 1); };
  for (const name of change.gone) take(layout.names.indexOf(name));
  for (const [place, name, letter, groups] of change.put) {
    if (layout.names[place] === name) take(place); // it has other groups
    layout.names.splice(place, 0, name);
    letters.splice(place, 0, letter);
    for (const fact of layout.facts) {
      const value = groups[fact] ?? "", known = layout.values[fact].indexOf(value);
      layout.places[fact].splice(place, 0, known < 0 ? layout.values[fact].push(value) - 1 : known);
    }
  }
  page.layout = { ...layout, layout: change.layout };
  page.fleet = { ...fleet, letters: letters.join(""), layout: change.layout };
}

// The names, groups and letters of all nodes, for the map alone: other screens do without them.
export async function fleet() {
  for (let turn = 0; turn < 3 && (page.missed || !page.fleet?.letters || page.fleet.layout !== page.layout?.layout); turn++) {
    const before = changes;
    page.missed = false;
    [page.layout, page.fleet] = await Promise.all([page.layout ?? ask("/api/layout"), ask("/api/fleet")]);
    page.missed ||= changes !== before; // the answer may be older than what the stream said meanwhile
    if (page.fleet.layout !== page.layout.layout && turn < 2) page.layout = null; // it changed between the two answers
    trouble = page.fleet.trouble ?? "";
  }
  return page;
}

async function count() {
  page.fleet = await ask("/api/counts");
  trouble = page.fleet.trouble ?? "";
}

document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a[href^='/']");
  if (!anchor || event.metaKey || event.ctrlKey || event.shiftKey || anchor.hasAttribute("download")) return;
  event.preventDefault();
  go(anchor.getAttribute("href")).then(() => main.focus({ preventScroll: true }));
});
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  go(`/view/nodes?text=${encodeURIComponent(new FormData(event.target).get("text").trim())}`);
});
// The keys, for a list of them.
const KEYS = [["?", "This list"], ["/", "Search: a name, a node set, a rack, a reason, a message, a job"], ["Arrow right, left", "On the map: the next node, the one before"], ["Arrow down, up", "On the map: the next node that is not healthy, the one before"],
  ["j, k", "In a table: the next row, the one before"], ["Enter", "In a table: open what the row is about"], ["a", "Agree: from a row, go to the form of its repair; on a repair's page, to its first field. It sends nothing"],
  ["Home, End", "On the map: the first node, the last"], ["+, -", "On the map: zoom in, zoom out"], ["Enter", "On the map: open the node. It never sends a decision"], ["Esc", "Close this list"]];

function keys() {
  const list = el("dialog", { "aria-label": "Keys", onclose: () => list.remove() }, el("h2", {}, "Keys"), el("dl", {}, KEYS.flatMap(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)])),
    el("form", { method: "dialog" }, el("button", {}, "Close")));
  document.body.append(list);
  list.showModal();
}

// The row after the one where the person is, or before it; the first where none is.
function walk(step) {
  const rows = [...main.querySelectorAll("tbody tr")].filter((one) => one.offsetParent !== null);
  const here = rows.indexOf(document.activeElement?.closest?.("tbody tr"));
  const row = rows[here < 0 ? 0 : Math.min(Math.max(here + step, 0), rows.length - 1)];
  row?.setAttribute("tabindex", "-1");
  row?.focus();
}

// To where a repair is agreed to, never further.
function agree(from) {
  const link = from.closest?.("tbody tr")?.querySelector("a[href^='/view/episode/']"), field = main.querySelector("section.agree input");
  if (link) link.click();
  else field?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("input, select, textarea") || document.querySelector("dialog[open]")) return;
  if (event.key === "?") keys();
  else if (event.key === "/") document.querySelector("#find input").focus();
  else if (event.key === "j" || event.key === "k") walk(event.key === "j" ? 1 : -1);
  else if (event.key === "Enter" && event.target.matches?.("tbody tr")) event.target.querySelector("a[href]")?.click();
  else if (event.key === "a") agree(event.target);
  else return;
  event.preventDefault();
});
document.getElementById("keys").addEventListener("click", keys);
document.getElementById("menu").addEventListener("click", () => { menu(!document.getElementById("nav").classList.contains("open")); document.querySelector("#nav a")?.focus(); });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") menu(false); });
addEventListener("popstate", (event) => show(event.state?.scroll ?? 0));
setInterval(status, 5000);

async function start() {
  page.me = await ask("/api/me");
  person();
  if (may("state")) {
    await count().catch(() => {});
    if (navigator.locks) navigator.locks.request("nhc-stream", stream);
    else stream();
  }
  await show();
  status();
  document.body.dataset.ready = "yes";
}

start().catch((error) => main.replaceChildren(el("p", { class: "error" }, error.message)));
