// What is drawn over time: a node's last day as a strip, and plots of values. Each says in words what it shows.

import { ask } from "/static/app.js";
import { el, howMany, stamp, WORDS } from "/static/dom.js";

// Strips: asked for when they are seen, a few together, and kept for a minute.

const KEPT = 60000, TOGETHER = 100;
const known = new Map(); // node: [when it was asked for, its strip]
let wanted = new Set(), timer = 0;
const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) if (isIntersecting) { seen.unobserve(target); wanted.add(target); }
  if (wanted.size) { clearTimeout(timer); timer = setTimeout(fetchSome, 50); }
});

async function fetchSome() {
  const boxes = [...wanted].slice(0, TOGETHER);
  wanted = new Set([...wanted].slice(TOGETHER));
  const value = await ask(`/api/strips?set=${encodeURIComponent(boxes.map((one) => one.dataset.node).join(","))}`).catch(() => null);
  if (value === null) return;
  for (const [name, strip] of Object.entries(value.strips)) known.set(name, [Date.now(), { ...strip, at: value.at, began: value.began }]);
  for (const box of boxes) fill(box);
  if (wanted.size) fetchSome();
}

function fill(box) {
  const strip = known.get(box.dataset.node)?.[1];
  if (strip) box.replaceChildren(...drawn(strip));
}

// The cell of a node's row.
export function stripCell(name) {
  const box = el("div", { class: "strip", "data-node": name });
  const [at] = known.get(name) ?? [0];
  if (at) fill(box);
  if (Date.now() - at > KEPT) seen.observe(box);
  return el("td", {}, box);
}

// Runs of one letter are one piece; below them, when the node was out of service.
function drawn(strip) {
  const { letters } = strip, total = letters.length, span = strip.at - strip.began, pieces = [];
  const words = {};
  for (let at = 0; at < total;) {
    let end = at;
    while (end < total && letters[end] === letters[at]) end++;
    pieces.push(piece(letters[at], at / total, end / total));
    words[letters[at]] = (words[letters[at]] ?? 0) + end - at;
    at = end;
  }
  for (const [began, ended] of strip.out) pieces.push(piece("away", (began - strip.began) / span, (ended - strip.began) / span));
  const said = Object.entries(words).map(([letter, count]) => `${Math.round((count / total) * 100)} % ${letter === "s" ? "no report" : WORDS[letter]}`).join(", ");
  const share = `${(Math.floor(strip.service * 1000) / 10).toLocaleString("en")} %`;
  return [el("div", { class: "day", role: "img", "aria-label": `The last 24 hours: ${said}`, title: `${stamp(strip.began)} to ${stamp(strip.at)}: ${said}` }, pieces),
    el("span", { class: "share", title: "Of the last 24 hours in service, as far as nhc took it out" }, share)];
}

function piece(kind, from, to) {
  const made = el("i", { class: kind });
  made.style.setProperty("left", `${Math.max(0, from) * 100}%`);
  made.style.setProperty("width", `${Math.min(1, to) * 100 - Math.max(0, from) * 100}%`);
  return made;
}

// The strip of a node's own page: wide, with hours.
export async function nodeStrip(name) {
  const value = await ask(`/api/strips?set=${encodeURIComponent(name)}`);
  const strip = value.strips[name];
  if (!strip) return "";
  const hours = [24, 18, 12, 6, 0].map((ago) => el("span", {}, ago ? `${ago} h ago` : "now"));
  return el("section", { class: "card large", "aria-label": "The last 24 hours" }, el("h2", {}, "The last 24 hours"),
    el("div", { class: "strip" }, drawn({ ...strip, at: value.at, began: value.began })), el("div", { class: "hours", "aria-hidden": "true" }, hours),
    el("p", { class: "legend quiet" }, ["c", "u", "w", "o"].map((letter) => el("span", { class: `count ${letter}` }, WORDS[letter])), el("span", { class: "count s" }, "no report"), el("span", { class: "count away" }, "out of service, by nhc")));
}

// Plots. The library comes when the first one is drawn.

let library = null;
function load() {
  document.head.append(el("link", { rel: "stylesheet", href: "/static/uPlot.css" }));
  return import("/static/uPlot.js").then((module) => module.default);
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
const short = (value) => (value === null || value === undefined ? "" : Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-3) ? value.toExponential(2) : Number(value.toPrecision(5)).toLocaleString("en"));

// Lines over time: `series` are [label, [[seconds, value], ...]], at most eight of them.
export function lines(title, unit, series) {
  const shown = series.slice(0, 8), left = series.length - shown.length;
  const times = [...new Set(shown.flatMap(([, points]) => points.map(([at]) => at)))].sort((one, other) => one - other);
  const data = [times, ...shown.map(([, points]) => { const of = new Map(points); return times.map((at) => of.get(at) ?? null); })];
  const said = shown.map(([label, points]) => { const values = points.map(([, value]) => value); return `${label} from ${short(Math.min(...values))} to ${short(Math.max(...values))}, last ${short(values.at(-1))} ${unit}`; });
  return figure(title, said.join("; "), async (box, width) => draw(box, width, 160, data, shown.map(([label], place) => ({
    label, stroke: colour(`--c${(place % 8) + 1}`), dash: DASHES[place % 4], width: 1.75, spanGaps: true, points: { show: times.length < 40, size: 5 }, value: (_plot, value) => (value === null ? "" : `${short(value)} ${unit}`),
  })), unit), left ? `${howMany(left, "other series")} not shown` : "");
}

// Counts over time, on top of one another, the worst at the bottom; where nothing was known the ground is hatched.
// `kinds` are [label, colour's name, values]; `unknown` says of each part whether nothing was known.
export function stacked(title, said, times, width, kinds, unknown) {
  const sums = kinds.map(() => null);
  kinds.forEach(([, , values], place) => { sums[place] = values.map((value, at) => value + (place ? sums[place - 1][at] : 0)); });
  const order = kinds.map((_kind, place) => place).reverse(); // the highest is drawn first, and the others over it
  return figure(title, said, async (box, wide) => draw(box, wide, 220, [times.map((at) => at - width / 2), ...order.map((place) => sums[place])], order.map((place) => ({
    label: kinds[place][0], fill: colour(kinds[place][1]), stroke: colour(kinds[place][1]), width: 0, bars: true, points: { show: false }, value: (_plot, _value, _series, at) => (at === null ? "" : short(kinds[place][2][at])),
  })), "", (plot) => hatch(plot, times, width, unknown), [times[0] - width, times.at(-1)]));
}

// Steps over time: one line of counts.
export function steps(title, said, times, values, unknown, width) {
  return figure(title, said, async (box, wide) => draw(box, wide, 140, [[times[0] - width, ...times], [values[0], ...values]], [{ label: "Out of service", stroke: colour("--c1"), fill: `${colour("--c1")}33`, width: 2, stepped: true, points: { show: false }, value: (_plot, value) => short(value) }], "", (plot) => hatch(plot, times, width, unknown), [times[0] - width, times.at(-1)]));
}

function hatch(plot, times, width, unknown) {
  const { ctx } = plot, ground = document.createElement("canvas"), ratio = devicePixelRatio || 1;
  ground.width = ground.height = 8 * ratio;
  const pen = ground.getContext("2d");
  pen.strokeStyle = colour("--field");
  pen.lineWidth = ratio;
  for (const shift of [-8, 0, 8]) { pen.beginPath(); pen.moveTo(shift * ratio, 8 * ratio); pen.lineTo((shift + 8) * ratio, 0); pen.stroke(); }
  ctx.save();
  ctx.fillStyle = ctx.createPattern(ground, "repeat");
  times.forEach((at, place) => {
    if (!unknown[place]) return;
    const from = Math.max(plot.bbox.left, plot.valToPos(at - width, "x", true)), to = Math.min(plot.bbox.left + plot.bbox.width, plot.valToPos(at, "x", true));
    ctx.fillRect(from, plot.bbox.top, Math.max(0, to - from), plot.bbox.height);
  });
  ctx.restore();
}

function figure(title, said, make, note = "") {
  const box = el("div", { class: "canvas", role: "img", "aria-label": `${title}: ${said}` });
  const watch = new ResizeObserver(async () => {
    if (!box.isConnected) return;
    watch.disconnect();
    library ??= load();
    const width = Math.floor(box.clientWidth);
    if (width > 50) await make(box, width);
  });
  watch.observe(box);
  return el("figure", { class: "plot" }, el("figcaption", {}, title), box, note ? el("p", { class: "quiet" }, note) : "");
}

// Times of an axis: in UTC, as fine as its steps are; the day where one begins, and at the first.
function hours(_plot, splits, _axis, _space, step) {
  return splits.map((at, place) => { const [day, hour] = stamp(at).split(" "); return step >= 86400 ? day.slice(5) : `${hour.slice(0, step < 60 ? 8 : 5)}${place === 0 || hour.startsWith("00:00:00") ? `\n${day.slice(5)}` : ""}`; });
}

// `under` draws the ground; `span` is the time from the left edge to the right, where it is not that of the values.
async function draw(box, width, height, data, series, unit, under = null, span = null) {
  const Plot = await library;
  const text = colour("--muted"), edge = colour("--edge");
  const axis = { stroke: text, font: "12px system-ui, sans-serif", grid: { stroke: edge, width: 1 }, ticks: { stroke: edge, width: 1 } };
  const made = series.map(({ bars, stepped, ...one }) => ({ ...one, ...(bars ? { paths: Plot.paths.bars({ size: [0.9, 100] }) } : stepped ? { paths: Plot.paths.stepped({ align: -1 }) } : {}) }));
  const ratio = series.some((one) => one.bars || one.stepped);
  box.replaceChildren();
  new Plot({
    width, height, series: [{ value: (_plot, at) => (at === null ? "" : stamp(at)) }, ...made], tzDate: (at) => { const here = new Date(at * 1000); return new Date(here.getTime() + here.getTimezoneOffset() * 60000); },
    axes: [{ ...axis, values: hours }, { ...axis, size: 56, values: (_plot, values) => values.map((value) => (value === null ? "" : `${short(value)}${unit ? ` ${unit}` : ""}`)) }],
    scales: { x: { time: true, ...(span ? { range: span } : {}) }, y: { range: (_plot, low, high) => (ratio ? [0, Math.max(1, high * 1.05)] : low === high ? [Math.min(0, low), high ? high * 1.2 : 1] : [low - (high - low) * 0.1, high + (high - low) * 0.1]) } },
    cursor: { drag: { x: false, y: false } }, hooks: under ? { drawClear: [under] } : {},
  }, data, box);
}
