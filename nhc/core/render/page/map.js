// All nodes in one picture, up to 100,000: a canvas, hit by arithmetic. The table beside it says the same in words.

import { el, MARKS, WORDS } from "/static/dom.js";

const PROPERTIES = { o: "--ok", w: "--warn", u: "--unknown", c: "--crit", s: "--stale", n: "--never", k: "--skip" }; // palette.css
const LARGEST = 20;
const LETTERED = 10;
const SEEN = 6; // pixels of a sick node at least: one of three would be lost among a hundred thousand

export function places(layout, fact, width, zoom = 1, part = 0) {
  // Where each node stands: groups in the order of their names, nodes in theirs. Nothing moves when states change.
  // A map that is enlarged shows one part of so many (`zoom`), by whole groups.
  const count = layout.names.length;
  const of = layout.places[fact] ?? null;
  const groups = new Map();
  for (let index = 0; index < count; index++) {
    const group = of ? layout.values[fact][of[index]] : "";
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(index);
  }
  const natural = new Intl.Collator("en", { numeric: true });
  const every = [...groups.keys()].sort(natural.compare);
  const size = Math.ceil(every.length / zoom), names = every.slice(part * size, (part + 1) * size);
  let cell = LARGEST;
  let found = null;
  do {
    found = flow(names, groups, cell, width);
    cell -= cell > 8 ? 2 : 1;
  } while (cell >= 2 && found.height > 1000);
  return Object.assign(found, { order: every.flatMap((name) => groups.get(name)), span: names.length < every.length ? `${names[0]} to ${names[names.length - 1]}` : "", groups: every.length, parts: Math.ceil(every.length / size) });
}

function flow(names, groups, cell, width) {
  const x = [], y = [], heads = [];
  const space = cell >= LETTERED ? 10 : 4;
  const headed = cell >= LETTERED ? 18 : 0;
  let left = 0, top = headed, tallest = 0;
  for (const name of names) {
    const members = groups.get(name);
    const columns = Math.max(1, Math.min(Math.ceil(Math.sqrt(members.length * 1.6)), Math.floor(width / cell)));
    const rows = Math.ceil(members.length / columns);
    const wide = Math.max(columns * cell, headed ? Math.min(160, name.length * 7 + 8) : 0);
    if (left && left + wide > width) { left = 0; top += tallest + space + headed; tallest = 0; }
    if (headed && name) heads.push([left, top - 5, name, wide]);
    members.forEach((index, place) => {
      x[index] = left + (place % columns) * cell;
      y[index] = top + Math.floor(place / columns) * cell;
    });
    left += wide + space;
    tallest = Math.max(tallest, rows * cell);
  }
  return { x, y, heads, cell, width, height: top + tallest + 4 };
}

export class FleetMap {
  constructor(open, say, words = WORDS) {
    this.words = words;
    this.open = open;
    this.say = say;
    this.at = 0;
    this.wanted = null;
    this.canvas = el("canvas", {
      tabindex: 0, role: "img", "aria-roledescription": "map of nodes",
      onclick: (event) => this.click(event), onkeydown: (event) => this.key(event), onmousemove: (event) => this.hover(event),
    });
    this.zoom = 1;
    this.part = 0;
    this.cursor = el("div", { class: "cursor", hidden: true });
    this.span = el("span", { role: "status" });
    const button = (text, label, act) => el("button", { type: "button", "aria-label": label, onclick: act }, text);
    this.tools = el("div", { class: "bar" }, button("+", "Zoom in", () => this.enlarge(4)), button("−", "Zoom out", () => this.enlarge(0.25)),
      button("‹", "The part before", () => this.turn(this.part - 1)), button("›", "The next part", () => this.turn(this.part + 1)), this.span);
    this.box = el("div", { class: "map" }, this.tools, el("div", { class: "picture" }, this.canvas, this.cursor));
  }

  enlarge(times) { // around the node that the keyboard is at
    const zoom = Math.min(Math.max(1, this.zoom * times), 4 ** Math.floor(Math.log(this.places.groups) / Math.log(4)));
    if (zoom === this.zoom) return;
    this.zoom = zoom;
    this.show(this.layout, this.letters, this.fact);
    this.follow();
  }

  turn(part) {
    this.part = Math.min(Math.max(0, part), this.places.parts - 1);
    this.show(this.layout, this.letters, this.fact);
  }

  follow() { // the part with the node that the keyboard is at
    for (let part = 0; this.places.x[this.at] === undefined && part < this.places.parts; part++) this.turn(part);
  }

  show(layout, letters, fact) {
    if (layout !== this.layout || fact !== this.fact) { this.part = 0; this.zoom = 1; }
    this.layout = layout;
    this.letters = letters;
    this.fact = fact;
    this.places = places(layout, fact, Math.max(320, this.box.clientWidth || 1200), this.zoom, this.part);
    this.part = Math.min(this.part, this.places.parts - 1);
    this.tools.hidden = this.zoom === 1 && (this.places.cell >= LETTERED || this.places.groups < 2);
    this.span.textContent = this.places.span;
    this.cursor.hidden = true;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = this.places.width * ratio;
    this.canvas.height = this.places.height * ratio;
    this.canvas.style.setProperty("width", `${this.places.width}px`);
    this.canvas.style.setProperty("height", `${this.places.height}px`);
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries(Object.entries(PROPERTIES).map(([letter, name]) => [letter, style.getPropertyValue(name).trim()]));
    this.stamps = {};
    this.cross = style.getPropertyValue("--crit-cell").trim();
    this.dark = style.getPropertyValue("--warn-text").trim();
    this.paint();
  }

  change(changes) {
    const letters = [...this.letters];
    for (const [index, letter] of changes) letters[index] = letter;
    this.letters = letters.join("");
    const small = this.places.cell < SEEN;
    if (small || changes.length > 2000) this.paint();
    else for (const [index] of changes) this.cell(index);
  }

  filter(wanted) {
    this.wanted = wanted;
    this.paint();
  }

  paint() {
    const { pen, places: { width, height, heads, cell } } = this;
    pen.clearRect(0, 0, width, height);
    const text = getComputedStyle(this.canvas).color;
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = text;
    for (const [x, y, name, wide] of heads) {
      const room = Math.max(3, Math.floor(wide / 7));
      pen.fillText(name.length > room ? "…" + name.slice(name.length - room + 1) : name, x, y); // its end matters
    }
    if (cell >= LETTERED) for (let index = 0; index < this.letters.length; index++) this.cell(index);
    else this.cells();
    this.canvas.setAttribute("aria-label", this.label());
    this.canvas.dataset.drawn = String(this.letters.length);
  }

  cells() {
    // One colour at a time, the worst last, so that a sick node lies on top.
    const { pen, places: { x, y, cell }, letters } = this;
    for (const letter of "oknswuc") {
      pen.fillStyle = this.colours[letter];
      const size = "wuc".includes(letter) ? Math.max(cell - 1, SEEN) : Math.max(1, cell - 1);
      const stamp = size > 3 && "nswuc".includes(letter) ? (this.stamps[letter] ??= this.stamp(letter, size)) : null;
      for (let index = 0; index < letters.length; index++) {
        if (letters[index] !== letter || x[index] === undefined || !this.wants(index)) continue;
        if (stamp) pen.drawImage(stamp, x[index], y[index], size, size);
        else pen.fillRect(x[index], y[index], size, size);
      }
    }
  }

  // A cell too small for a letter has a pattern: OK and CRIT are as dark as one another for an eye that sees no colour.
  stamp(letter, size) {
    const ratio = window.devicePixelRatio || 1, made = el("canvas", { width: size * ratio, height: size * ratio }), pen = made.getContext("2d");
    pen.scale(ratio, ratio);
    pen.fillStyle = letter === "c" ? this.cross : this.colours[letter];
    pen.fillRect(0, 0, size, size);
    pen.fillStyle = letter === "w" ? this.dark : "#ffffff";
    const middle = Math.floor(size / 2), inner = size - 2;
    if (letter === "c") for (let at = 1; at <= inner; at++) { pen.fillRect(at, at, 1, 1); pen.fillRect(size - 1 - at, at, 1, 1); } // a cross
    else if (letter === "u") pen.fillRect(1, middle, inner, 1); // a line
    else if (letter === "w") pen.fillRect(middle, 1, 1, inner); // a post
    else if (letter === "n") { pen.clearRect(1, 0, inner, size); pen.clearRect(0, 1, size, inner); } // four corners
    else pen.clearRect(1, 1, inner, inner); // a frame
    return made;
  }

  wants(index) {
    return !this.wanted || this.wanted.has(this.letters[index]);
  }

  cell(index) {
    const { pen, places: { x, y, cell } } = this;
    const letter = this.letters[index];
    if (x[index] === undefined) return; // in another part
    pen.clearRect(x[index], y[index], cell, cell);
    pen.globalAlpha = this.wants(index) ? 1 : 0.15;
    if (letter === "n") {
      pen.strokeStyle = getComputedStyle(this.canvas).color;
      pen.setLineDash([2, 2]);
      pen.strokeRect(x[index] + 1.5, y[index] + 1.5, cell - 4, cell - 4);
      pen.setLineDash([]);
    } else {
      pen.fillStyle = this.colours[letter];
      pen.fillRect(x[index], y[index], cell - 1, cell - 1);
    }
    if (cell >= LETTERED) {
      pen.fillStyle = letter === "w" ? this.dark : letter === "n" ? getComputedStyle(this.canvas).color : "#ffffff";
      pen.font = `700 ${Math.floor(cell * 0.6)}px ui-monospace, monospace`;
      pen.textAlign = "center";
      pen.textBaseline = "middle";
      pen.fillText(MARKS[letter], x[index] + (cell - 1) / 2, y[index] + cell / 2);
      pen.textAlign = "start";
      pen.textBaseline = "alphabetic";
    }
    pen.globalAlpha = 1;
  }

  label() {
    const counts = {};
    for (const letter of this.letters) counts[letter] = (counts[letter] || 0) + 1;
    return "Map of " + this.letters.length + " nodes: " + [..."cuwsnok"].filter((one) => counts[one]).map((one) => `${counts[one]} ${this.words[one]}`).join(", ") + ". Arrow keys go from node to node.";
  }

  hit(event) {
    const { x, y, cell } = this.places;
    const px = event.offsetX, py = event.offsetY;
    let best = -1, distance = Math.max(cell, SEEN) ** 2;
    for (let index = 0; index < x.length; index++) {
      const dx = px - x[index] - cell / 2, dy = py - y[index] - cell / 2;
      const here = dx * dx + dy * dy;
      if (here < distance) { distance = here; best = index; }
    }
    return best;
  }

  hover(event) {
    const index = this.hit(event);
    this.canvas.title = index < 0 ? "" : `${this.layout.names[index]}: ${this.words[this.letters[index]]}`;
  }

  click(event) {
    const index = this.hit(event);
    if (index >= 0) this.open(this.layout.names[index]);
  }

  key(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
    const { order } = this.places, here = order.indexOf(this.at);
    if (event.key in steps) this.at = order[Math.min(order.length - 1, Math.max(0, here + steps[event.key]))];
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") this.at = this.unhealthy(here, event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "+" || event.key === "-") { event.preventDefault(); return this.enlarge(event.key === "+" ? 4 : 0.25); }
    else if (event.key === "Enter") return this.open(this.layout.names[this.at]);
    else return;
    event.preventDefault();
    this.follow();
    const { x, y, cell } = this.places;
    for (const [name, value] of [["left", x[this.at] - 2], ["top", y[this.at] - 2], ["width", cell + 3], ["height", cell + 3]]) this.cursor.style.setProperty(name, `${value}px`);
    this.cursor.hidden = false; // over the picture, which stays as it is
    this.cursor.scrollIntoView({ block: "nearest" });
    this.say(`${this.layout.names[this.at]}: ${this.words[this.letters[this.at]]}`);
  }

  unhealthy(here, step) {
    // Down and up go to the next node that is not healthy.
    const { order } = this.places;
    for (let place = here + step; place >= 0 && place < order.length; place += step) {
      if (this.letters[order[place]] !== "o") return order[place];
    }
    return this.at;
  }
}
