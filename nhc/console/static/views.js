// The screens. Each answers an address: `show` gives its content. `of` says which news concern it: it is made anew then.
// A screen whose content has `heard` changes its own parts instead.

import { ask, fleet, go, may, page, say } from "/static/app.js";
import { holdForm } from "/static/acts.js";
import { age, el, facts, howMany, link, MARKS, moment, nodeLink, released, replace, sign, stamp, WORDS } from "/static/dom.js";
import { cause, explain, follows, groupAt, groupLink, history, left, nodes, now, problems, reasonCell, service, setLink, targetCell, unless } from "/static/fleet.js";
import { FleetMap } from "/static/map.js";
import { lasting, said, since, table } from "/static/table.js";
import { audit, causeText, episode, episodes, episodeTable, held, maintenance, needs, offenders, rates, told } from "/static/repairs.js";
import { lines, nodeStrip } from "/static/time.js";

const DEEP = "deep"; // no check is called so: their names begin with check_

const kinds = (...some) => (kind) => some.includes(kind);
const ofNode = (kind, data, [name], shown) => (kind === "problems" ? !data.nodes || data.nodes.includes(name)
  : kind === "letters" ? data.layout !== shown?.at?.layout || data.changes.some(([place]) => place === shown.at.place) : kinds("episodes", "holds", "layout")(kind));

// The map.

async function map(_rest, query) {
  await fleet();
  const fact = query.get("by") ?? (page.layout.facts.includes("rack") ? "rack" : page.layout.facts[0] ?? "");
  const check = query.get("check") ?? "";
  const wanted = new Set((query.get("show") ?? "").split("").filter((one) => one in WORDS));
  const words = check === DEEP ? { ...WORDS, s: "tested too long ago", n: "never tested" } : WORDS;
  const picture = new FleetMap((name) => go(`/view/node/${encodeURIComponent(name)}`), say, words);
  const address = (changes) => {
    const next = new URLSearchParams(location.search);
    for (const [key, value] of Object.entries(changes)) value ? next.set(key, value) : next.delete(key);
    return `/view/map?${next}`;
  };
  const by = el("select", { onchange: () => go(address({ by: by.value })) },
    [...page.layout.facts, ""].map((one) => el("option", { value: one, selected: one === fact }, one || "nothing")));
  const checks = await ask(`/api/checks?fact=${encodeURIComponent(fact)}`);
  const names = [...new Set(checks.rows.map((row) => row.check))];
  const colour = el("select", { onchange: () => go(address({ check: colour.value })) },
    ["", ...(page.me.store ? [DEEP] : []), ...names].map((one) => el("option", { value: one, selected: one === check }, one === DEEP ? "the last deep verdict" : one || "the node's verdict")));
  const boxes = [..."cuwsno"].map((letter) => el("label", {}, el("input", {
    type: "checkbox", checked: wanted.has(letter),
    onchange: (event) => {
      event.target.checked ? wanted.add(letter) : wanted.delete(letter);
      go(address({ show: [...wanted].join("") }), true);
      picture.filter(wanted.size ? wanted : null);
    },
  }), " ", el("span", { class: `sign ${letter}` }, MARKS[letter]), ` ${words[letter]}`));
  const groups = el("div", {});
  const letters = async () => (check ? (await ask(check === DEEP ? "/api/deep/letters" : `/api/check/${encodeURIComponent(check)}`)).letters : page.fleet.letters);
  const summary = async () => { // counts what the picture shows
    const rows = check ? counted(picture.layout, picture.letters, fact) : (await ask(`/api/groups?fact=${encodeURIComponent(fact)}`)).rows;
    await released();
    replace(groups, table(fact ? `Nodes by ${fact}` : "Nodes", [fact || "Fleet", "Nodes", ...[..."cuwsno"].map((one) => words[one])],
      rows.map((row) => [fact ? groupLink(fact, row.group) : "all", row.nodes, ...[..."cuwsno"].map((one) => row.counts[one] ?? 0)])));
  };
  const draw = async () => {
    const shown = await letters();
    if (!page.layout) return; // it changes at this moment, and is drawn when it is here
    picture.show(page.layout, shown, fact);
    await summary();
  };
  return {
    content: [
      el("h1", {}, "Fleet map"),
      el("div", { class: "mapped" }, picture.box, el("form", { class: "bar", onsubmit: (event) => event.preventDefault() }, el("label", {}, "Grouped by ", by), el("label", {}, "Coloured by ", colour),
        el("fieldset", { class: "bar" }, el("legend", {}, "Show only"), boxes))),
      groups,
    ],
    ready: async () => {
      await draw();
      if (wanted.size) picture.filter(wanted);
    },
    heard: async (kind, data) => {
      if (kind === "letters" && !check && data.layout === page.layout?.layout) { picture.change(data.changes); await summary(); }
      else if (kind === "layout" || kind === "resync") { await fleet(); await draw(); }
      else if (kind === "problems" && check) await draw();
    },
  };
}

// How many nodes of each group have which letter, the sickest group first.
function counted(layout, letters, fact) {
  const of = layout.places[fact], rows = new Map();
  for (let index = 0; index < letters.length; index++) {
    const group = of ? layout.values[fact][of[index]] : "";
    if (!rows.has(group)) rows.set(group, { group, nodes: 0, counts: {} });
    const row = rows.get(group);
    row.nodes += 1;
    row.counts[letters[index]] = (row.counts[letters[index]] ?? 0) + 1;
  }
  const sick = (row) => [..."cuw"].map((one) => row.counts[one] ?? 0);
  const natural = new Intl.Collator("en", { numeric: true });
  return [...rows.values()].sort((one, other) => {
    const mine = sick(one), theirs = sick(other), place = mine.findIndex((count, at) => count !== theirs[at]);
    return place < 0 ? natural.compare(one.group, other.group) : theirs[place] - mine[place];
  });
}

async function checks(_rest, query) {
  const fact = query.get("fact") ?? "";
  const value = await ask(`/api/checks?fact=${encodeURIComponent(fact)}`);
  const by = el("select", { onchange: () => go(`/view/checks?fact=${encodeURIComponent(by.value)}`) },
    ["", ...value.facts].map((one) => el("option", { value: one, selected: one === fact }, one || "the whole fleet")));
  return { content: [el("h1", {}, "Checks"), el("p", {}, el("label", {}, "By ", by)),
    table("Checks that complain", ["Check", ...(fact ? [fact] : []), "CRIT", "UNKNOWN", "WARN", "Nodes with a fresh report"],
      value.rows.map((row) => [el("td", {}, link(`/view/map?check=${encodeURIComponent(row.check)}`, row.check), " ", link(`/view/explain/${encodeURIComponent(row.check)}`, "Explain")), ...(fact ? [groupLink(fact, row.group)] : []), row.crit, row.unknown, row.warn, row.nodes]), unless("No check complains."))] };
}

// A node.

async function node([name]) {
  const path = `/api/node/${encodeURIComponent(name)}`;
  const kept = (what) => (page.me.store ? ask(`${path}/${what}`).catch(() => null) : null);
  const [one, here, past, strip] = await Promise.all([ask(path), may("evidence") ? ask(`${path}/work`).catch((error) => ({ rows: [], problem: error.message })) : {}, kept("timeline"), page.me.store ? nodeStrip(name).catch(() => "") : ""]);
  const evidence = (one.report?.results ?? []).filter((result) => result.evidence?.length);
  const plots = el("section", { class: "plots", "aria-label": "How its values went" });
  const waiting = (one.episodes ?? []).filter((row) => row.state === "awaiting-approval" && row.ended === null);
  const other = el("input", { name: "with", required: true, autocomplete: "off", maxlength: 200, "aria-label": "Compare with", placeholder: "another node" });
  return { at: { layout: one.layout, place: one.place }, ready: () => measured(plots, kept("metrics"), one.work?.rates ?? []), content: [
    el("h1", {}, name, " ", sign(one.letter)),
    ...waiting.map((row) => el("p", { class: "card agree" }, `${row.rung} waits for your agreement: ${causeText(row.cause)}. `, el("a", { class: "go", href: `/view/episode/${row.id}` }, "Decide"))),
    strip,
    table("Problems", ["Verdict", "Reason", ...(page.me.store ? ["Next step", "In service"] : []), "Since", "Target", "Message", "Check", "Suggested"],
      one.problems.map((row) => [sign(row.verdict), reasonCell(row), ...(page.me.store ? [follows(row), service(row.out)] : []), since(row.began, one.at), targetCell(row), said(row.message), row.check, row.action === "none" ? "" : row.action]), "sn".includes(one.letter) ? "Nothing is known of this node now: it has no fresh report." : "No problem stands."),
    el("div", { class: "columns" },
      facts([["Verdict", one.verdict || "none yet"], ["Report", one.reported_at ? `${age(one.at - one.reported_at)} old, by ${one.source}` : "never"], ["Since", one.since ? moment(one.since) : ""],
        ["In service", one.service ? (one.service.out ? `out since ${stamp(one.service.since)} by ${one.service.by}: ${one.service.why}` : "nhc has not taken it out; what a person did is known to the scheduler") : ""],
        ["Scheduler", one.scheduler ?? ""], ["Kind", one.kind], ["Boot", one.report?.boot_id ?? ""], ...Object.entries(one.groups).map(([fact, group]) => [fact, groupAt(fact, group)])]),
      el("div", {}, el("p", { class: "bar" }, page.me.store ? link(`/view/timeline/${encodeURIComponent(name)}`, "Timeline") : "", ...Object.entries(one.links).map(([title, address]) => el("a", { href: address, rel: "noreferrer" }, title))),
        el("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); go(`/view/compare?${new URLSearchParams({ a: name, b: other.value.trim() })}`); } }, el("label", {}, "Compare with ", other), el("button", {}, "Compare")),
        may("act") && page.me.store ? holdForm("node", name, 1) : "")),
    plots,
    ...evidence.flatMap((result) => [el("h2", {}, `Evidence of ${result.check}`), el("pre", { tabindex: 0 }, result.evidence.join("\n"))]),
    here.rows ? workHere(here, one.at) : "",
    past ? story(past, one) : "",
    ...(one.work ? workOf(one.work) : []),
    one.episodes?.length ? episodeTable("Episodes", one.episodes, one.at) : "",
  ] };
}

// All that happened to a node in the last day in one order, the newest first: problems, marks, repairs, jobs, people.
function story(past, one) {
  const rows = [
    ...past.problems.flatMap((row) => [[row.began, "Problem", [sign(row.verdict), ` ${row.reason || row.check}${row.target ? ` of ${row.target}` : ""}: ${row.message}`]], ...(row.ended ? [[row.ended, "Problem ended", `${row.reason || row.check}${row.target ? ` of ${row.target}` : ""}`]] : [])]),
    ...past.gaps.filter((span) => span.ended < past.ended || "sn".includes(one.letter)).map((span) => [span.began, "No report", `for ${age(span.ended - span.began)}`]),
    ...past.out.flatMap((span) => [[span.began, "Out of service", "by nhc"], ...(span.ended < past.ended ? [[span.ended, "In service", ""]] : [])]),
    ...past.events.map((event) => [event.at, KINDS.find(([begin]) => event.what.startsWith(begin))?.[1] ?? "Repair", [event.episode ? link(`/view/episode/${event.episode}`, event.what) : event.what, `${why(event.detail)}, by ${event.actor}`]]),
    ...(one.work?.failed ?? []).map((row) => [row.at, "Job failed", [link(`/view/job/${row.id}`, row.job), ` of ${row.user}: ${row.why}`]]),
    ...(one.work?.deep ?? []).map((row) => [row.at, "Deep check", [sign(row.verdict), ` ${row.suite}`]]),
  ].filter(([at]) => at >= past.began && at <= past.ended).sort(([at], [other]) => other - at);
  const shown = rows.slice(0, 100);
  return el("section", { class: "table", "aria-label": "What happened in the last 24 hours" }, el("p", { class: "caption" }, "What happened in the last 24 hours, the newest first"),
    shown.length ? el("ol", { class: "story" }, shown.map(([at, kind, what]) => el("li", {}, moment(at), el("span", { class: "kind" }, kind), el("span", {}, what)))) : el("p", { class: "empty" }, "Nothing happened. What is found, marked, repaired or decided will stand here."),
    rows.length > shown.length ? el("p", { class: "empty" }, `${(rows.length - shown.length).toLocaleString("en")} older ones are not shown: `, link(`/view/timeline/${encodeURIComponent(one.node)}`, "Timeline")) : "");
}

// What a row of the audit log says of why: the first of these that it has.
const why = (detail) => { const [text] = ["because", "waiting", "message", "reason", "why"].map((key) => detail[key]).filter((one) => one); return text ? `: ${text}` : ""; };

const KINDS = [["hold.", "Person"], ["attempt.", "Repair"], ["job.", "Job"], ["train.", "Maintenance"], ["approval", "Person"], ["episode.opened", "Episode"]];

// Plots of what the store has of a node: what deep checks measured of each device, and what its reports count.
async function measured(box, asked, rates) {
  const value = await asked;
  const series = new Map(); // [check and name]: title, unit, series
  const add = (key, title, unit, label, points) => {
    if (points.length < 2) return;
    if (!series.has(key)) series.set(key, { title, unit, some: [] });
    series.get(key).some.push([label, points]);
  };
  for (const row of rates) add(`deep ${row.test} ${row.unit}`, `${row.test}, by deep checks`, row.unit, row.device || row.serial, row.values);
  for (const row of value?.series ?? []) add(`${row.check} ${row.name} ${row.unit}`, `${row.name.replaceAll("_", " ").replace(SHORT, (word) => word.toUpperCase())}, by ${row.check}`, UNITS[row.unit] ?? row.unit, row.target || row.name, row.points);
  // What never moved says nothing as a picture.
  const moves = ({ some }) => some.some(([, points]) => points.some(([, one]) => one !== points[0][1]));
  const made = [...series.values()].filter(moves).slice(0, PLOTS);
  box.replaceChildren(...made.map(({ title, unit, some }) => lines(title, unit, some)));
}

const SHORT = /\b(cpu|crc|dram|ecc|gpu|hbm|ib|nvme|pcie|sram)\b/g, PLOTS = 12, UNITS = { Cel: "°C", B: "bytes" };

// Two nodes, or two groups of one fact, beside one another: what differs is marked.

async function compare(_rest, query) {
  const [a, b, by] = ["a", "b", "by"].map((key) => query.get(key) ?? "");
  const head = el("h1", {}, "Compare");
  const choice = el("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); go(`/view/compare?${new URLSearchParams(new FormData(event.target))}`); } },
    ...[["by", by, "Fact, empty for nodes"], ["a", a, "One"], ["b", b, "Another"]].map(([name, value, label]) => el("label", {}, `${label} `, el("input", { name, value, autocomplete: "off", maxlength: 200, required: name !== "by" }))), el("button", {}, "Compare"));
  if (!a || !b) return { content: [head, choice, el("p", { class: "empty" }, "Two names of nodes; or a fact such as rack and two of its groups.")] };
  const both = await Promise.all([a, b].map((name) => ask(by ? `/api/nodes?${new URLSearchParams({ by, group: name })}` : `/api/node/${encodeURIComponent(name)}`)));
  const rows = by ? ofGroups(both) : ofNodes(both);
  const named = (name) => (by ? link(`/view/nodes?${new URLSearchParams({ by, group: name })}`, `${by} ${name}`) : nodeLink(name));
  return { content: [head, choice, el("p", {}, named(a), " and ", named(b)),
    table("Beside one another, what differs first", ["", "What", a, b], rows.sort((one, other) => differs(other) - differs(one)).map(([what, one, other]) => [one === other ? "" : "differs", what, said(String(one)), said(String(other))]))] };
}

const differs = ([, one, other]) => Number(one !== other);

function ofNodes([one, other]) {
  const both = (what, read) => [what, read(one) ?? "", read(other) ?? ""];
  const union = (read) => [...new Set([...read(one), ...read(other)])].sort();
  const checks = (node) => new Map((node.report?.results ?? []).map((result) => [`${result.check}${result.target ? ` ${result.target}` : ""}`, result]));
  const [mine, theirs] = [checks(one), checks(other)];
  return [both("Verdict", (node) => node.verdict || "none yet"), both("Kind", (node) => node.kind), both("Source", (node) => node.source),
    ...union((node) => Object.keys(node.groups)).map((fact) => both(fact, (node) => node.groups[fact])),
    ...union((node) => Object.keys(node.report?.labels ?? {})).map((key) => both(key, (node) => node.report?.labels?.[key])),
    ...union((node) => node.problems.map((row) => `${row.reason || row.check}${row.target ? ` ${row.target}` : ""}`)).map((text) => both(`Problem ${text}`, (node) => (node.problems.find((row) => `${row.reason || row.check}${row.target ? ` ${row.target}` : ""}` === text)?.message ?? "none"))),
    ...[...new Set([...mine.keys(), ...theirs.keys()])].map((key) => { const text = (of) => { const result = of.get(key); return result ? `${result.verdict} ${result.message ?? ""}`.trim() : "not run"; }; return [key, text(mine), text(theirs)]; })];
}

function ofGroups([one, other]) {
  const count = (value, wanted) => value.rows.filter(wanted).length;
  const both = (what, wanted) => [what, count(one, wanted), count(other, wanted)];
  const reasons = [...new Set([...one.rows, ...other.rows].map((row) => row.reason).filter((reason) => reason))].sort();
  return [["Nodes", one.count, other.count], ...[..."cuwsno"].map((letter) => both(WORDS[letter], (row) => row.letter === letter)),
    ...(page.me.store ? [both("Out of service", (row) => row.out)] : []), ...reasons.map((reason) => both(reason, (row) => row.reason === reason))];
}

// What the scheduler says works there, whether or not nhc watches it.
function workHere(here, at) {
  const rows = here.rows.map((row) => [row.watched === null ? row.id : link(`/view/job/${row.watched}`, row.id), said(row.name), row.user, row.state, since(row.started, at)]);
  return [
    here.problem ? el("p", {}, `Work on this node: ${here.problem}.`) : table("Work on this node", ["Work", "Name", "User or namespace", "State", "Since"], rows, `${here.scheduler} knows of no work on this node.`),
    left(here.left_out) ?? "", here.note ? el("p", {}, `${here.note}.`) : "",
  ];
}

function workOf(work) {
  const jobLink = (row) => link(`/view/job/${row.id}`, row.job);
  return [
    ...work.spares.map((row) => el("p", {}, nodeLink(row.node), ` is a spare of ${row.pool}: ${row.state}`, row.stands_for ? [" for ", nodeLink(row.stands_for)] : "", `, since ${stamp(row.since)}`, row.why ? `: ${row.why}` : "")),
    ...work.trains.map((row) => el("p", {}, `Maintenance train ${row.train}, wave ${row.wave}: ${row.outcome || row.state} ${stamp(row.ended ?? row.updated)}. By ${row.by}: ${row.why}`)),
    table("Deep checks", ["Suite", "Verdict", "Age", "When"], work.deep.map((row) => [row.suite, sign(row.verdict), lasting(row.age), stamp(row.at)]), "No deep check was run here."),
    work.rates.length ? table("Measured by deep checks, by board", ["Device", "Serial number", "Test", "Runs", "Lowest", "Median", "Last", "From the median", "Over time", "When"], work.rates.map((row) => [row.device, row.serial, row.test, row.runs, row.lowest.toPrecision(4), row.median.toPrecision(4), `${row.last.toPrecision(4)} ${row.unit}`, `${row.change.toFixed(1)} %`, spark(row), stamp(row.values.at(-1)[0])])) : "",
    work.running.length ? table("Watched jobs here", ["Job", "User", "Phase", "Run"], work.running.map((row) => [jobLink(row), row.user, row.phase, row.run])) : "",
    work.failed.length ? table("Jobs that failed here", ["Job", "User", "Run", "Why", "When", "Restart"], work.failed.map((row) => [jobLink(row), row.user, row.run, said(row.why), stamp(row.at), row.restart === null ? "none" : `number ${row.restart}: ${row.outcome || row.state}`])) : "",
  ];
}

// How a value went, a bar a run: its height from 0 to the highest.
function spark(row) {
  const most = Math.max(...row.values.map(([, value]) => value)) || 1;
  return el("td", {}, el("div", { class: "bars", role: "img", "aria-label": `The last ${row.values.length}, from ${row.lowest.toPrecision(4)} to ${most.toPrecision(4)} ${row.unit}` }, row.values.map(([at, value]) => {
    const bar = el("i", { class: "sign o" });
    bar.style.setProperty("height", `${(value / most) * 100}%`);
    return el("div", { title: `${stamp(at)}: ${value.toPrecision(4)} ${row.unit}` }, bar);
  })));
}

const HELPS = { no: "does not help", may: "may help", unknown: "not known" };

async function job([id]) {
  const one = await ask(`/api/job/${id}`);
  const links = (names) => el("td", { class: "said" }, names.flatMap((name) => [nodeLink(name), " "]));
  return { content: [
    el("h1", {}, `Job ${one.job}`),
    facts([["Controller", one.controller], ["User", one.user], ["Phase", one.phase], ["Run", one.run], ["Nodes wanted", one.wants], ["Restarts allowed", one.max_restarts], ["Checkpoint", one.checkpoint], ["Watched since", stamp(one.began)], ["Ended", stamp(one.ended)], ["Logged last", one.logged]]),
    el("p", {}, "On ", one.nodes.flatMap((name) => [nodeLink(name), " "])),
    one.ends.length ? table("Why its runs failed", ["Run", "Why", "Node", "Restart", "GPU hours", "When"], one.ends.map((row) => [row.run, said(row.why), row.node ? nodeLink(row.node) : "", HELPS[row.restart] ?? row.restart, row.gpus && row.began !== null ? (row.gpus * (row.ended - row.began) / 3600).toFixed(1) : "", stamp(row.ended)])) : "",
    table("Restarts", ["Number", "Run", "State", "Why", "Failed nodes", "Message", "Written"], one.restarts.map((row) => [row.number, row.run, row.outcome || row.state, said(row.why), links(row.nodes), said(row.message), stamp(row.written)]), "It was never restarted."),
    table("Nodes that it is kept off", ["Node", "Run", "Why", "When"], one.pairs.map((row) => [nodeLink(row.node), row.run, said(row.why), stamp(row.at)]), "None."), left(one.left_out) ?? "",
  ] };
}

async function deep(_rest, query) {
  const fact = query.get("fact") ?? "", suite = query.get("suite") ?? "";
  const value = await ask(`/api/deep?${new URLSearchParams({ fact, suite })}`);
  const address = (changes) => `/view/deep?${new URLSearchParams({ fact, suite, ...changes })}`;
  const by = el("select", { onchange: () => go(address({ fact: by.value })) }, ["", ...value.facts].map((one) => el("option", { value: one, selected: one === fact }, one || "the whole fleet")));
  const of = el("select", { onchange: () => go(address({ suite: of.value })) }, ["", ...value.suites].map((one) => el("option", { value: one, selected: one === suite }, one || "any")));
  return { content: [
    el("h1", {}, "Deep checks"),
    el("p", { class: "bar" }, el("label", {}, "By ", by), el("label", {}, "Suite ", of), link(`/view/map?check=${DEEP}`, "On the map")),
    el("p", {}, `${howMany(value.due)} ${value.due === 1 ? "is due: it has" : "are due: they have"} no good verdict of the last ${value.younger_days} days. Verdicts of the last ${value.days} days count.`),
    table("Nodes by the age of their last verdict", [fact || "Fleet", "Nodes", ...value.ages.map((one) => `Under ${one}`), "Older", "Never", "Bad", "Due"],
      value.rows.map((row) => [fact ? groupLink(fact, row.group) : "all", row.nodes, ...row.ages, row.older, row.never, row.bad, row.due]), "There is no node."), left(value.left_out) ?? "",
    value.never.count ? el("p", {}, `Never tested: ${howMany(value.never.count)}, `, setLink(value.never.nodes), value.never.count > 200 ? ", …" : "") : "",
    table("Who is due, the oldest verdict first", ["Node", "Verdict", "Suite", "Age", "Why"], value.late.map((row) => [nodeLink(row.node), sign(row.verdict), row.suite, lasting(row.age), said(row.why)]), "No node that was tested is due."), left(value.late_left_out) ?? "",
  ] };
}

async function timeline([name], query) {
  const to = Number(query.get("to")) || now();
  const from = Number(query.get("from")) || to - 86400;
  const value = await ask(`/api/node/${encodeURIComponent(name)}/timeline?from=${from}&to=${to}`);
  const spans = value.ended - value.began;
  const span = (kind, began, ended, title, text) => {
    const made = el("span", { class: kind, title }, text);
    const start = Math.max(0, (began - value.began) / spans), end = Math.min(1, ((ended ?? value.ended) - value.began) / spans);
    const width = Math.max(0.004, end - start); // what was short is seen, at the end of the band as well
    made.style.setProperty("left", `${Math.min(start, 1 - width) * 100}%`);
    made.style.setProperty("width", `${width * 100}%`);
    if (width < 0.08) made.classList.add("short"); // its word would be cut
    return made;
  };
  const letter = { CRIT: "c", UNKNOWN: "u", WARN: "w" };
  const bands = value.problems.map((row) => el("div", {}, el("div", {}, `${row.reason || row.check} ${row.target}`),
    el("div", { class: "band" }, span(`sign ${letter[row.verdict] ?? "u"}`, row.began, row.ended, row.message, row.verdict))));
  const hours = [0, 1, 2, 3, 4].map((part) => el("span", {}, stamp(value.began + (spans * part) / 4).slice(5, 16)));
  const steps = [["6 h", 21600], ["1 day", 86400], ["7 days", 604800], ["30 days", 2592000]];
  return { content: [
    el("h1", {}, "Timeline of ", nodeLink(name)), el("p", { class: "bar" }, steps.map(([text, seconds]) => el("a", { href: `/view/timeline/${encodeURIComponent(name)}?from=${to - seconds}&to=${to}`, "aria-current": seconds === Math.round(to - from) ? "true" : null }, text))),
    el("p", { class: "quiet" }, `${stamp(value.began)} to ${stamp(value.ended)}, times in UTC.`),
    el("div", { class: "bands" }, el("div", {}, el("div", {}, "Time without a report"), el("div", { class: "band" }, value.gaps.map((gap) => span("gap", gap.began, gap.ended, `no report for ${age(gap.ended - gap.began)}`, "")))),
      el("div", {}, el("div", {}, "Out of service, by nhc"), el("div", { class: "band" }, value.out.map((one) => span("away", one.began, one.ended, `out of service for ${age(one.ended - one.began)}`, "")))),
      ...bands, el("div", { class: "hours", "aria-hidden": "true" }, hours)), value.more ? el("p", {}, "Older problems are not shown: those that stand and the newest are. Choose a shorter time.") : "", table("Events", ["When", "Who", "What", "Detail"], value.events.map((one) => [stamp(one.at), one.actor, one.what, said(told(one.detail))]), "Nothing was done."),
  ] };
}

async function health() {
  const value = await ask("/api/health");
  return { content: [el("h1", {}, "The console itself"), facts([
    ["Fleet from", value.source], ["Read", `${age(value.at - value.read_at)} ago`], ["Trouble", value.trouble], ["Note", (value.notes ?? []).join("; ")], ["Nodes without a fresh report", value.silent?.count ? link("/view/nodes?show=sn", value.silent.count.toLocaleString("en")) : value.silent ? "none" : ""],
    ["Viewers", value.viewers], ["Streams ended because nobody read them", value.dropped], ["Sessions", value.sessions], ["Running for", age(value.at - value.started)], ["Version", value.version]])] };
}

const PROBLEMS = kinds("problems", "layout"), REPAIRS = kinds("episodes", "holds");

// The side of the page: what happens now, what can be done, what there is to understand, and the console's own matters.
export const GROUPS = [["Now", ["needs", "map", "problems"]], ["Act", ["episodes", "held", "maintenance"]],
  ["Understand", ["nodes", "history", "rates", "deep", "checks", "offenders"]], ["System", ["audit", "health"]]];

export const SCREENS = {
  needs: { title: "Needs you", show: needs, of: (kind) => PROBLEMS(kind) || REPAIRS(kind) || kind === "letters" },
  map: { title: "Map", show: map }, problems: { title: "Problems", show: problems, of: PROBLEMS }, checks: { title: "Checks", show: checks, of: PROBLEMS },
  episodes: { title: "Repairs", show: episodes, store: true, of: REPAIRS }, held: { title: "Held back", show: held, store: true, of: REPAIRS },
  rates: { title: "Failure rates", show: rates, store: true },
  offenders: { title: "Offenders", show: offenders, store: true }, audit: { title: "Audit", show: audit, store: true, right: "audit", of: REPAIRS },
  deep: { title: "Deep checks", show: deep, store: true }, job: { title: "Job", show: job },
  maintenance: { title: "Maintenance", show: maintenance, store: true, of: REPAIRS }, compare: { title: "Compare", show: compare },
  history: { title: "History", show: history, store: true }, nodes: { title: "Nodes", show: nodes, of: kinds("letters", "layout", "problems", "episodes") },
  explain: { title: "Explanation", show: explain }, health: { title: "Health", show: health }, cause: { title: "Cause", show: cause, of: PROBLEMS }, node: { title: "Node", show: node, of: ofNode },
  timeline: { title: "Timeline", show: timeline, of: ofNode }, episode: { title: "Episode", show: episode, of: REPAIRS },
};
