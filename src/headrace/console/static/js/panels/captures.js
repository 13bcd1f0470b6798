// Captures: databases that become topics, and the derived systems that follow topics.

import { h, put, say } from "../dom.js";
import { path, read } from "../api.js";
import { watch } from "../live.js";
import { link } from "../router.js";
import { ago, bytes, count, number, rate, span } from "../format.js";
import { command, empty, heading } from "../parts/notice.js";
import { table } from "../parts/table.js";
import { facts } from "../parts/value.js";

const GOOD = new Set(["streaming", "following"]);
const BAD = new Set(["stopped", "not running"]);

export const show = (place) => {
  const [kind, name] = place.parts;
  if (name && kind === "followers") return showFollower(place, name);
  return kind ? showCapture(place, kind) : showAll(place);
};

async function showAll({ root, signal }) {
  const captures = captureTable();
  const followers = followerTable();
  const none = h("div", {});
  put(root, heading("Captures", "Databases whose changes become topics, and the derived systems that follow topics."), none, captures.element,
    h("section", {}, h("h2", {}, "Followers"), followers.element));

  function update({ captures: found = [], followers: following = [] }) {
    put(none, found.length ? null : empty("No captures yet", "A capture turns every change of a database's tables into records:", command("headrace capture add shop sqlite:///shop.db")));
    captures.element.hidden = !found.length;
    captures.update(found);
    followers.update(following);
  }

  const [first, second] = await Promise.all([read(path(["captures"]), signal), read(path(["followers"]), signal)]);
  update({ ...first, ...second });
  watch(({ status }) => status.captures && update(status), signal);
}

function captureTable() {
  return table({
    caption: "Captures", key: (each) => each.name, order: { column: "name", descending: false },
    columns: [
      { id: "name", title: "Capture", value: (each) => each.name, text: (each) => each.name, href: (each) => link(["captures", each.name]), wide: true },
      { id: "source", title: "Database", value: (each) => each.source, text: (each) => each.source, mono: true, wide: true },
      { id: "state", title: "State", value: (each) => each.state, fill: fillState },
      { id: "snapshot", title: "Snapshot", value: (each) => each.snapshot_share ?? -1, text: (each) => percent(each.snapshot_share), end: true, about: "How much of the tables has been read" },
      { id: "lag", title: "Lag (time)", value: (each) => each.lag.seconds ?? -1, text: (each) => span(each.lag.seconds), end: true, about: "At most since the oldest unread change was committed" },
      { id: "unread", title: "Lag", value: unread, text: lagText, end: true, about: "What was not read yet, as far as the database can tell" },
      { id: "held", title: "Log held", value: (each) => each.lag.held_bytes ?? -1, text: (each) => bytes(each.lag.held_bytes), end: true, about: "What the database keeps of its log for the capture" },
      { id: "error", title: "Problem", text: (each) => each.error ?? "", wide: true },
    ],
  });
}

function followerTable() {
  return table({
    caption: "Followers", key: (each) => each.name, order: { column: "name", descending: false }, empty: "No followers yet.",
    columns: [
      { id: "name", title: "Follower", value: (each) => each.name, text: (each) => each.name, href: (each) => link(["captures", "followers", each.name]), wide: true },
      { id: "topic", title: "Topic", value: (each) => each.topic, text: (each) => each.topic, href: (each) => link(["topics", each.topic]), wide: true },
      { id: "target", title: "Target", value: targetText, text: targetText, mono: true, wide: true },
      { id: "state", title: "State", value: (each) => each.state, fill: fillState },
      { id: "behind", title: "Lag", value: (each) => each.behind ?? -1, text: (each) => number(each.behind), end: true, about: "Offsets of the topic that are not in the target yet" },
      { id: "seconds", title: "Lag (time)", value: (each) => each.seconds_behind ?? -1, text: (each) => span(each.seconds_behind), end: true },
      { id: "error", title: "Problem", text: (each) => each.error ?? "", wide: true },
    ],
  });
}

async function showCapture({ root, signal }, name) {
  const about = h("div", {});
  const tables = table({
    caption: "Tables", key: (each) => each.table, order: { column: "table", descending: false }, empty: "Nothing was said of its tables yet.",
    columns: [
      { id: "table", title: "Table", value: (each) => each.table, text: (each) => each.table, wide: true },
      { id: "phase", title: "Snapshot", value: (each) => each.phase, text: phaseText },
      { id: "share", title: "Read", value: (each) => each.share ?? -1, text: (each) => percent(each.share), end: true },
      { id: "rows", title: "Rows", value: (each) => each.rows, text: rowsText, end: true },
      { id: "rate", title: "Rate", value: (each) => each.rows_per_s ?? -1, text: (each) => rate(each.rows_per_s), end: true },
      { id: "left", title: "Time left", value: (each) => each.seconds_left ?? -1, text: (each) => span(each.seconds_left), end: true },
    ],
  });
  put(root, crumbs(), heading(name, null), about, h("section", {}, h("h2", {}, "Tables"), tables.element));

  function update(found) {
    const each = found.find((one) => one.name === name);
    if (!each) return put(about, empty("No such capture", "It was removed, or never declared."));
    put(about, problem(each), facts([["State", each.state], ["Database", each.source], ["Lag", lagText(each)], ["Lag (time)", span(each.lag.seconds)],
      ["Log held", each.lag.held_bytes !== null && bytes(each.lag.held_bytes)], ["Written since it started", count(each.changes, "change")],
      ["Last change", each.last_change_ms && ago(each.last_change_ms)], ["Reconnects", each.reconnects ? number(each.reconnects) : null]], { inline: true }));
    return tables.update(each.tables);
  }

  update((await read(path(["captures"]), signal)).captures);
  watch(({ status }) => status.captures && update(status.captures), signal);
}

async function showFollower({ root, signal }, name) {
  const about = h("div", {});
  const positions = table({
    caption: "Positions", key: ([partition]) => partition, empty: "It has no position yet.",
    columns: [
      { id: "partition", title: "Partition", value: ([partition]) => Number(partition), text: ([partition]) => partition, end: true },
      { id: "offset", title: "Reflected up to offset", value: ([, offset]) => offset, text: ([, offset]) => number(offset), end: true },
    ],
  });
  put(root, crumbs(), heading(name, null), about, h("section", {}, h("h2", {}, "Positions"), positions.element));

  function update(found) {
    const each = found.find((one) => one.name === name);
    if (!each) return put(about, empty("No such follower", "It was removed, or never declared."));
    put(about, problem(each), facts([["State", each.state], ["Topic", h("a", { href: link(["topics", each.topic]) }, each.topic)], ["Target", targetText(each)],
      ["Lag", each.behind === null ? null : count(each.behind, "offset")], ["Lag (time)", each.seconds_behind === null ? null : span(each.seconds_behind)],
      ["Written", count(each.upserts, "row")], ["Deleted", count(each.deletes, "row")], ["Given up", each.dead ? count(each.dead, "record") : null],
      ["Repairs", each.repairs ? number(each.repairs) : null], ["Reconnects", each.reconnects ? number(each.reconnects) : null]], { inline: true }));
    return positions.update(Object.entries(each.positions));
  }

  update((await read(path(["followers"]), signal)).followers);
  watch(({ status }) => status.followers && update(status.followers), signal);
}

const crumbs = () => h("p", { class: "crumbs" }, h("a", { href: link(["captures"]) }, "Captures"));

const problem = ({ error, error_at_ms: at }) => error && h("div", { class: "problem", role: "alert" }, h("div", {},
  h("p", { class: "problem-title" }, error), at && h("p", {}, ago(at))));

function fillState(cell, { state }) {
  const pill = cell.firstElementChild ?? cell.appendChild(h("span", {}));
  pill.className = `tag is-${GOOD.has(state) ? "ok" : BAD.has(state) ? "bad" : state === "paused" ? "unknown" : "warn"}`;
  say(pill, state);
}

const PHASES = { rows: "reading rows", gone: "looking for deleted rows", done: "done" };
const phaseText = ({ phase }) => PHASES[phase] ?? phase;
const rowsText = ({ rows, total }) => (total === null ? number(rows) : `${number(rows)} of about ${number(total)}`);
const percent = (share) => (share === null ? "–" : `${Math.floor(share * 100)}%`);
const unread = ({ lag }) => lag.bytes ?? lag.changes ?? lag.transactions ?? -1;
const targetText = ({ target, place }) => (place ? `${target} ${place}` : target);

/** What was not read yet, in the units that the database knows. */
function lagText({ lag }) {
  const known = [
    lag.changes !== null && count(lag.changes, "change"),
    lag.transactions !== null && count(lag.transactions, "transaction"),
    lag.bytes !== null && bytes(lag.bytes),
  ].filter(Boolean);
  return known.length ? known.join(", ") : "–";
}
