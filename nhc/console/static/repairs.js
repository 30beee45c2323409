// The screens of the remedy loop: what needs a person, repairs, what is held back, and what was done.

import { ask, fleet, go, may, page, say } from "/static/app.js";
import { abortForm, alikeForms, decisionForms, holdForm, releaseForm } from "/static/acts.js";
import { age, el, facts, howMany, link, moment, nodeLink, stamp } from "/static/dom.js";
import { causeTable, explained, left, setLink, unless } from "/static/fleet.js";
import { FleetMap } from "/static/map.js";
import { cell, lasting, said, table } from "/static/table.js";

// check|reason|target, as the store keeps it.
export const causeText = (cause) => cause.split("|").filter((part) => part !== "").join(", ");

// A row's detail in words, without what says nothing; times are Unix seconds there.
export const told = (detail) => Object.entries(detail).filter(([, value]) => value !== "" && value !== null).map(([key, value]) =>
  `${key}: ${key === "seen" ? stamp(value) : key === "cause" ? causeText(value) : typeof value === "object" ? JSON.stringify(value) : value}`).join("; ");

// The node that an episode is about, or what of it.
const nodeCell = (row) => cell(row.node, nodeLink(row.node), row.about ? ` ${row.about}` : "");

export function episodeTable(caption, rows, at, empty = "There is none.") {
  return table(caption, ["Node", "Repair", "State", "For", "Cause", rows.some((row) => row.ended === null) ? "Waits for" : "Why", "Episode"], rows.map((episode) => [
    nodeCell(episode), episode.rung, episode.state, lasting((episode.ended ?? at) - episode.opened), said(causeText(episode.cause)), said(episode.waiting || episode.because), link(`/view/episode/${episode.id}`, String(episode.id))]), empty);
}

// What a repair does to a node and to what runs there, for who is asked to agree to it.
const EFFECTS = {
  "restart-app": "restarts the service that failed", "reset-device": "resets the device: processes on it end", "reload-driver": "reloads the driver: every process on its devices ends",
  reboot: "restarts the node: all that runs there ends", "power-cycle": "cuts the node's power and restores it: all that runs there ends", replace: "hands the machine back for another one: its local disks are lost",
};

function effect(one) {
  const running = one.jobs ? ` ${howMany(one.jobs, "watched job")} ${one.jobs === 1 ? "runs" : "run"} there.` : "";
  return `${one.rung} ${EFFECTS[one.rung] ?? ""}`.trim() + `.${running} ${one.out ? "It is out of service already." : "It is still in service."} The fault is judged again before.`;
}

const causeName = (row) => { const [check, reason] = row.cause.split("|"); return { check, reason }; };
const wrong = (row) => cell(row.message || causeText(row.cause), row.message || causeText(row.cause), " ", explained(causeName(row)));
const decide = (row, text) => cell(row.id, el("a", { class: "go", href: `/view/episode/${row.id}`, "aria-label": `${text}: episode ${row.id} of ${row.node}` }, text));

// One number each; a tile leads to what it counts.
function tiles(value, counts) {
  const tile = (number, text, more, href, kind = "") => el("li", {}, el(href ? "a" : "div", { class: `tile ${number ? kind : ""}`, href }, el("strong", {}, typeof number === "number" ? number.toLocaleString("en") : number), el("span", {}, text), el("small", {}, more)));
  const nodes = Object.values(counts ?? {}).reduce((sum, count) => sum + count, 0);
  return el("ul", { class: "tiles", "aria-label": "The fleet in numbers" },
    tile(value.needs, "need you", `of ${howMany(nodes)}`, null, "w"), tile(value.crit, "CRIT", "nodes now", "/view/nodes?show=c", "c"),
    page.me.store ? [tile(value.out, "out of service", value.devices_out ? `${howMany(value.devices_out, "GPU")} lost` : "by nhc", "/view/nodes?out=yes"),
      tile(value.repairing, "in repair", "under way", "/view/episodes"), tile(value.returned, "returned", "in the last 24 hours", "/view/episodes?which=ended"),
      tile(value.median_seconds_to_return === null ? "–" : age(value.median_seconds_to_return), "to return", value.median_seconds_to_return === null ? "none came back in 24 hours" : "median of 24 hours", "/view/offenders")] : "");
}

let small = null; // the map of the first screen: the same picture while its screen is made anew

export async function needs() {
  const value = await ask("/api/needs");
  small ??= new FleetMap((name) => go(`/view/node/${encodeURIComponent(name)}`), say);
  const ready = async () => {
    await fleet();
    const { layout } = page;
    if (layout && small.box.isConnected) small.show(layout, page.fleet.letters, layout.facts.includes("rack") ? "rack" : layout.facts[0] ?? "");
  };
  return { ready, content: [
    el("h1", {}, "Needs you"),
    value.trouble ? el("p", { class: "error" }, `The fleet cannot be read: ${value.trouble}`) : "",
    el("div", { class: "first" }, tiles(value.tiles, page.fleet?.counts), el("section", { class: "card", "aria-label": "The fleet" }, small.box, el("p", { class: "quiet" }, link("/view/map", "The whole map")))),
    page.me.store ? [el("h2", {}, "Repairs that wait for agreement"),
      table("The longest-waiting first", ["Node", "Message", "Waits for", "If you agree", "For", ""], value.approvals.map((row) => [nodeCell(row), wrong(row), said(row.waiting || row.because), said(effect(row)), lasting(value.at - row.opened), decide(row, "Decide")]), "None waits. What the loop may not do alone will stand here."), left(value.approvals_left_out) ?? "",
      may("approve") ? value.alike.map(alikeForms) : "",
      el("h2", {}, "Left to a person"),
      table("nhc release remedy NODE gives a node back to the loop", ["Node", "Message", "Why", "Tried last", "For", ""], value.left.map((row) => [nodeLink(row.node), wrong(row), said(row.because || row.outcome || row.state), row.rung, lasting(value.at - row.opened), decide(row, "Open")]), "None. A node that no repair brought back will stand here."), left(value.left_left_out) ?? ""] : "",
    el("h2", {}, "CRIT, and nothing is planned"), causeTable("On nodes without an episode or a hold", value.unplanned, value.at, "None."), left(value.unplanned_left_out) ?? "",
    el("h2", {}, "Nodes without a fresh report"), el("p", {}, value.silent.count ? [link("/view/nodes?show=sn", howMany(value.silent.count)), ": ", setLink(value.silent.nodes)] : unless("None.")),
  ] };
}

export async function episodes(_rest, query) {
  const which = query.get("which") ?? "open", at = Number(query.get("page")) || 0;
  const value = await ask(`/api/episodes?which=${encodeURIComponent(which)}&page=${at}`);
  const turn = (number, text) => (number >= 0 && number < value.pages ? link(`/view/episodes?which=${which}&page=${number}`, text) : "");
  return { content: [
    el("h1", {}, "Repairs"), el("p", { class: "bar" }, ["open", "ended", "all"].map((one) => el("a", { href: `/view/episodes?which=${one}`, "aria-current": one === which ? "true" : null }, one))),
    episodeTable(which === "ended" ? "Ended episodes" : "Episodes, those that wait for a person first", value.episodes, value.at),
    value.pages > 1 ? el("p", { class: "bar" }, turn(at - 1, "Newer"), `Page ${at + 1} of ${value.pages}, ${value.count.toLocaleString("en")} in all`, turn(at + 1, "Older")) : "",
  ] };
}

export async function episode([id]) {
  const one = await ask(`/api/episode/${id}`);
  return { content: [
    el("h1", {}, `Episode ${one.id} of `, nodeLink(one.node)),
    ...(one.state === "awaiting-approval" && may("approve") ? [el("div", { class: "columns" }, decisionForms(one))] : []),
    facts([["Cause", causeText(one.cause)], ["State", one.state], ["Because", one.because || one.outcome], ["Repair", one.rung], ["What it does", EFFECTS[one.rung] ?? ""], ["Device", one.about || one.device], ["Opened", moment(one.opened)], ["Waits for", one.waiting]]),
    table("Attempts", ["Number", "Repair", "By", "State", "Outcome", "Message", "Written", "Ended"], one.attempts.map((row) => [row.number, row.rung, row.repairer, row.state, row.outcome, said(row.message), stamp(row.written), stamp(row.ended)]), "Nothing was tried yet."),
    table("Decisions", ["Who", "Decision", "Repair", "Why", "When"], one.decisions.map((row) => [row.decided_by, row.decision, row.rung, said(row.reason), stamp(row.decided)]), "No person has decided anything yet."),
    table("Evidence", ["Piece", "Bytes", "SHA-256", "Kept until", "Note"], one.evidence.map((row) => [row.name, row.size, said(row.sha256), stamp(row.expires), said(row.cut ? `cut; ${row.message}` : row.message)]), "No evidence was collected."),
    table("What happened", ["When", "Who", "What", "Detail"], one.events.map((row) => [stamp(row.at), row.actor, row.what, said(told(row.detail))])),
    one.ended === null && may("approve") ? abortForm(one) : "",
  ] };
}

export async function held() {
  const value = await ask("/api/held");
  return { content: [
    el("h1", {}, "Held back"),
    table("What waits, and why", ["Why", "Nodes", "Which"], value.waiting.map((row) => [said(row.why), row.count, said(setLink(row.nodes))]), "Nothing waits."),
    table("Breakers", ["Breaker", "State", "Since", "Why", "By"], value.breakers.map((one) => [one.name, one.state, stamp(one.since), said(one.why), one.by]), "No breaker was ever open."),
    table("Holds, those that end soon first", ["What", "Until", "Why", "By", ""], value.holds.map((one) => [`${one.scope} ${one.name}`, one.until ? `${stamp(one.until)} (in ${age(one.until - value.at)})` : "no end", said(one.why), one.by, may("act") ? releaseForm(one) : ""]), "Nothing is on hold."),
    may("act") ? holdForm("group", "", null) : "",
  ] };
}

export async function maintenance() {
  const value = await ask("/api/maintenance");
  return { content: [el("h1", {}, "Maintenance"), table("Trains, those under way first", ["Train", "State", "Nodes", "Why", "By", "Made", "Changed"], value.trains.map((one) => [
    one.name, one.state, cell(Object.values(one.nodes).reduce((sum, count) => sum + count, 0), Object.entries(one.nodes).map(([state, count]) => `${count.toLocaleString("en")} ${state}`).join(", ")), said(one.why), one.by, stamp(one.made), stamp(one.updated)]),
  "No train was ever made. One does the same work on many nodes, in waves."), el("p", { class: "quiet" }, "A train is begun and agreed to in a terminal: ", el("code", {}, "nhc train --help"))] };
}

const MEASURES = [["faults", "Faults", ""], ["failed_proofs", "Failed proofs", ""], ["days_out", "Out of service", " d"]];
const figure = (number) => number.toLocaleString("en", { maximumSignificantDigits: 2 });

// A rate of a hundred node-days; where there is something to compare with, how many times as often, and how sure that is.
function rateCell(row, [measure, , unit]) {
  const rate = row.rate.per_node_day[measure], ratio = row.ratios[measure];
  if (rate === null) return cell("", "–");
  const amount = figure(100 * rate) + unit;
  if (row.other.per_node_day[measure] === null) return cell(rate, amount);
  const how = ratio ? `${figure(ratio.ratio)} times (${figure(ratio.low)} to ${figure(ratio.high)}): ${ratio.shown || "no difference shown"}` : "too little to compare";
  return cell(rate, said(`${amount}, ${how}`));
}

export async function rates(_rest, query) {
  const by = query.get("by") ?? "", days = query.get("days") ?? "30", day = query.get("since") ?? "";
  const since = Math.floor(Date.parse(`${day}T00:00Z`) / 1000) || 0;
  const value = await ask(`/api/rates?by=${encodeURIComponent(by)}&days=${encodeURIComponent(days)}&since=${since}`);
  const chosen = (name, some, is) => el("select", { name }, some.map(([one, words]) => el("option", { value: one, selected: one === is }, words)));
  const form = el("form", { class: "bar", onsubmit: (event) => {
    event.preventDefault();
    const next = new URLSearchParams([...new FormData(form)].filter(([, one]) => one));
    go(`/view/rates?${next}`);
  } }, el("label", {}, "By ", chosen("by", [["", "the whole fleet"], ...value.facts.map((one) => [one, one])], by)),
  el("label", {}, "Changed on ", el("input", { type: "date", name: "since", value: day })),
  el("label", {}, "Within ", chosen("days", [["7", "7 days"], ["30", "30 days"], ["90", "90 days"]], days)), el("button", {}, "Count"));
  const against = value.date ? ["From ", stamp(value.date), " to ", stamp(value.ended), ", against as long before. "] : [by ? "Each value against all other nodes. " : "Name the day of an upgrade to see whether the fleet is better since. "];
  return { content: [
    el("h1", {}, "How often nodes fail"), form,
    el("p", {}, ...against, "A ratio has its 95 % interval: where that holds 1, no difference is shown."),
    table("For 100 node-days", [value.by || "Fleet", "Nodes", "Node-days", ...MEASURES.map(([, title]) => title)], value.rows.map((row) => [
      row.value || (value.by ? "not known" : "all"), row.rate.nodes, Math.round(row.rate.node_days), ...MEASURES.map((one) => rateCell(row, one))]), "Nothing is known of that time."), left(value.left_out) ?? "",
  ] };
}

export async function offenders() {
  const value = await ask("/api/offenders");
  return { content: [
    el("h1", {}, "Repeat offenders and time to repair"),
    facts([["Episodes that ended", value.episodes], ["Within", `${value.days} days`], ["Counted", stamp(value.at)], ["Half are back within", value.median_seconds_to_return === null ? "none came back yet" : age(value.median_seconds_to_return)],
      ["Nine of ten within", value.p90_seconds_to_return === null ? "" : age(value.p90_seconds_to_return)], ...Object.entries(value.outcomes).map(([name, count]) => [`Ended as ${name}`, count])]),
    table("Nodes that failed more than once", ["Node", "Episodes"], value.repeat.map((one) => [nodeLink(one.node), one.episodes]), "No node failed more than once."),
  ] };
}

export async function audit(_rest, query) {
  const value = await ask(`/api/audit?node=${encodeURIComponent(query.get("node") ?? "")}`);
  return { content: [el("h1", {}, "Audit"), table("The newest rows", ["Number", "When", "Who", "What", "Node", "Detail", "Hash"], value.entries.map((one) => [one.seq, stamp(one.at), one.actor, one.what, one.node ? nodeLink(one.node) : "", said(told(one.detail)), one.hash.slice(0, 12)]), "It is empty."),
    el("p", {}, "The whole chain is checked by ", el("code", {}, "nhc store verify"), ".")] };
}

