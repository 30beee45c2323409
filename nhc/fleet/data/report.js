"use strict";
// Draws the report from the JSON beside it. Text from nodes only ever becomes text: textContent, never HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const VERDICTS = ["CRIT", "UNKNOWN", "WARN", "OK", "SKIP"];
  const { FleetMap, LETTER, MARKS, table } = page; // the console's
  const CELLS = 3000; // above it the map is a canvas, as the console's: so many elements make a browser slow
  const MOST = 200; // rows of a list, as in the console
  const FIRST = 25; // problems shown before the button for all of them is used
  const $ = (id) => document.getElementById(id);
  const make = (tag, text, cls) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (cls) element.className = cls;
    return element;
  };
  const byName = new Intl.Collator("en", { numeric: true }).compare;
  const nodesOf = (count) => `${count} node${count === 1 ? "" : "s"}`;
  const state = { verdicts: new Set(VERDICTS), group: "", check: "", search: "", node: "", all: false, at: -1 };
  let shown = []; // the nodes of the map in its order

  // A node's own problems refer to the table of problems, which the terminal's lines are made of, too.
  const nodes = data.nodes.map((own) => ({ ...data.common, ...own }));
  nodes.sort((a, b) => byName(a.name, b.name));
  for (const node of nodes) {
    node.results = node.results.map(([place, more]) => ({ ...data.problems[place], ...more, problem: place }));
    node.text = [node.name, node.group, node.hostname, ...node.results.flatMap((r) => [r.check, r.target, r.reason, r.message])]
      .join(" ")
      .toLowerCase();
  }

  // Names as ranges, and what is in one: gpu[001-003],login.
  const fold = (names) => {
    const shapes = new Map();
    for (const name of names) {
      const pieces = name.split(/([0-9]{1,18})/);
      const shape = pieces.filter((_piece, place) => place % 2 === 0).join("\u0000");
      if (!shapes.has(shape)) shapes.set(shape, []);
      shapes.get(shape).push(pieces);
    }
    return [...shapes.values()].flatMap(foldAlike).join(",");
  };
  const foldAlike = (alike) => {
    let at = -1;
    for (let place = 1; place < alike[0].length; place += 2) if (alike.some((p) => p[place] !== alike[0][place])) at = place;
    if (at < 0) return [alike[0].join("")];
    const numbers = new Map();
    for (const pieces of alike) {
      const ends = JSON.stringify([pieces.slice(0, at).join(""), pieces.slice(at + 1).join("")]);
      if (!numbers.has(ends)) numbers.set(ends, []);
      numbers.get(ends).push(pieces[at]);
    }
    return [...numbers].map(([ends, digits]) => {
      const [head, tail] = JSON.parse(ends);
      return `${head}${ranges(digits)}${tail}`;
    });
  };
  const ranges = (digits) => {
    if (digits.length === 1) return digits[0];
    const sorted = [...new Set(digits)].sort((a, b) => a.length - b.length || (a < b ? -1 : 1));
    const spans = [];
    for (const number of sorted) {
      const last = spans[spans.length - 1];
      const padded = last && last[0][0] === "0" && last[0].length > 1;
      if (last && BigInt(number) === BigInt(last[1]) + 1n && (padded ? number.length === last[1].length : number[0] !== "0"))
        last[1] = number;
      else spans.push([number, number]);
    }
    return `[${spans.map(([low, high]) => (low === high ? low : `${low}-${high}`)).join(",")}]`;
  };

  // What stands above everything: counts, when, and what is missing.
  for (const verdict of VERDICTS) {
    const count = data.counts[verdict] || 0;
    if (!count) continue;
    const item = make("li", `${count} ${verdict}`, verdict);
    item.dataset.verdict = verdict;
    $("counts").append(item);
    const label = make("label");
    const box = make("input");
    box.type = "checkbox";
    box.checked = true;
    box.value = verdict;
    box.addEventListener("change", () => {
      if (box.checked) state.verdicts.add(verdict);
      else state.verdicts.delete(verdict);
      draw();
    });
    label.append(box, ` ${verdict}`);
    $("verdicts").append(label);
  }
  $("when").textContent = `${data.started_at}, ${nodesOf(nodes.length)} in ${data.elapsed.toFixed(1)} s`;
  if (data.missing) {
    $("cut").hidden = false;
    $("cut").textContent = `Interrupted: ${nodesOf(data.missing)} not judged${data.not_judged ? `: ${data.not_judged}` : ""}`;
  }
  const options = (select, values) => {
    for (const value of [...values].sort(byName)) {
      const option = make("option", value);
      option.value = value;
      select.append(option);
    }
  };
  options($("group"), new Set(nodes.map((node) => node.group)));
  options($("check"), new Set([...data.problems.map((p) => p.check), ...nodes.flatMap((n) => (n.well || []).map((r) => r.check))]));
  for (const id of ["group", "check", "search"]) {
    $(id).addEventListener("input", () => {
      state[id] = $(id).value;
      draw();
    });
  }
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("more").addEventListener("click", () => {
    state.all = true;
    draw();
  });

  // With a check chosen, a node's colour is that check's verdict on it.
  const verdictOf = (node) => {
    if (!state.check) return node.verdict;
    const own = [...node.results, ...(node.well || [])].filter((r) => r.check === state.check).map((r) => r.verdict);
    return VERDICTS.find((verdict) => own.includes(verdict));
  };
  const chosen = () => {
    const search = state.search.toLowerCase();
    return nodes.filter((node) => {
      const verdict = verdictOf(node);
      return (
        verdict &&
        state.verdicts.has(verdict) &&
        (!state.group || node.group === state.group) &&
        (!search || node.text.includes(search))
      );
    });
  };

  function draw() {
    const some = chosen();
    $("shown").textContent = `${some.length} of ${nodesOf(nodes.length)}`;
    problems(some);
    const groups = new Map();
    for (const node of some) {
      if (!groups.has(node.group)) groups.set(node.group, []);
      groups.get(node.group).push(node);
    }
    shown = [];
    state.at = -1;
    const many = some.length > CELLS;
    for (const [name, value] of [["role", "listbox"], ["tabindex", "0"]]) many ? $("map").removeAttribute(name) : $("map").setAttribute(name, value);
    $("groups").replaceChildren();
    if (many) return picture(some, groups);
    const rows = [...groups.keys()].sort(byName).map((name) => row(name, groups.get(name)));
    $("map").removeAttribute("aria-activedescendant");
    $("map").replaceChildren(...rows);
  }

  // A large map: the console's picture, one tab stop, and the same in words beside it.
  const large = new FleetMap((name) => show(nodes.find((node) => node.name === name)), (text) => { $("said").textContent = text; });
  function picture(some, groups) {
    const names = [...groups.keys()].sort(byName);
    const place = new Map(names.map((name, at) => [name, at]));
    $("map").removeAttribute("aria-activedescendant");
    $("map").replaceChildren(large.box);
    const layout = { names: some.map((node) => node.name), values: { group: names }, places: { group: some.map((node) => place.get(node.group)) } };
    large.show(layout, some.map((node) => LETTER[verdictOf(node)]).join(""), "group");
    const count = (name, verdict) => groups.get(name).filter((node) => verdictOf(node) === verdict).length;
    $("groups").replaceChildren(table("Nodes by group", ["Group", "Nodes", ...VERDICTS],
      names.map((name) => [name, groups.get(name).length, ...VERDICTS.map((verdict) => count(name, verdict))])));
  }

  // The map. Its cells are no tab stops: the map is one, and arrow keys move within it.
  function row(name, some) {
    const element = make("div", undefined, "group");
    element.dataset.group = name;
    element.setAttribute("role", "group");
    element.setAttribute("aria-label", name);
    const count = {};
    const cells = make("div", undefined, "cells");
    for (const node of some) {
      const verdict = verdictOf(node);
      count[verdict] = (count[verdict] || 0) + 1;
      const cell = make("div", MARKS[LETTER[verdict]], `cell ${verdict}`);
      cell.id = `c${shown.length}`;
      cell.setAttribute("role", "option");
      cell.dataset.node = node.name;
      if (node.name === state.node) cell.classList.add("chosen");
      cells.append(cell);
      shown.push(node);
    }
    const head = make("h3", name);
    head.append(make("small", VERDICTS.filter((v) => count[v]).map((v) => `${count[v]} ${v}`).join(", ")));
    element.append(head, cells);
    return element;
  }
  const describe = (cell) => {
    const node = shown[Number(cell.id.slice(1))];
    const verdict = verdictOf(node);
    const worst = node.results.find((result) => result.verdict === verdict);
    cell.title = `${node.name}: ${verdict}${worst ? ` ${worst.reason} ${worst.message}` : ""}`;
    cell.setAttribute("aria-label", cell.title);
    return node;
  };
  const cellOf = (event) => event.target.closest && event.target.closest(".cell");
  $("map").addEventListener("pointerover", (event) => {
    const cell = cellOf(event);
    if (cell && !cell.title) describe(cell);
  });
  $("map").addEventListener("click", (event) => {
    const cell = cellOf(event);
    if (cell) {
      goTo(Number(cell.id.slice(1)));
      show(describe(cell), cell);
    }
  });
  function goTo(place) {
    if (!shown.length) return;
    const old = $(`c${state.at}`);
    if (old) old.classList.remove("at");
    state.at = Math.max(0, Math.min(shown.length - 1, place));
    const cell = $(`c${state.at}`);
    describe(cell);
    cell.classList.add("at");
    $("map").setAttribute("aria-activedescendant", cell.id);
    cell.scrollIntoView({ block: "nearest" });
  }
  $("map").addEventListener("keydown", (event) => {
    const here = $(`c${state.at}`);
    const perRow = () => {
      const cells = [...here.parentElement.children];
      return cells.filter((cell) => cell.offsetTop === here.offsetTop).length;
    };
    const moves = { ArrowRight: () => 1, ArrowLeft: () => -1, ArrowDown: perRow, ArrowUp: () => -perRow() };
    if (event.key === "Home") goTo(0);
    else if (event.key === "End") goTo(shown.length - 1);
    else if (moves[event.key]) goTo(here ? state.at + moves[event.key]() : 0);
    else if ((event.key === "Enter" || event.key === " ") && here) show(describe(here), here);
    else return;
    event.preventDefault();
  });

  function show(node, cell) {
    state.node = node.name;
    for (const other of document.querySelectorAll(".cell.chosen")) other.classList.remove("chosen");
    if (cell) cell.classList.add("chosen");
    const panel = $("node");
    panel.hidden = false;
    const head = make("h2", `${node.name} `);
    head.append(make("span", node.verdict, `tag ${node.verdict}`));
    const about = [node.group && `group ${node.group}`, node.hostname && `kernel's name ${node.hostname}`,
      node.version && `nhc ${node.version} (${node.nhc})`, `${node.seconds.toFixed(1)} s`,
      node.attempts > 1 && `${node.attempts} attempts`, ...Object.entries(node.facts).map(([k, v]) => `${k} ${v}`)];
    const close = make("button", "Close");
    close.type = "button";
    close.addEventListener("click", () => {
      panel.hidden = true;
      state.node = "";
      if (cell) cell.classList.remove("chosen");
      ($("map").querySelector("canvas") ?? $("map")).focus();
    });
    panel.replaceChildren(close, head, make("p", about.filter(Boolean).join(" · "), "quiet"));
    for (const note of node.notes) panel.append(make("p", `Note: ${note}`));
    for (const result of node.results) {
      const line = make("p");
      line.append(make("span", result.verdict, `tag ${result.verdict}`));
      line.append(` ${[result.check, result.target, result.reason].filter(Boolean).join(" ")}: ${result.message}`);
      if (result.action) line.append(" ", make("span", `suggested: ${result.action}`, "action"));
      panel.append(line);
      if (result.evidence.length) panel.append(make("pre", result.evidence.join("\n"), "evidence"));
      if (result.line) panel.append(make("p", `${result.source}  ${result.line}`, "quiet"));
    }
    if (node.well && node.well.length) {
      const more = make("details");
      more.append(make("summary", `${node.well.length} result${node.well.length === 1 ? "" : "s"} OK or skipped`));
      const list = make("ul");
      for (const r of node.well) list.append(make("li", `${r.verdict} ${r.check} ${r.target} ${r.message}`));
      more.append(list);
      panel.append(more);
    } else if (node.fine) panel.append(make("p", `${node.fine} result${node.fine === 1 ? "" : "s"} OK or skipped`, "quiet"));
    panel.scrollTop = 0;
  }

  // Problems. What differs in its figures only is one row, as in the terminal.
  function problems(some) {
    const found = new Map();
    for (const node of some) {
      for (const result of node.results) {
        if (state.check && result.check !== state.check) continue;
        if (!found.has(result.problem)) found.set(result.problem, { result, names: [] });
        const names = found.get(result.problem).names;
        if (names[names.length - 1] !== node.name) names.push(node.name);
      }
    }
    const order = (a, b) =>
      VERDICTS.indexOf(a.result.verdict) - VERDICTS.indexOf(b.result.verdict) || b.names.length - a.names.length;
    const sorted = [...found.entries()].sort(([, a], [, b]) => order(a, b));
    const few = sorted.slice(0, state.all ? MOST : FIRST);
    $("problems").tBodies[0].replaceChildren(...few.map(([place, { names }]) => problemRow(data.problems[place], names)));
    $("section-problems").hidden = !sorted.length;
    $("more").hidden = state.all || few.length === sorted.length;
    $("more").textContent = sorted.length > MOST ? `Show ${MOST} of ${sorted.length} problems` : `Show all ${sorted.length} problems`;
    $("left").textContent = state.all && sorted.length > MOST ? `${sorted.length - MOST} more are not shown: the filters find them.` : "";
  }

  function problemRow(problem, names) {
    const tr = make("tr");
    const verdict = make("td");
    verdict.append(make("span", problem.verdict, `tag ${problem.verdict}`));
    const said = make("td", problem.message, "said");
    if (problem.action) said.append(" ", make("span", `suggested: ${problem.action}`, "action"));
    tr.append(verdict, make("td", nodesOf(names.length), "number"), make("td", problem.reason),
      make("td", [problem.check, problem.target].filter(Boolean).join(" ")), said, setOf(names));
    return tr;
  }

  // A set of nodes: folded, to be expanded, and to be copied as it is shown.
  function setOf(names) {
    const td = make("td", undefined, "names");
    const folded = fold(names);
    const set = make("div", undefined, "set");
    const put = (text) => set.replaceChildren(...text.split(/(?<=,)/).flatMap((piece) => [piece, make("wbr")]));
    put(folded);
    td.append(set);
    const copy = make("button", "Copy");
    copy.type = "button";
    copy.addEventListener("click", () => copyText(set.textContent, copy));
    if (names.length > 1) {
      const expand = make("button", "Expand");
      expand.type = "button";
      expand.setAttribute("aria-expanded", "false");
      expand.addEventListener("click", () => {
        const open = set.classList.toggle("open");
        expand.setAttribute("aria-expanded", String(open));
        expand.textContent = open ? "Fold" : "Expand";
        put(open ? names.join(",") : folded);
      });
      td.append(expand);
    }
    td.append(copy);
    return td;
  }

  // A page from a file is no secure context everywhere: where the clipboard is not to be had, a selection is copied.
  async function copyText(text, button) {
    const before = button.textContent;
    let done = false;
    try {
      await navigator.clipboard.writeText(text);
      done = true;
    } catch {
      const area = make("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = done ? "Copied" : "Not copied";
    setTimeout(() => (button.textContent = before), 1500);
  }

  if (data.outliers.length) {
    $("outliers").hidden = false;
    for (const one of data.outliers) {
      const tr = make("tr");
      tr.append(make("td", one.node), make("td", one.metric), make("td", one.value, "number"), make("td", one.median, "number"),
        make("td", one.deviations, "number"));
      $("outliers").querySelector("tbody").append(tr);
    }
    if (data.outliers_more) {
      $("outliers-more").hidden = false;
      $("outliers-more").textContent = `and ${data.outliers_more} more (--format json has them)`;
    }
  }
  draw();
  const first = nodes.find((node) => `#${encodeURIComponent(node.name)}` === location.hash);
  if (first) show(first, document.querySelector(`[data-node="${CSS.escape(first.name)}"]`));
  document.body.dataset.ready = "yes";
})();
