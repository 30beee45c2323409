// The one table of the console and the report: sorted by a head, filtered by a text, turned by pages, saved as CSV or JSON.

import { age, el, local, stamp } from "/static/dom.js";

const ROWS = 50; // of a page
const FEW = 8; // rows that need no filter
const MOMENT = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ$/; // as `stamp` writes it: no line ends within

// Where what a person chose for a table is kept while the screen is made anew. The console has its address for it.
export const choices = { kept: new Map(), get(key) { return this.kept.get(key) ?? ""; }, set(key, text) { this.kept.set(key, text); } };

// A cell that is sorted and saved by `value`, whatever it shows.
export const cell = (value, ...shown) => Object.assign(el("td", {}, shown), { value });
export const since = (began, at) => cell(stamp(began), el("span", { title: [stamp(began), local(began)].join(" ").trim() }, began ? age(at - began) : ""));
export const lasting = (seconds) => cell(seconds === null ? "" : Math.round(seconds), age(seconds));
export const said = (text) => el("td", { class: "said" }, text);

const plain = (one) => (one === null || one === undefined ? "" : one.value !== undefined ? one.value : one instanceof Node ? one.textContent : Array.isArray(one) ? one.map(plain).join("") : one);
const shows = (one) => (one instanceof Node ? one.textContent !== "" || one.childElementCount > 0 : plain(one) !== "");
const natural = new Intl.Collator("en", { numeric: true });
const rank = (one) => (one?.rank !== undefined ? one.rank : plain(one));
const compare = (one, other) => (typeof one === "number" && typeof other === "number" ? one - other : natural.compare(String(one), String(other)));

// A spreadsheet takes a text that begins so for a formula: it gets a quote before it.
const quoted = (value) => `"${String(typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`;
export const csv = (heads, rows) => [heads, ...rows].map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";

// Under a moment in UTC, the same by the clock of whoever looks.
const here = (text) => { const mine = local(Date.parse(text.replace(" ", "T")) / 1000); return mine ? el("small", {}, mine) : ""; };

function save(name, type, text) {
  const anchor = el("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(anchor.href), 60000);
}

export function table(caption, heads, rows, empty = "Nothing.") {
  if (!rows.length) return el("section", { class: "table" }, el("p", { class: "caption" }, caption), el("p", { class: "empty" }, empty));
  const key = caption.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const [order = "0", at = "0", ...rest] = choices.get(key).split(",");
  let sort = Number(order) || 0, page = Number(at) || 0, text = rest.join(","); // sort: the head's place from 1 on, negative for the greatest first
  const numbers = heads.map((_head, place) => typeof plain(rows.find((row) => plain(row[place]) !== "")?.[place]) === "number"); // by the first that says something
  const bare = heads.map((head, place) => head !== "" && !rows.some((row) => shows(row[place]))); // a column in which nothing stands is not shown
  const words = rows.map(() => null);
  const holds = (place) => (words[place] ??= rows[place].map((one) => `${plain(one)} ${one instanceof Node ? one.textContent : ""}`).join("\n").toLowerCase()).includes(text.toLowerCase());
  const chosen = () => {
    const some = rows.filter((_row, place) => !text || holds(place));
    const place = Math.abs(sort) - 1;
    return place in heads ? some.sort((one, other) => Math.sign(sort) * compare(rank(one[place]), rank(other[place]))) : some;
  };
  // On a narrow screen a row is a card, where each cell says its head and keeps its role (console.css).
  const cells = (row) => el("tr", { role: "row" }, row.map((one, place) => {
    const made = typeof one === "number" ? el("td", { class: "number" }, one.toLocaleString("en"))
      : one instanceof HTMLTableCellElement ? (one.classList.toggle("number", numbers[place]), one) : MOMENT.test(one) ? el("td", { class: "stamp" }, one, here(one)) : el("td", {}, one);
    made.dataset.head = heads[place];
    made.hidden = bare[place];
    made.setAttribute("role", "cell");
    return made;
  }));
  const body = el("tbody", { role: "rowgroup" }), count = el("span", { role: "status" });
  const turn = (step, label) => el("button", { type: "button", onclick: () => { page += step; draw(true); } }, label);
  const back = turn(-1, "Previous"), on = turn(1, "Next");
  const columns = heads.map((head, place) => el("th", { scope: "col", role: "columnheader", class: numbers[place] ? "number" : null, hidden: bare[place] }, head && rows.length > 1
    ? el("button", { type: "button", class: "sort", onclick: () => { sort = sort === place + 1 ? -(place + 1) : place + 1; page = 0; draw(true); } }, head) : head));
  const draw = (keep) => {
    const some = chosen(), pages = Math.max(1, Math.ceil(some.length / ROWS));
    page = Math.min(Math.max(0, page), pages - 1);
    body.replaceChildren(...some.slice(page * ROWS, (page + 1) * ROWS).map(cells));
    columns.forEach((one, place) => (Math.abs(sort) === place + 1 ? one.setAttribute("aria-sort", sort > 0 ? "ascending" : "descending") : one.removeAttribute("aria-sort")));
    count.textContent = `${text ? `${some.length.toLocaleString("en")} of ` : ""}${rows.length.toLocaleString("en")} rows${pages > 1 ? `, page ${page + 1} of ${pages}` : ""}`;
    back.hidden = on.hidden = pages < 2;
    back.disabled = page === 0;
    on.disabled = page === pages - 1;
    if (keep) choices.set(key, sort || page || text ? `${sort},${page},${text}` : "");
  };
  const values = () => chosen().map((row) => heads.flatMap((head, place) => (head ? [plain(row[place])] : [])));
  const named = heads.filter((head) => head);
  const filter = el("input", { type: "search", value: text, maxlength: 100, "aria-label": `Filter: ${caption}`, placeholder: "Filter", oninput: () => { text = filter.value; page = 0; draw(true); } });
  const made = el("div", { class: "table" },
    el("div", { class: "tools" }, el("p", { class: "caption", "aria-hidden": "true" }, caption), rows.length > FEW || text ? [filter, count, back, on] : "",
      el("button", { type: "button", "aria-label": `Save as CSV: ${caption}`, onclick: () => save(`${key}.csv`, "text/csv", csv(named, values())) }, "CSV"),
      el("button", { type: "button", "aria-label": `Save as JSON: ${caption}`, onclick: () => save(`${key}.json`, "application/json", JSON.stringify(values().map((row) => Object.fromEntries(named.map((head, place) => [head, row[place]]))), null, 1)) }, "JSON")),
    el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": caption },
      el("table", { role: "table" }, el("caption", { class: "unseen" }, caption), el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, columns)), body)));
  draw(false);
  return made;
}
