// The screens of the fleet: problems by cause, one cause, lists of nodes, a history; and what a reason means.

import { ask, fleet, go, page, redirect } from "/static/app.js";
import { age, el, facts, howMany, link, nodeLink, sign, stamp } from "/static/dom.js";
import { cell, said, since, table } from "/static/table.js";

export const now = () => page.fleet?.at ?? Date.now() / 1000;
export const left = (count) => (count ? el("p", {}, `${count.toLocaleString("en")} more are not shown.`) : null);
export const setLink = (names) => (names && names.length < 2000 ? link(`/view/nodes?set=${encodeURIComponent(names)}`, names) : names);
export const groupLink = (fact, group) => cell(group, link(`/view/nodes?${new URLSearchParams({ by: fact, group })}`, group || "(not known)"));
const explained = (row) => link(`/view/explain/${encodeURIComponent(row.reason || row.check)}?check=${encodeURIComponent(row.check)}`, "Explain");
const causeLink = (row) => link(`/view/cause?${new URLSearchParams({ check: row.check, reason: row.reason })}`, row.reason || row.check);
export const targetCell = (row) => (row.about ? `${row.target} (${row.about})` : row.target);
export const reasonCell = (row) => cell(row.reason || row.check, causeLink(row), " ", explained(row));

// What is done about a problem, and whether nhc has its node out of service. Without a store nothing is known of it.
const step = (one) => (one.episode ? link(`/view/episode/${one.episode}`, one.next) : one.next || "nothing is planned");
export const follows = (one) => cell(one.next || "nothing is planned", one.person ? el("strong", {}, step(one)) : step(one));
export const service = (out) => cell(out ? "out" : "in", out ? "out of service" : "in service");
const ofLoop = (...cells) => (page.me.store ? cells : []);

// What an empty list says: that all is well only where some node's report is fresh.
const unheard = () => (page.fleet ? ![..."ouwc"].some((one) => page.fleet.counts[one]) : false);
export const unless = (text) => (unheard() ? `Nothing is known: ${page.fleet.notes?.[0] ?? "no node has a fresh report"}.` : text);

const trend = (parts) => {
  const most = Math.max(1, ...parts);
  return el("span", { class: "trend", role: "img", "aria-label": `new in each five minutes of the last hour: ${parts.join(", ")}` },
    parts.map((part) => { const bar = el("i", {}); bar.style.setProperty("height", `${(part / most) * 20}px`); return bar; }));
};

const plans = (one) => cell(one.plans.map((plan) => `${plan.nodes}: ${plan.next || "nothing is planned"}`).join("; "),
  one.plans.map((plan) => el("div", {}, one.affected > 1 ? `${plan.nodes.toLocaleString("en")}: ` : "", plan.person ? el("strong", {}, step(plan)) : plan.nodes > 1 ? plan.next || "nothing is planned" : step(plan))));

export function causeTable(caption, rows, at, empty) {
  return table(caption, ["Verdict", "Cause", "Nodes", ...ofLoop("Next step", "Out of service"), "Since", "Where", "Last hour", "Suggested"],
    rows.map((one) => [
      sign(one.verdict), cell(one.reason || one.check, causeLink(one), " ", explained(one), el("div", { class: "said" }, one.message)), one.affected,
      ...ofLoop(plans(one), cell(one.out, one.out === one.affected ? "all" : one.out ? `${one.out.toLocaleString("en")} of ${one.affected.toLocaleString("en")}` : "none")), since(one.began, at),
      el("td", { class: "said" }, setLink(one.nodes), one.shares.map(([fact, group, hit, size]) => el("div", {}, `${hit} of the ${size} nodes of ${fact} `, link(`/view/nodes?${new URLSearchParams({ by: fact, group })}`, group)))),
      Object.assign(trend(one.trend), { value: one.trend.reduce((sum, part) => sum + part, 0) }), one.action === "none" ? "" : one.action,
    ]), unless(empty));
}

export async function problems() {
  const value = await ask("/api/causes");
  return { content: [el("h1", {}, "Problems"), causeTable("Problems by cause", value.causes, value.at, "No problem stands."), left(value.left_out) ?? ""] };
}

export async function cause(_rest, query) {
  const value = await ask(`/api/cause?${new URLSearchParams({ check: query.get("check") ?? "", reason: query.get("reason") ?? "" })}`);
  return { content: [el("h1", {}, value.reason || value.check), el("p", {}, explained(value)), facts([["Check", value.check], ["Nodes", value.count.toLocaleString("en")], ["Set", setLink(value.nodes)]]),
    table("Nodes", ["Node", ...ofLoop("Next step", "In service"), "Since", "Target", "Message"],
      value.rows.map((row) => [nodeLink(row.node), ...ofLoop(follows(row), service(row.out)), since(row.began, now()), targetCell(row), said(row.message)])), left(value.left_out) ?? ""] };
}

// Nodes of a set, of a group, of some letters, or whose names hold a text.
export async function nodes(_rest, query) {
  const asked = Object.fromEntries(["text", "set", "by", "group", "show"].map((key) => [key, query.get(key) ?? ""]));
  const value = await ask(`/api/nodes?${new URLSearchParams(asked)}`);
  if (asked.text && value.count === 1 && value.found.some((one) => one === "name" || one === "node set")) { redirect(`/view/node/${encodeURIComponent(value.rows[0].node)}`); return { content: [] }; }
  const which = asked.text ? ` found for ${asked.text}` : asked.by ? ` of ${asked.by} ${asked.group || "(not known)"}` : asked.set ? ` of ${asked.set}` : "";
  return { content: [el("h1", {}, value.count ? `${howMany(value.count)}${which}` : "No node is called so"),
    asked.text ? el("p", {}, `Searched: ${value.searched}.`, value.found.length ? ` Found by ${value.found.join(", ")}.` : "") : "",
    value.count ? table("Nodes, the worst first", ["State", "Node", "Reason", ...ofLoop("Next step", "In service"), "Last report", ...value.facts, "Message"], value.rows.map((row) => [
      sign(row.letter), nodeLink(row.node), row.reason ? reasonCell(row) : "", ...ofLoop(row.reason || row.next ? follows(row) : "", service(row.out)), since(row.reported_at, value.at),
      ...value.facts.map((fact) => (fact in row.groups ? groupLink(fact, row.groups[fact]) : "")), said(row.message)])) : "", left(value.left_out) ?? ""] };
}

export async function explain([name], query) {
  const check = query.get("check") ?? "";
  const value = await ask(`/api/explain/${encodeURIComponent(name)}`).catch((error) => { if (check && check !== name) return ask(`/api/explain/${encodeURIComponent(check)}`); throw error; });
  const [[title], ...parts] = value.sections;
  return { content: [el("h1", {}, title), ...parts.flatMap(([heading, text]) => [el("h2", {}, heading), el("p", { class: "prose" }, text)]),
    el("p", {}, "In a terminal: ", el("code", {}, `nhc explain ${value.name}`))] };
}

// How the fleet was: problems that stood at the end of each part, and the repairs within it.
export async function history(_rest, query) {
  const value = await ask(`/api/history?days=${encodeURIComponent(query.get("days") ?? "1")}`);
  const kinds = ["CRIT", "UNKNOWN", "WARN"], letter = { CRIT: "c", UNKNOWN: "u", WARN: "w" };
  const total = (part) => kinds.reduce((sum, kind) => sum + (part.standing[kind] ?? 0), 0);
  const most = Math.max(1, ...value.parts.map(total));
  const bars = el("div", { class: "bars", role: "img", "aria-label": `Problems that stood, at most ${most.toLocaleString("en")} at a time` }, value.parts.map((part) => el("div", { title: `${stamp(part.at)}: ${kinds.map((kind) => `${part.standing[kind] ?? 0} ${kind}`).join(", ")}` },
    kinds.map((kind) => { const bar = el("i", { class: `sign ${letter[kind]}` }); bar.style.setProperty("height", `${((part.standing[kind] ?? 0) / most) * 100}%`); return bar; }))));
  const ends = [...new Set(value.parts.flatMap((part) => Object.keys(part.ended)))].sort();
  return { content: [el("h1", {}, "History of the fleet"),
    el("p", { class: "bar" }, value.spans.map((days) => el("a", { href: `/view/history?days=${days}`, "aria-current": days === value.days ? "true" : null }, days === 1 ? "1 day" : `${days} days`))),
    bars, el("p", {}, `${stamp(value.parts[0].at)} to ${stamp(value.at)}, in parts of ${age((value.days * 86400) / value.parts.length)}. Counted ${age(now() - value.at)} ago.`),
    table("Problems that stood and repairs", ["Until", ...kinds, "Repairs begun", ...ends.map((end) => `Ended: ${end}`)],
      [...value.parts].reverse().map((part) => [stamp(part.at), ...kinds.map((kind) => part.standing[kind] ?? 0), part.opened, ...ends.map((end) => part.ended[end] ?? 0)]))] };
}
