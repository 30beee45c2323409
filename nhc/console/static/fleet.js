// The screens of the fleet: problems by cause, one cause, lists of nodes, a history; and what a reason means.

import { ask, page, redirect } from "/static/app.js";
import { age, el, facts, howMany, link, nodeLink, sign, stamp, WORDS } from "/static/dom.js";
import { cell, said, since, table } from "/static/table.js";
import { stacked, steps, stripCell } from "/static/time.js";

export const now = () => page.fleet?.at ?? Date.now() / 1000;
export const left = (count) => (count ? el("p", {}, `${count.toLocaleString("en")} more are not shown.`) : null);
export const setLink = (names) => (names && names.length < 2000 ? link(`/view/nodes?set=${encodeURIComponent(names)}`, names.split(/(?<=,)/).flatMap((part) => [part, el("wbr")])) : names);
export const groupAt = (fact, group) => link(`/view/nodes?${new URLSearchParams({ by: fact, group })}`, group || "(not known)");
export const groupLink = (fact, group) => cell(group, groupAt(fact, group));
export const explained = (row) => link(`/view/explain/${encodeURIComponent(row.reason || row.check)}?check=${encodeURIComponent(row.check)}`, "Explain");
const causeLink = (row) => link(`/view/cause?${new URLSearchParams({ check: row.check, reason: row.reason })}`, row.reason || row.check);
export const targetCell = (row) => (row.about ? `${row.target} (${row.about})` : row.target);
export const reasonCell = (row) => cell(row.reason || row.check, causeLink(row), " ", explained(row));

// What is done about a problem, and whether nhc has its node out of service. Without a store nothing is known of it.
const step = (one) => (one.episode ? link(`/view/episode/${one.episode}`, one.next) : one.next || "nothing is planned");
export const follows = (one) => cell([one.next || "nothing is planned", one.waits].filter((text) => text).join("; waits: "), one.person ? el("strong", {}, step(one)) : step(one), one.waits ? el("div", { class: "said waits", title: one.waits }, `waits: ${one.waits}`) : "");
export const service = (out) => cell(out ? "out" : "in", el("span", { class: "whole" }, out ? "out of service" : "in service"));
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
  return table(caption, ["Verdict", "Cause", "Nodes", ...ofLoop("Next step", "Out of service", "Affected"), "Since", "Where", "Last hour", "Suggested"],
    rows.map((one) => [
      sign(one.verdict), cell(one.reason || one.check, causeLink(one), " ", explained(one), el("div", { class: "said" }, one.message)), one.affected,
      ...ofLoop(plans(one), cell(one.out, one.out === one.affected ? "all" : one.out ? `${one.out.toLocaleString("en")} of ${one.affected.toLocaleString("en")}` : "none"), cell(one.devices, [one.jobs ? howMany(one.jobs, "job") : "", one.devices ? howMany(one.devices, "GPU") : ""].filter((text) => text).join(", "))), since(one.began, at),
      el("td", { class: "said" }, setLink(one.nodes), one.shares.map(([fact, group, hit, size]) => el("div", {}, `${hit} of the ${size} nodes of ${fact} `, groupAt(fact, group)))),
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
  const asked = Object.fromEntries(["text", "set", "by", "group", "show", "out"].map((key) => [key, query.get(key) ?? ""]));
  const [value, jobs] = await Promise.all([ask(`/api/nodes?${new URLSearchParams(asked)}`), asked.text && page.me.store ? ask(`/api/jobs?${new URLSearchParams({ text: asked.text })}`).catch(() => null) : null]);
  const found = jobs?.rows.length ? table("Watched jobs called so", ["Job", "User", "Phase"], jobs.rows.map((row) => [link(`/view/job/${row.id}`, row.job), row.user, row.ended ? `ended ${stamp(row.ended)}` : row.phase])) : "";
  if (asked.text && value.count === 1 && !found && value.found.some((one) => one === "name" || one === "node set")) { redirect(`/view/node/${encodeURIComponent(value.rows[0].node)}`); return { content: [] }; }
  const which = asked.out ? " out of service" : asked.show ? `: ${[...asked.show].map((one) => WORDS[one]).join(" or ")}` : asked.text ? ` found for ${asked.text}` : asked.by ? ` of ${asked.by} ${asked.group || "(not known)"}` : asked.set ? ` of ${asked.set}` : "";
  return { content: [el("h1", {}, `${value.count ? howMany(value.count) : "No node"}${which}`),
    asked.text ? el("p", {}, `Searched: ${value.searched}.`, value.found.length ? ` Found by ${value.found.join(", ")}.` : "") : "",
    found, asked.by ? el("p", {}, link(`/view/compare?${new URLSearchParams({ by: asked.by, a: asked.group, b: "" })}`, `Compare this ${asked.by} with another`)) : "",
    value.count ? table("Nodes, the worst first", ["State", "Node", "Reason", ...ofLoop("Next step"), "Message", ...ofLoop("In service", "Last 24 hours"), "Last report", ...value.facts], value.rows.map((row) => [
      sign(row.letter), nodeLink(row.node), row.reason ? reasonCell(row) : "", ...ofLoop(row.reason || row.next ? follows(row) : ""), said(row.message), ...ofLoop(service(row.out), stripCell(row.node)), since(row.reported_at, value.at),
      ...value.facts.map((fact) => (fact in row.groups ? groupLink(fact, row.groups[fact]) : ""))])) : "", left(value.left_out) ?? ""] };
}

export async function explain([name], query) {
  const check = query.get("check") ?? "";
  const value = await ask(`/api/explain/${encodeURIComponent(name)}`).catch((error) => { if (check && check !== name) return ask(`/api/explain/${encodeURIComponent(check)}`); throw error; });
  const [[title], ...parts] = value.sections;
  return { content: [el("h1", {}, title), ...parts.flatMap(([heading, text]) => [el("h2", {}, heading), el("p", { class: "prose" }, text)]),
    el("p", {}, "In a terminal: ", el("code", {}, `nhc explain ${value.name}`))] };
}

// How the fleet was: problems that stood at the end of each part, what that cost, and the repairs within it. Where no
// node reported nothing is known: that part is hatched, and its row says so.
export async function history(_rest, query) {
  const value = await ask(`/api/history?hours=${encodeURIComponent(query.get("hours") ?? "24")}`);
  const kinds = ["CRIT", "UNKNOWN", "WARN"], colours = { CRIT: "--crit", UNKNOWN: "--unknown", WARN: "--warn" };
  const { parts } = value, times = parts.map((part) => part.at), unknown = parts.map((part) => !part.watched);
  const total = (part) => kinds.reduce((sum, kind) => sum + (part.standing[kind] ?? 0), 0);
  const most = Math.max(0, ...parts.map(total)), hours = (seconds) => (seconds / 3600).toLocaleString("en", { maximumFractionDigits: 1 });
  const all = (key) => parts.reduce((sum, part) => sum + part[key], 0), blind = unknown.filter((one) => one).length;
  const ends = [...new Set(parts.flatMap((part) => Object.keys(part.ended)))].sort();
  const lost = `${hours(all("node_seconds"))} node hours${all("gpu_seconds") ? ` and ${hours(all("gpu_seconds"))} GPU hours` : ""} lost`;
  const spans = { 1: "1 hour", 6: "6 hours", 24: "1 day", 168: "7 days", 720: "30 days", 2160: "90 days" };
  return { content: [el("h1", {}, "History of the fleet"),
    el("p", { class: "bar" }, value.spans.map((one) => el("a", { href: `/view/history?hours=${one}`, "aria-current": one === value.hours ? "true" : null }, spans[one]))),
    el("p", { class: "quiet" }, `${stamp(value.at - value.hours * 3600)} to ${stamp(value.at)}, in parts of ${age(value.width)}, times in UTC. Counted ${age(now() - value.at)} ago.`),
    el("div", { class: "history" }, el("div", {},
      stacked("Problems that stood", `at most ${most.toLocaleString("en")} at a time; nothing was known in ${blind} of ${parts.length} parts`, times, value.width, kinds.map((kind) => [kind, colours[kind], parts.map((part) => part.standing[kind] ?? 0)]), unknown),
      steps(`Nodes out of service by nhc: ${lost}`, `at most ${Math.max(0, ...parts.map((part) => part.out))} at a time, ${lost}`, times, parts.map((part) => part.out), unknown, value.width),
      el("p", { class: "legend quiet" }, el("span", { class: "count unknown" }, "hatched: no node reported, nothing is known"))),
    table("Problems that stood and repairs", ["Until", ...kinds, "Out of service", "Node hours lost", "Repairs begun", ...ends.map((end) => `Ended: ${end}`), "Reported"],
      [...parts].reverse().map((part) => [stamp(part.at), ...kinds.map((kind) => part.standing[kind] || (part.watched ? 0 : cell("", "–"))), part.out, cell(part.node_seconds / 3600, hours(part.node_seconds)), part.opened, ...ends.map((end) => part.ended[end] ?? 0), cell(part.watched, part.watched ? howMany(part.watched) : "no node")])))] };
}
