// The screens. Each answers an address: `show` gives its content, `heard` what it does when something is new.

import { ask, fleet, go, may, page, say } from "/static/app.js";
import { abortForm, decisionForm, holdForm, releaseForm } from "/static/acts.js";
import { age, el, facts, howMany, link, nodeLink, said, sign, stamp, table, WORDS } from "/static/dom.js";
import { FleetMap } from "/static/map.js";

const now = () => page.fleet?.at ?? Date.now() / 1000;
const left = (count) => (count ? el("p", {}, `${count.toLocaleString("en")} more are not shown.`) : null);

const DEEP = "deep"; // no check is called so: their names begin with check_

async function again(kinds, kind, show) {
  if (kinds.includes(kind)) await show();
}

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
  }), ` ${words[letter]}`));
  const groups = el("div", {});
  const letters = async () => (check ? (await ask(check === DEEP ? "/api/deep/letters" : `/api/check/${encodeURIComponent(check)}`)).letters : page.fleet.letters);
  const summary = async () => { // counts what the picture shows
    const rows = check ? counted(picture.layout, picture.letters, fact) : (await ask(`/api/groups?fact=${encodeURIComponent(fact)}`)).rows;
    groups.replaceChildren(table(fact ? `Nodes by ${fact}` : "Nodes", [fact || "Fleet", "Nodes", ...[..."cuwsno"].map((one) => words[one])],
      rows.slice(0, 200).map((row) => [row.group || (fact ? "(not known)" : "all"), row.nodes, ...[..."cuwsno"].map((one) => row.counts[one] ?? 0)])));
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
      el("form", { class: "bar", onsubmit: (event) => event.preventDefault() }, el("label", {}, "Grouped by ", by), el("label", {}, "Coloured by ", colour),
        el("fieldset", { class: "bar" }, el("legend", {}, "Show only"), boxes)),
      picture.box, groups,
    ],
    ready: async () => {
      await draw();
      if (wanted.size) picture.filter(wanted);
    },
    heard: async (kind, data) => {
      if (kind === "letters" && !check && data.layout === page.layout.layout) { picture.change(data.changes); await summary(); }
      else if (kind === "layout" || kind === "resync") { page.layout = null; await fleet(); await draw(); }
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

// Problems.

const trend = (parts) => {
  const most = Math.max(1, ...parts);
  return el("span", { class: "trend", role: "img", "aria-label": `new in each five minutes of the last hour: ${parts.join(", ")}` },
    parts.map((part) => { const bar = el("i", {}); bar.style.setProperty("height", `${(part / most) * 20}px`); return bar; }));
};

async function problems() {
  const box = el("div", {});
  const draw = async () => {
    const value = await ask("/api/causes");
    box.replaceChildren(table("Problems by cause", ["Verdict", "Nodes", "Cause", "Where", "Since", "Last hour", "Suggested"],
      value.causes.map((one) => [
        sign(one.verdict), one.affected,
        el("td", { class: "said" }, link(`/view/cause?check=${encodeURIComponent(one.check)}&reason=${encodeURIComponent(one.reason)}`, one.reason || one.check), el("br"), one.message),
        el("td", { class: "said" }, one.nodes, one.shares.map(([group, hit, size]) => el("div", {}, `${hit} of the ${size} nodes of ${group}`))),
        age(value.at - one.began), trend(one.trend), one.action === "none" ? "" : one.action,
      ]), "No problem stands."), left(value.left_out) ?? "");
  };
  await draw();
  return { content: [el("h1", {}, "Problems"), box], heard: (kind) => again(["problems", "layout", "resync"], kind, draw) };
}

async function cause(_rest, query) {
  const value = await ask(`/api/cause?${query}`);
  return { content: [el("h1", {}, `${value.reason || value.check}`), facts([["Check", value.check], ["Nodes", value.count.toLocaleString("en")], ["Set", value.nodes]]),
    table("Nodes", ["Node", "Target", "Message", "Since"], value.rows.map((row) => [nodeLink(row.node), row.target, said(row.message), age(now() - row.began)])), left(value.left_out) ?? ""] };
}

async function checks(_rest, query) {
  const fact = query.get("fact") ?? "";
  const value = await ask(`/api/checks?fact=${encodeURIComponent(fact)}`);
  const by = el("select", { onchange: () => go(`/view/checks?fact=${encodeURIComponent(by.value)}`) },
    ["", ...value.facts].map((one) => el("option", { value: one, selected: one === fact }, one || "the whole fleet")));
  return { content: [el("h1", {}, "Checks"), el("p", {}, el("label", {}, "By ", by)),
    table("Checks that complain", ["Check", ...(fact ? [fact] : []), "CRIT", "UNKNOWN", "WARN", "Nodes with a fresh report"],
      value.rows.map((row) => [link(`/view/map?check=${encodeURIComponent(row.check)}`, row.check), ...(fact ? [row.group || "(not known)"] : []), row.crit, row.unknown, row.warn, row.nodes]), "No check complains.")] };
}

async function find(_rest, query) {
  const value = await ask(`/api/find?text=${encodeURIComponent(query.get("text") ?? "")}`);
  if (value.count === 1) { await go(`/view/node/${encodeURIComponent(value.nodes[0])}`); return { content: [...document.getElementById("main").childNodes] }; }
  await fleet();
  const letters = new Map(page.layout.names.map((name, index) => [name, page.fleet.letters[index]]));
  return { content: [el("h1", {}, value.count ? howMany(value.count) : "No node is called so"), el("ul", { class: "found" }, value.nodes.map((name) => el("li", {}, sign(letters.get(name) ?? "n"), " ", nodeLink(name)))), left(value.count - value.nodes.length) ?? ""] };
}

// A node.

async function node([name]) {
  const one = await ask(`/api/node/${encodeURIComponent(name)}`);
  const evidence = (one.report?.results ?? []).filter((result) => result.evidence?.length);
  return { content: [
    el("h1", {}, name, " ", sign(one.letter)),
    facts([["Verdict", one.verdict || "none yet"], ["Report", one.reported_at ? `${age(one.at - one.reported_at)} old, by ${one.source}` : "never"], ["Since", one.since ? stamp(one.since) : ""],
      ["Kind", one.kind], ["Boot", one.report?.boot_id ?? ""], ...Object.entries(one.groups)]),
    el("p", { class: "bar" }, page.me.store ? link(`/view/timeline/${encodeURIComponent(name)}`, "Timeline") : "", ...Object.entries(one.links).map(([title, address]) => el("a", { href: address, rel: "noreferrer" }, title))),
    table("Problems", ["Verdict", "Check", "Reason", "Target", "Message", "Since", "Suggested"], one.problems.map((row) => [sign(row.verdict), row.check, row.reason, row.target, said(row.message), age(one.at - row.began), row.action === "none" ? "" : row.action]), "No problem stands."),
    ...evidence.flatMap((result) => [el("h2", {}, `Evidence of ${result.check}`), el("pre", { tabindex: 0 }, result.evidence.join("\n"))]),
    ...(one.work ? workOf(one.work) : []),
    one.episodes?.length ? episodeTable(one.episodes, one.at) : "",
    may("act") && page.me.store ? holdForm("node", name, 1) : "",
  ] };
}

function workOf(work) {
  const jobLink = (row) => link(`/view/job/${row.id}`, row.job);
  return [
    ...work.spares.map((row) => el("p", {}, nodeLink(row.node), ` is a spare of ${row.pool}: ${row.state}`, row.stands_for ? [" for ", nodeLink(row.stands_for)] : "", `, since ${stamp(row.since)}`, row.why ? `: ${row.why}` : "")),
    ...work.trains.map((row) => el("p", {}, `Maintenance train ${row.train}, wave ${row.wave}: ${row.outcome || row.state} ${stamp(row.ended ?? row.updated)}. By ${row.by}: ${row.why}`)),
    table("Deep checks", ["Suite", "Verdict", "Age", "When"], work.deep.map((row) => [row.suite, sign(row.verdict), age(row.age), stamp(row.at)]), "No deep check was run here."),
    work.running.length ? table("Watched jobs here", ["Job", "User", "Phase", "Run"], work.running.map((row) => [jobLink(row), row.user, row.phase, row.run])) : "",
    work.failed.length ? table("Jobs that failed here", ["Job", "User", "Run", "Why", "When", "Restart"], work.failed.map((row) => [jobLink(row), row.user, row.run, said(row.why), stamp(row.at), row.restart === null ? "none" : `number ${row.restart}: ${row.outcome || row.state}`])) : "",
  ];
}

async function job([id]) {
  const one = await ask(`/api/job/${id}`);
  const links = (names) => el("td", { class: "said" }, names.flatMap((name) => [nodeLink(name), " "]));
  return { content: [
    el("h1", {}, `Job ${one.job}`),
    facts([["Controller", one.controller], ["User", one.user], ["Phase", one.phase], ["Run", one.run], ["Nodes wanted", one.wants], ["Restarts allowed", one.max_restarts], ["Checkpoint", one.checkpoint], ["Watched since", stamp(one.began)], ["Ended", stamp(one.ended)], ["Said last", one.said]]),
    el("p", {}, "On ", one.nodes.flatMap((name) => [nodeLink(name), " "])),
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
      value.rows.map((row) => [row.group || (fact ? "(not known)" : "all"), row.nodes, ...row.ages, row.older, row.never, row.bad, row.due]), "There is no node."), left(value.left_out) ?? "",
    value.never.count ? el("p", {}, `Never tested: ${howMany(value.never.count)}, ${value.never.nodes}${value.never.count > 200 ? ", …" : ""}`) : "",
    table("Who is due, the oldest verdict first", ["Node", "Verdict", "Suite", "Age", "Why"], value.late.map((row) => [nodeLink(row.node), sign(row.verdict), row.suite, age(row.age), said(row.why)]), "No node that was tested is due."), left(value.late_left_out) ?? "",
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
    return made;
  };
  const letter = { CRIT: "c", UNKNOWN: "u", WARN: "w" };
  const bands = value.problems.map((row) => el("div", {}, el("div", {}, `${row.reason || row.check} ${row.target}`),
    el("div", { class: "band" }, span(`sign ${letter[row.verdict] ?? "u"}`, row.began, row.ended, row.message, row.verdict))));
  const steps = [["6 h", 21600], ["1 day", 86400], ["7 days", 604800], ["30 days", 2592000]];
  return { content: [
    el("h1", {}, `Timeline of ${name}`), el("p", { class: "bar" }, nodeLink(name), steps.map(([text, seconds]) => el("a", { href: `/view/timeline/${encodeURIComponent(name)}?from=${to - seconds}&to=${to}`, "aria-current": seconds === Math.round(to - from) ? "true" : null }, text))),
    el("p", {}, `${stamp(value.began)} to ${stamp(value.ended)}`),
    el("div", {}, el("div", {}, "Time without a report"), el("div", { class: "band" }, value.gaps.map((gap) => span("gap", gap.began, gap.ended, `no report for ${age(gap.ended - gap.began)}`, "")))),
    ...bands, table("Events", ["When", "Who", "What"], value.events.map((one) => [stamp(one.at), one.actor, said(one.what)]), "Nothing was done."),
  ] };
}

// Repairs.

// check|reason|target, as the store keeps it.
const causeText = (cause) => cause.split("|").filter((part) => part !== "").join(", ");

// A row's detail in words, without what says nothing; times are Unix seconds there.
const told = (detail) => Object.entries(detail).filter(([, value]) => value !== "" && value !== null).map(([key, value]) =>
  `${key}: ${key === "seen" ? stamp(value) : key === "cause" ? causeText(value) : typeof value === "object" ? JSON.stringify(value) : value}`).join("; ");

function episodeTable(rows, at) {
  return table("Episodes", ["Episode", "Node", "Cause", "State", "Repair", "For", "Waits for"], rows.map((one) => [
    link(`/view/episode/${one.id}`, String(one.id)), nodeLink(one.node), said(causeText(one.cause)), one.state, one.rung, age((one.ended ?? at) - one.opened), said(one.waiting || one.because)]), "There is none.");
}

async function episodes(_rest, query) {
  const which = query.get("which") ?? "open";
  const box = el("div", {});
  const draw = async () => { const value = await ask(`/api/episodes?which=${which}`); box.replaceChildren(episodeTable(value.episodes, value.at)); };
  await draw();
  return { content: [el("h1", {}, "Repairs"), el("p", { class: "bar" }, ["open", "ended", "all"].map((one) => el("a", { href: `/view/episodes?which=${one}`, "aria-current": one === which ? "true" : null }, one))), box],
    heard: (kind) => again(["episodes", "resync"], kind, draw) };
}

async function episode([id]) {
  const one = await ask(`/api/episode/${id}`);
  return { content: [
    el("h1", {}, `Episode ${one.id} of `, nodeLink(one.node)),
    facts([["Cause", causeText(one.cause)], ["State", one.state], ["Because", one.because || one.outcome], ["Repair", one.rung], ["Device", one.device], ["Opened", stamp(one.opened)], ["Waits for", one.waiting]]),
    one.state === "awaiting-approval" && may("approve") ? decisionForm(one) : "",
    table("Attempts", ["Number", "Repair", "By", "State", "Outcome", "Message", "Written", "Ended"], one.attempts.map((row) => [row.number, row.rung, row.repairer, row.state, row.outcome, said(row.message), stamp(row.written), stamp(row.ended)]), "Nothing was tried yet."),
    table("Decisions", ["Who", "Decision", "Repair", "Why", "When"], one.decisions.map((row) => [row.decided_by, row.decision, row.rung, said(row.reason), stamp(row.decided)]), "No person has decided anything yet."),
    table("Evidence", ["Piece", "Bytes", "SHA-256", "Kept until", "Note"], one.evidence.map((row) => [row.name, row.size, said(row.sha256), stamp(row.expires), said(row.cut ? `cut; ${row.message}` : row.message)]), "No evidence was collected."),
    table("What happened", ["When", "Who", "What", "Detail"], one.events.map((row) => [stamp(row.at), row.actor, row.what, said(told(row.detail))])),
    one.ended === null && may("approve") ? abortForm(one) : "",
  ] };
}

async function held() {
  const value = await ask("/api/held");
  return { content: [
    el("h1", {}, "Held back"),
    table("What waits, and why", ["Why", "Nodes", "Which"], value.waiting.map((row) => [said(row.why), row.count, said(row.nodes)]), "Nothing waits."),
    table("Breakers", ["Breaker", "State", "Since", "Why", "By"], value.breakers.map((one) => [one.name, one.state, stamp(one.since), said(one.why), one.by]), "No breaker was ever open."),
    table("Holds, those that end soon first", ["What", "Until", "Why", "By", ""], value.holds.map((one) => [`${one.scope} ${one.name}`, one.until ? `${stamp(one.until)} (in ${age(one.until - value.at)})` : "no end", said(one.why), one.by, may("act") ? releaseForm(one) : ""]), "Nothing is on hold."),
    may("act") ? holdForm("group", "", null) : "",
  ] };
}

async function offenders() {
  const value = await ask("/api/offenders");
  return { content: [
    el("h1", {}, "Repeat offenders and time to repair"),
    facts([["Episodes that ended", value.episodes], ["Within", `${value.days} days`], ["Counted", stamp(value.at)], ["Half are back within", value.median_seconds_to_return === null ? "none came back yet" : age(value.median_seconds_to_return)],
      ["Nine of ten within", value.p90_seconds_to_return === null ? "" : age(value.p90_seconds_to_return)], ...Object.entries(value.outcomes).map(([name, count]) => [`Ended as ${name}`, count])]),
    table("Nodes that failed more than once", ["Node", "Episodes"], value.repeat.map((one) => [nodeLink(one.node), one.episodes]), "No node failed more than once."),
  ] };
}

async function audit(_rest, query) {
  const value = await ask(`/api/audit?node=${encodeURIComponent(query.get("node") ?? "")}`);
  return { content: [el("h1", {}, "Audit"), table("The newest rows", ["Number", "When", "Who", "What", "Node", "Detail", "Hash"], value.entries.map((one) => [one.seq, stamp(one.at), one.actor, one.what, one.node ? nodeLink(one.node) : "", said(JSON.stringify(one.detail)), one.hash.slice(0, 12)]), "It is empty."),
    el("p", {}, "The whole chain is checked by ", el("code", {}, "nhc store verify"), ".")] };
}

async function health() {
  const value = await ask("/api/health");
  return { content: [el("h1", {}, "The console itself"), facts([
    ["Fleet from", value.source], ["Read", `${age(value.at - value.read_at)} ago`], ["Trouble", value.trouble], ["Nodes without a fresh report", value.silent?.count ? `${value.silent.count.toLocaleString("en")}: ${value.silent.nodes}` : value.silent ? "none" : ""],
    ["Viewers", value.viewers], ["Streams ended because nobody read them", value.dropped], ["Sessions", value.sessions], ["Running for", age(value.at - value.started)], ["Version", value.version]])] };
}

export const SCREENS = {
  map: { title: "Map", show: map }, problems: { title: "Problems", show: problems }, checks: { title: "Checks", show: checks },
  episodes: { title: "Repairs", show: episodes, store: true }, held: { title: "Held back", show: held, store: true },
  offenders: { title: "Offenders", show: offenders, store: true }, audit: { title: "Audit", show: audit, store: true, right: "audit" },
  deep: { title: "Deep checks", show: deep, store: true }, job: { title: "Job", show: job, hidden: true },
  health: { title: "Health", show: health }, cause: { title: "Cause", show: cause, hidden: true }, node: { title: "Node", show: node, hidden: true },
  timeline: { title: "Timeline", show: timeline, hidden: true }, episode: { title: "Episode", show: episode, hidden: true }, find: { title: "Find", show: find, hidden: true },
};
