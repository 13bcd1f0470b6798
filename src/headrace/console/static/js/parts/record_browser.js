// Records of a topic: the live tail with pause, any offset or time, search, and one record laid out whole.
//
// The tail's cost does not grow with its rate: events are gathered per animation frame, at most KEPT
// records are held, and only the rows that are seen have elements.

import { h, perFrame, put, say } from "../dom.js";
import { icon } from "../icons.js";
import { path, read } from "../api.js";
import { note } from "../router.js";
import { bytes, count, exact, number, oneLine, time } from "../format.js";
import { headersOf } from "../model.js";
import { Tail, follow, holds } from "../tail.js";
import { may } from "../user.js";
import { empty, problemBox } from "./notice.js";
import { virtualRows } from "./rows.js";
import { askAffects } from "./trace.js";
import { facts, valueBlock } from "./value.js";

const KEPT = 2_000;
const PAGE = 200;
const ROW = 28;

/** A browser of the topic; `begin()` starts it where the address says, else with the tail. */
export function recordBrowser({ topic, query, signal }) {
  const tail = new Tail(KEPT);
  const state = { mode: "live", page: [], selected: null, next: null, following: null };
  const parts = controls(topic, query);
  const status = h("span", { class: "muted", role: "status" });
  const waiting = h("button", { type: "button", class: "waiting", hidden: true, onclick: resume });
  const trouble = h("div", {});
  const none = h("div", { class: "records-none" });
  const detail = h("aside", { class: "record-detail", "aria-label": "Selected record", tabindex: "0" });
  const rows = virtualRows({ label: `Records of ${topic.name}`, height: ROW, make: makeRow, fill: fillRow, open: select, move: readOn, head: headCells() });
  rows.element.classList.add("record-rows");
  put(detail, empty("No record selected", "Select one to see its value, key, headers and timestamp."));
  const older = h("button", { type: "button", hidden: true, onclick: () => load({ more: true }) }, "Load more");
  const element = h("div", { class: "browser" },
    h("form", { class: "toolbar", onsubmit: (event) => { event.preventDefault(); jump(); } },
      parts.live, parts.where, parts.place, parts.partition, parts.search, parts.go, status, waiting),
    trouble, h("div", { class: "records" }, h("div", { class: "record-list" }, rows.element, none, older), detail));

  const draw = perFrame(() => {
    const shown = state.mode === "live" ? tail.records.filter((record) => holds(record, parts.search.value)) : state.page;
    rows.update(shown, { active: state.selected ? shown.indexOf(state.selected) : -1 });
    put(none, shown.length ? null : nothing(state.mode, parts.search.value));
    rows.element.hidden = !shown.length;
    waiting.hidden = !(state.mode === "live" && tail.held && tail.waiting.length);
    say(waiting, `Show ${count(tail.waiting.length, "new record")}`);
    say(status, statusText());
  }, signal);

  function statusText() {
    if (state.mode !== "live") return count(state.page.length, "record");
    const shown = `newest ${number(tail.records.length)}${tail.passed ? `, ${number(tail.passed)} not shown` : ""}`;
    return tail.held ? `Paused · ${shown}` : `${state.word ?? "Connecting"} · ${shown}`;
  }

  function begin() {
    if (query.get("offset") || query.get("time")) jump();
    else goLive();
  }

  function goLive() {
    stop();
    state.mode = "live";
    tail.clear();
    tail.release();
    showPaused(false);
    note(["topics", topic.name], {});
    older.hidden = true;
    const leaving = new AbortController();
    signal.addEventListener("abort", () => leaving.abort(), { once: true, signal: leaving.signal });
    state.following = leaving;
    const url = path(["topics", topic.name, "records"], { from: `end-${PAGE / 2}`, partition: parts.partition.value });
    follow(url, {
      signal: leaving.signal,
      onrecords: (records) => { tail.add(records); draw(); },
      onstate: (word) => {
        state.word = { open: "Live", cut: "Reconnecting", gone: "Stopped" }[word];
        put(trouble, word === "gone" ? problemBox({ message: "The event stream ended.", next: "The topic may have been deleted, or you may not be allowed to read it." }, goLive) : null);
        draw();
      },
    });
    draw();
  }

  function stop() {
    state.following?.abort();
    state.following = null;
  }

  function toggle() {
    if (state.mode !== "live") return goLive();
    if (tail.held) return resume();
    tail.hold();
    showPaused(true);
    return draw();
  }

  function resume() {
    tail.release();
    showPaused(false);
    rows.element.scrollTop = 0;
    draw();
  }

  function showPaused(paused) {
    const live = state.mode === "live" && !paused;
    put(parts.live, icon(live ? "pause" : "play"), live ? "Pause" : state.mode === "live" ? "Resume" : "Live tail");
    parts.live.setAttribute("aria-pressed", String(live));
  }

  /** Scrolling away from the top holds the list still; coming back lets it run. */
  rows.element.addEventListener("scroll", () => {
    if (state.mode !== "live" || parts.live.getAttribute("aria-pressed") !== "true") return;
    const away = rows.element.scrollTop > ROW;
    if (away && !tail.held) tail.hold();
    else if (!away && tail.held) tail.release();
    draw();
  }, { passive: true });

  function jump() {
    if (parts.where.value === "live" && !parts.search.value) return goLive();
    if (parts.where.value === "live") return draw();
    stop();
    state.mode = "page";
    showPaused(true);
    return load({});
  }

  async function load({ more = false }) {
    put(trouble);
    try {
      const asked = more ? { ...state.asked, cursor: state.next } : askedFor(parts);
      const page = await read(path(["topics", topic.name, "records"], { ...asked, limit: PAGE }), signal);
      if (!more) note(["topics", topic.name], noted(parts));
      state.asked = asked;
      state.page = more ? [...state.page, ...page.records] : page.records;
      state.next = page.next ?? null;
      older.hidden = !state.next;
      if (!more) rows.element.scrollTop = 0;
      if (!more && parts.where.value === "offset" && page.records.length) select(page.records[0]);
    } catch (error) {
      if (!signal.aborted) put(trouble, problemBox(error));
    }
    draw();
  }

  /** Reading with the keyboard holds a live list still. */
  function readOn(record) {
    if (state.mode === "live" && !tail.held) {
      tail.hold();
      showPaused(true);
    }
    select(record);
  }

  function select(record) {
    state.selected = record;
    put(detail, recordDetail(topic.name, record));
    draw();
  }

  parts.live.addEventListener("click", toggle);
  parts.search.addEventListener("input", () => state.mode === "live" && draw());
  parts.partition.addEventListener("change", jump);
  parts.where.addEventListener("change", () => {
    parts.showPlace();
    if (["live", "earliest"].includes(parts.where.value)) jump();
    else parts.place.focus();
  });
  return { element, begin };
}

function controls(topic, query) {
  const where = h("select", { "aria-label": "Start position" }, [["live", "Newest, live"], ["earliest", "From the start"], ["offset", "At an offset"], ["time", "At a time"]]
    .map(([value, text]) => h("option", { value }, text)));
  where.value = query.get("offset") ? "offset" : query.get("time") ? "time" : "live";
  const place = h("input", { class: "place", "aria-label": "Offset or time", value: query.get("offset") ?? query.get("time") ?? "" });
  const partition = h("select", { "aria-label": "Partition" }, h("option", { value: "" }, "All partitions"),
    topic.partitions.map((each) => h("option", { value: String(each.partition) }, `Partition ${each.partition}`)));
  partition.value = query.get("partition") ?? "";
  const parts = {
    where, place, partition, live: h("button", { type: "button", class: "live-button" }),
    search: h("input", { type: "search", placeholder: "Search in records", "aria-label": "Search in records", value: query.get("search") ?? "" }),
    go: h("button", { type: "submit", class: "quiet", "aria-label": "Search or jump", title: "Search or jump" }, icon("search")),
    showPlace() {
      const kind = where.value;
      place.hidden = kind === "live" || kind === "earliest";
      place.type = kind === "time" ? "datetime-local" : "number";
      place.step = "1";
      if (kind === "offset") place.placeholder = "Offset";
      if (kind === "offset" && !partition.value) partition.value = String(topic.partitions[0]?.partition ?? 0);
    },
  };
  parts.showPlace();
  return parts;
}

function askedFor({ where, place, partition, search }) {
  const asked = { partition: partition.value, search: search.value };
  if (where.value === "offset") return { ...asked, offset: place.value || "0" };
  if (where.value === "time" && place.value) return { ...asked, time: new Date(place.value).toISOString() };
  return { ...asked, from: "earliest" };
}

const noted = ({ where, place, partition, search }) => ({
  partition: partition.value, search: search.value, [where.value === "time" ? "time" : "offset"]: place.hidden ? "" : place.value,
});

function headCells() {
  return ["Time", "Position", "Key", "Value"].map((title) => h("span", { role: "columnheader" }, title));
}

function makeRow() {
  return h("div", { class: "record-row" }, [0, 1, 2, 3].map(() => h("span", { role: "gridcell" })));
}

function fillRow(row, record) {
  if (row.record === record) return;
  row.record = record;
  const [at, place, key, value] = row.children;
  say(at, time(record.timestamp, { millis: true }));
  say(place, `${record.partition}@${record.offset}`);
  say(key, record.key === null || record.key === undefined ? "" : oneLine(record.key, 80));
  say(value, oneLine(record.value, 300));
}

function nothing(mode, search) {
  if (search) return empty("No record matches", mode === "live" ? "Only new records are searched. To search older ones, choose From the start." : "The search stops after a limit of bytes; continue from another position.");
  if (mode === "live") return empty("No records yet", "New records appear here as they arrive. Send one from the overview, with any Kafka client, or with headrace produce.");
  return empty("No records", "There are none from this position on.");
}

/** One record, whole. */
export function recordDetail(topic, record) {
  const headers = headersOf(record);
  return [
    h("h2", {}, `${topic}:${record.partition}@${record.offset}`),
    facts([
      ["Time", h("span", { title: exact(record.timestamp) }, time(record.timestamp, { millis: true }))],
      ["Key", record.key === null || record.key === undefined ? h("span", { class: "muted" }, "none") : h("code", {}, oneLine(record.key, 2_000))],
      ["Size", typeof record.size === "number" ? bytes(record.size) : null], ["Decoded as", record.encoding],
    ]),
    headers.length ? [h("h3", {}, "Headers"), facts(headers.map(([name, value]) => [name, h("code", {}, value === null ? "null" : oneLine(value, 2_000))]))] : null,
    h("h3", {}, "Value"), valueBlock(record.value, record.encoding),
    may("writer") && h("button", { type: "button", onclick: () => askAffects(topic, record) }, "What has it touched?"),
  ];
}
