// Elements from data. Texts become text nodes and nothing else: what a node sends can never become markup.

export const WORDS = { c: "CRIT", u: "UNKNOWN", w: "WARN", s: "stale", n: "never reported", o: "OK", k: "SKIP" };
export const WORST = "cuwsnok"; // the worst first
export const LETTER = { CRIT: "c", UNKNOWN: "u", WARN: "w", OK: "o", SKIP: "k", "": "n" };
export const MARKS = { o: "·", w: "W", u: "U", c: "C", s: "s", n: "?", k: "-" }; // what stands in a cell beside its colour

export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : String(value));
  }
  made.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined).map((one) => (one instanceof Node ? one : String(one))));
  return made;
}

export const sign = (verdict) => {
  const letter = verdict.length === 1 && verdict in WORDS ? verdict : LETTER[verdict] ?? "u";
  return Object.assign(el("span", { class: `sign ${letter}`, "data-mark": MARKS[letter] }, WORDS[letter]), { rank: WORST.indexOf(letter) });
};

// Another content in place of what is there, without taking it from under whoever reads it: rows that say the same stay
// the same elements, tables stay scrolled as they are, and what was opened stays open.
export function replace(parent, ...children) {
  const name = (one) => one.getAttribute("aria-label") ?? "";
  const title = (one) => one.querySelector("summary")?.textContent ?? "";
  const scrolled = new Map([...parent.querySelectorAll(".wide")].map((one) => [name(one), [one.scrollLeft, one.scrollTop]]));
  const opened = new Set([...parent.querySelectorAll("details[open]")].map(title));
  const rows = new Map();
  for (const box of parent.querySelectorAll(".wide")) for (const row of box.querySelectorAll("tbody tr")) rows.set(`${name(box)}\n${row.outerHTML}`, row);
  parent.replaceChildren(...children);
  for (const one of parent.querySelectorAll("details")) if (opened.has(title(one))) one.open = true;
  for (const box of parent.querySelectorAll(".wide")) {
    for (const row of box.querySelectorAll("tbody tr")) {
      const key = `${name(box)}\n${row.outerHTML}`, before = rows.get(key);
      if (before) { rows.delete(key); row.replaceWith(before); }
    }
    const [left, top] = scrolled.get(name(box)) ?? [0, 0];
    box.scrollLeft = left;
    box.scrollTop = top;
  }
}

// Between a press and its release nothing is replaced: the release would fall on something else, and nothing would happen.
const waiting = [];
let pressed = false;
const release = () => setTimeout(() => { pressed = false; waiting.splice(0).forEach((go) => go()); }, 50); // the click comes right after
addEventListener("pointerdown", () => { pressed = true; }, true);
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, release, true);
export const released = () => (pressed ? new Promise((go) => waiting.push(go)) : Promise.resolve());

export const link = (path, ...children) => el("a", { href: path }, ...children);
export const nodeLink = (name) => link(`/view/node/${encodeURIComponent(name)}`, name);

export function age(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "never";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 90) return `${whole} s`;
  if (whole < 5400) return `${Math.round(whole / 60)} min`;
  if (whole < 129600) return `${Math.round(whole / 3600)} h`;
  return `${Math.round(whole / 86400)} days`;
}

export const howMany = (count, noun = "node") => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

export const stamp = (unix) => (unix ? new Date(unix * 1000).toISOString().replace("T", " ").slice(0, 19) + "Z" : "");

// The same moment by the clock of whoever looks; "" where that clock shows UTC.
const clock = new Intl.DateTimeFormat("en-GB", { dateStyle: "short", timeStyle: "medium" });
const zone = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts().find((one) => one.type === "timeZoneName")?.value ?? "";
export const local = (unix) => (unix && new Date(unix * 1000).getTimezoneOffset() ? `${clock.format(unix * 1000)} ${zone}` : "");
export const moment = (unix) => (unix ? el("time", { datetime: stamp(unix).replace(" ", "T"), title: local(unix) }, stamp(unix)) : "");

export function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined)
    .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}
