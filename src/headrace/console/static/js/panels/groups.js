// Groups: who reads, how far behind in records and in seconds, and where that is going.

import { h, put, say } from "../dom.js";
import { path, read } from "../api.js";
import { history, watch } from "../live.js";
import { link } from "../router.js";
import { count, number, span } from "../format.js";
import { command, empty, heading } from "../parts/notice.js";
import { drawSpark, spark } from "../parts/spark.js";
import { table } from "../parts/table.js";
import { timeChart } from "../parts/chart.js";
import { facts } from "../parts/value.js";

export const show = (place) => (place.parts.length ? showGroup(place) : showGroups(place));

async function showGroups({ root, signal }) {
  const trends = new Map();
  const list = table({
    caption: "Groups", key: (group) => group.group, order: { column: "lag", descending: true },
    columns: [
      { id: "group", title: "Group", value: (group) => group.group, text: (group) => group.group, href: (group) => link(["groups", group.group]), wide: true },
      { id: "state", title: "State", value: (group) => group.state, fill: fillState },
      { id: "members", title: "Members", value: membersOf, text: (group) => number(membersOf(group)), end: true },
      { id: "lag", title: "Lag", value: (group) => group.lag_records ?? -1, text: (group) => number(group.lag_records), end: true, about: "Records that the group has not read yet" },
      { id: "seconds", title: "Lag (time)", value: (group) => group.lag_seconds ?? -1, text: (group) => span(group.lag_seconds), end: true, about: "How long the oldest unread record has waited" },
      { id: "trend", title: "Lag trend", fill: (cell, group) => fillTrend(cell, trendOf(group, trends)) },
    ],
  });
  const none = h("div", {});
  put(root, heading("Groups", "Consumers that share the partitions of topics, and the lag of each group."), none, list.element);

  function update(groups) {
    put(none, groups.length ? null : empty("No groups yet", "A group appears when a consumer joins it or commits an offset:", command("headrace tail shop.orders --group inspection")));
    list.element.hidden = !groups.length;
    list.update(groups);
  }

  const first = await read(path(["groups"]), signal);
  for (const group of first.groups) trends.set(group.group, points(group.trend));
  update(first.groups);
  watch(({ status }) => status.groups && update(status.groups), signal);
}

const membersOf = (group) => (Array.isArray(group.members) ? group.members.length : group.members);

/** A trend from the server, [[seconds, lag], …] or [{ at, records }, …], as [[ms, lag], …]. */
function points(trend) {
  return (trend ?? []).map((each) => (Array.isArray(each) ? [toMs(each[0]), each[1]] : [toMs(each.at ?? each.time), each.records ?? each.lag_records ?? each.lag]))
    .filter(([, lag]) => typeof lag === "number");
}

const toMs = (at) => (typeof at === "number" ? (at < 1e11 ? at * 1000 : at) : Date.parse(at));

function trendOf(group, trends) {
  const own = history(`group ${group.group}`);
  const before = (trends.get(group.group) ?? []).filter(([at]) => !own.length || at < own[0][0]);
  return [...before, ...own];
}

function fillTrend(cell, trend) {
  const line = cell.firstElementChild ?? cell.appendChild(spark("Lag trend"));
  drawSpark(line, trend);
}

function fillState(cell, group) {
  const pill = cell.firstElementChild ?? cell.appendChild(h("span", {}));
  const state = String(group.state ?? "").toLowerCase();
  pill.className = `tag is-${/stable/.test(state) ? "ok" : /empty|dead/.test(state) ? "unknown" : "warn"}`;
  say(pill, state);
}

async function showGroup({ root, parts: [name], signal }) {
  const group = await read(path(["groups", name]), signal);
  const trend = points(group.trend);
  const chart = timeChart({ label: `Lag of ${name} in records`, shape: "lines", height: 170 });
  const about = h("div", {});
  const partitions = partitionTable();
  put(root, h("p", { class: "crumbs" }, h("a", { href: link(["groups"]) }, "Groups")), heading(name, null), about,
    h("section", { class: "card" }, h("h2", {}, "Lag, the last minutes"), h("p", { class: "muted" }, "Kept by the console in memory for ten minutes."), chart.element),
    h("h2", {}, "Partitions"), partitions.element, h("h2", {}, "Members"), members(group.members ?? []));
  let loading = false;

  function update(now) {
    put(about, facts([["State", String(now.state ?? "").toLowerCase()], ["Type", now.type],
      ["Lag", `${count(now.lag_records, "record")}${now.lag_seconds ? `, ${span(now.lag_seconds)}` : ""}`]], { inline: true }));
    partitions.update(now.partitions ?? []);
    drawTrend();
  }

  function drawTrend() {
    const all = trendOf({ group: name }, new Map([[name, trend]])).slice(-240);
    chart.update({ times: all.map(([at]) => at), series: [{ name: "lag", values: all.map(([, lag]) => lag) }] });
  }

  update(group);
  watch(async ({ status }) => {
    drawTrend();
    const now = status.groups?.find((each) => each.group === name);
    if (!now || loading) return;
    loading = true;
    try {
      update(await read(path(["groups", name]), signal));
    } catch {
      // the next status tries again; the frame says when the log is away
    }
    loading = false;
  }, signal);
}

function partitionTable() {
  return table({
    caption: "Partitions", key: (each) => `${each.topic}:${each.partition}`, order: { column: "lag", descending: true }, empty: "No committed offsets yet.",
    columns: [
      { id: "topic", title: "Topic", value: (each) => each.topic, text: (each) => each.topic, href: (each) => link(["topics", each.topic]), wide: true },
      { id: "partition", title: "Partition", value: (each) => each.partition, text: (each) => each.partition, end: true },
      { id: "committed", title: "Committed", value: (each) => each.committed, text: (each) => number(each.committed), end: true },
      { id: "end", title: "Log end", value: endOf, text: (each) => number(endOf(each)), end: true },
      { id: "lag", title: "Lag", value: (each) => each.lag_records ?? -1, text: (each) => number(each.lag_records), end: true },
      { id: "seconds", title: "Lag (time)", value: (each) => each.lag_seconds ?? -1, text: (each) => span(each.lag_seconds), end: true },
      { id: "member", title: "Member", text: (each) => each.member_id ?? "", mono: true },
    ],
  });
}

const endOf = (each) => each.log_end ?? each.end ?? null;

function members(list) {
  const shown = table({
    caption: "Members", key: (each) => each.member_id, empty: "No members; the committed offsets are kept.",
    columns: [
      { id: "client", title: "Client", value: (each) => each.client_id, text: (each) => each.client_id ?? "" },
      { id: "host", title: "Host", value: (each) => each.host, text: (each) => each.host ?? "" },
      { id: "member", title: "Member", text: (each) => each.member_id ?? "", mono: true, wide: true },
      { id: "partitions", title: "Partitions", text: (each) => (each.partitions ?? []).map((part) => (typeof part === "object" ? `${part.topic}:${part.partition}` : part)).join(" "), wide: true },
    ],
  });
  shown.update(list);
  return shown.element;
}
