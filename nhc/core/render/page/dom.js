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
  return Object.assign(el("span", { class: `sign ${letter}` }, WORDS[letter]), { rank: WORST.indexOf(letter) });
};

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

export function facts(pairs) {
  return el("dl", {}, pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined)
    .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}
