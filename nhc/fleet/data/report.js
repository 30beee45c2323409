"use strict";
// Draws the report from the JSON beside it. Text from nodes only ever becomes text: textContent, never HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const VERDICTS = ["CRIT", "UNKNOWN", "WARN", "OK", "SKIP"];
  const LETTER = { CRIT: "!", UNKNOWN: "?", WARN: "w", OK: "", SKIP: "-" };
  const $ = (id) => document.getElementById(id);
  const make = (tag, text, cls) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (cls) element.className = cls;
    return element;
  };
  const state = { verdicts: new Set(VERDICTS), group: "", check: "", search: "", node: "" };

  $("when").textContent = `${data.started_at}, ${data.nodes.length} nodes in ${data.elapsed.toFixed(1)} s`;
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
  const options = (select, values) => {
    for (const value of [...values].sort(byName)) {
      const option = make("option", value);
      option.value = value;
      select.append(option);
    }
  };
  const byName = (a, b) => a.localeCompare(b, "en", { numeric: true });
  options($("group"), new Set(data.nodes.map((node) => node.group)));
  options($("check"), new Set(data.nodes.flatMap((node) => node.results.map((result) => result.check))));
  for (const id of ["group", "check", "search"]) {
    $(id).addEventListener("input", () => {
      state[id] = $(id).value;
      draw();
    });
  }
  $("filters").addEventListener("submit", (event) => event.preventDefault());

  const bad = (result) => result.verdict !== "OK" && result.verdict !== "SKIP";
  const text = (node) =>
    [node.name, node.group, node.hostname, ...node.results.filter(bad).flatMap((r) => [r.check, r.target, r.reason, r.message])]
      .join(" ")
      .toLowerCase();
  for (const node of data.nodes) node.text = text(node);
  // With a check chosen, a node's colour is that check's verdict on it.
  const verdictOf = (node) => {
    if (!state.check) return node.verdict;
    const own = node.results.filter((result) => result.check === state.check).map((result) => result.verdict);
    return VERDICTS.find((verdict) => own.includes(verdict));
  };
  const chosen = () =>
    data.nodes.filter((node) => {
      const verdict = verdictOf(node);
      return (
        verdict &&
        state.verdicts.has(verdict) &&
        (!state.group || node.group === state.group) &&
        (!state.search || node.text.includes(state.search.toLowerCase()))
      );
    });

  function draw() {
    const nodes = chosen();
    $("shown").textContent = `${nodes.length} of ${data.nodes.length} nodes`;
    const groups = new Map();
    for (const node of nodes) {
      if (!groups.has(node.group)) groups.set(node.group, []);
      groups.get(node.group).push(node);
    }
    const rows = [...groups.keys()].sort(byName).map((name) => row(name, groups.get(name)));
    $("map").replaceChildren(...rows);
    problems(nodes);
  }

  function row(name, nodes) {
    const element = make("div", undefined, "group");
    element.dataset.group = name;
    const head = make("h3", name);
    const counts = VERDICTS.map((v) => [nodes.filter((node) => verdictOf(node) === v).length, v]).filter(([n]) => n);
    head.append(make("small", counts.map(([n, v]) => `${n} ${v}`).join(", ")));
    const cells = make("div", undefined, "cells");
    for (const node of [...nodes].sort((a, b) => byName(a.name, b.name))) {
      const verdict = verdictOf(node);
      const cell = make("button", LETTER[verdict], `cell ${verdict}`);
      const worst = node.results.find((result) => result.verdict === verdict && bad(result));
      cell.type = "button";
      cell.dataset.node = node.name;
      cell.title = `${node.name}: ${verdict}${worst ? ` ${worst.reason} ${worst.message}` : ""}`;
      cell.setAttribute("aria-label", cell.title);
      if (node.name === state.node) cell.classList.add("chosen");
      cell.addEventListener("click", () => show(node, cell));
      cells.append(cell);
    }
    element.append(head, cells);
    return element;
  }

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
    panel.replaceChildren(head, make("p", about.filter(Boolean).join(" · "), "quiet"));
    for (const note of node.notes) panel.append(make("p", `Note: ${note}`));
    for (const result of node.results.filter(bad)) {
      const line = make("p");
      line.append(make("span", result.verdict, `tag ${result.verdict}`));
      line.append(` ${[result.check, result.target, result.reason].filter(Boolean).join(" ")}: ${result.message}`);
      if (result.action && result.action !== "none") line.append(make("em", ` suggested: ${result.action}`));
      panel.append(line);
      if (result.evidence.length) panel.append(make("pre", result.evidence.join("\n"), "evidence"));
      if (result.line) panel.append(make("p", `${result.source}  ${result.line}`, "quiet"));
    }
    const rest = node.results.filter((result) => !bad(result));
    if (rest.length) {
      const more = make("details");
      more.append(make("summary", `${rest.length} results OK or skipped`));
      const list = make("ul");
      for (const r of rest) list.append(make("li", `${r.verdict} ${r.check} ${r.target} ${r.message}`));
      more.append(list);
      panel.append(more);
    } else if (node.fine) panel.append(make("p", `${node.fine} results OK or skipped`, "quiet"));
    panel.scrollIntoView({ block: "nearest" });
  }

  function problems(nodes) {
    const found = new Map();
    for (const node of nodes) {
      for (const result of node.results) {
        if (!bad(result) || (state.check && result.check !== state.check)) continue;
        const key = [result.verdict, result.check, result.reason, result.message].join("\u0000");
        if (!found.has(key)) found.set(key, { result, nodes: [] });
        found.get(key).nodes.push(node);
      }
    }
    const order = (a, b) =>
      VERDICTS.indexOf(a.result.verdict) - VERDICTS.indexOf(b.result.verdict) || b.nodes.length - a.nodes.length;
    const rows = [...found.values()].sort(order).slice(0, 500).map(({ result, nodes: sick }) => {
      const tr = make("tr");
      const verdict = make("td");
      verdict.append(make("span", result.verdict, `tag ${result.verdict}`));
      const names = sick.map((node) => node.name).sort(byName);
      const listed = names.length > 12 ? `${names.slice(0, 12).join(", ")} and ${names.length - 12} more` : names.join(", ");
      tr.append(verdict, make("td", [result.check, result.target].filter(Boolean).join(" ")), make("td", result.reason),
        make("td", result.message), make("td", listed));
      return tr;
    });
    $("problems").tBodies[0].replaceChildren(...rows);
  }

  if (data.outliers.length) {
    $("outliers").hidden = false;
    const number = (value) => Number(value.toPrecision(4)).toString();
    for (const one of data.outliers.slice(0, 200)) {
      const tr = make("tr");
      tr.append(make("td", one.node), make("td", [one.check, one.target, one.metric].filter(Boolean).join(" ")),
        make("td", `${number(one.value)}${one.unit}`), make("td", `${number(one.median)}${one.unit}`),
        make("td", number(one.deviations)));
      $("outliers").querySelector("tbody").append(tr);
    }
  }
  draw();
  const first = data.nodes.find((node) => `#${encodeURIComponent(node.name)}` === location.hash);
  if (first) show(first, document.querySelector(`[data-node="${CSS.escape(first.name)}"]`));
  document.body.dataset.ready = "yes";
})();
