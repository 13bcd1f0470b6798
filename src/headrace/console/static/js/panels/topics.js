// Topics: a list of any length with search and order, and the way to make one.

import { h, perFrame, put, say } from "../dom.js";
import { icon } from "../icons.js";
import { change, path, read } from "../api.js";
import { topicRate, watch } from "../live.js";
import { go, link, note } from "../router.js";
import { bytes, count, number, rate, recordCount } from "../format.js";
import { may } from "../user.js";
import { askFor } from "../parts/dialog.js";
import { command, empty, heading, notify } from "../parts/notice.js";
import { virtualRows } from "../parts/rows.js";
import { configFields, configOf } from "../parts/topic_config.js";
import { showTopic } from "./topic.js";

const PAGE = 1_000; // topics in a request; the first page is shown while the others come
const ROW = 34;

const COLUMNS = [
  { id: "name", title: "Topic", value: (topic) => topic.name },
  { id: "partitions", title: "Partitions", end: true, value: (topic) => topic.partitions },
  { id: "records", title: "Records", end: true, value: (topic) => topic.records ?? -1 },
  { id: "rate", title: "Incoming", end: true, value: (topic) => topicRate(topic.name) ?? -1 },
  { id: "bytes", title: "Size", end: true, value: (topic) => topic.bytes ?? -1 },
  { id: "kept", title: "Kept", value: (topic) => keptText(topic) },
];

export async function show(place) {
  if (place.parts.length) return showTopic(place);
  return showList(place);
}

async function showList({ root, query, signal }) {
  const state = { topics: [], search: query.get("search") ?? "", internal: query.get("internal") === "yes", order: { column: "name", descending: false } };
  const counted = h("span", { class: "muted", role: "status" });
  const search = h("input", { type: "search", value: state.search, placeholder: "Search topics", "aria-label": "Search topics", oninput: () => filter({ search: search.value }) });
  const internal = h("input", { type: "checkbox", checked: state.internal, onchange: () => filter({ internal: internal.checked }) });
  const heads = COLUMNS.map((column) => headCell(column, () => sortBy(column)));
  const rows = virtualRows({ label: "Topics", height: ROW, make: makeRow, fill: fillRow, open: (topic) => go(["topics", topic.name]), head: heads });
  rows.element.classList.add("topic-rows");
  const none = h("div", {});
  put(root, heading("Topics", null, may("admin") && h("button", { type: "button", onclick: createTopic }, icon("plus"), "Create a topic")),
    h("div", { class: "toolbar" }, search, h("label", { class: "check" }, internal, "Internal topics"), counted), none, rows.element);

  const draw = perFrame(() => {
    const shown = chosen(state);
    say(counted, shown.length === state.topics.length ? count(shown.length, "topic") : `${number(shown.length)} of ${count(state.topics.length, "topic")}`);
    put(none, state.loaded && !shown.length ? nothing(state) : null);
    rows.element.hidden = state.loaded && !shown.length;
    rows.update(shown);
    for (const [index, column] of COLUMNS.entries()) markOrder(heads[index], column, state.order);
  }, signal);

  function filter(changes) {
    Object.assign(state, changes);
    note(["topics"], { search: state.search, internal: state.internal ? "yes" : "" });
    rows.element.scrollTop = 0;
    draw();
  }

  function sortBy(column) {
    const descending = state.order.column === column.id ? !state.order.descending : Boolean(column.end);
    state.order = { column: column.id, descending };
    draw();
  }

  watch(({ status }) => {
    if (!state.loaded) return;
    const names = Object.keys(status.topics ?? {});
    const known = new Set(state.topics.map((topic) => topic.name));
    if (names.length && (names.some((name) => !known.has(name)) || names.length < known.size)) reload().catch(() => {}); // left meanwhile, or no answer: the next status tries again
    else draw();
  }, signal);

  let loading = false;
  async function reload() {
    if (loading) return;
    loading = true;
    try {
      const found = [];
      let after = "";
      do {
        const page = await read(path(["topics"], { limit: PAGE, after }), signal);
        found.push(...page.topics);
        after = page.next ?? "";
        if (!state.loaded) {
          state.topics = found;
          state.loaded = true;
          draw();
        }
      } while (after);
      state.topics = found;
      draw();
    } finally {
      loading = false;
    }
  }

  await reload();
}

function chosen({ topics, search, internal, order }) {
  const wanted = search.trim().toLowerCase();
  const found = topics.filter((topic) => (internal || !topic.internal) && (!wanted || topic.name.toLowerCase().includes(wanted)));
  const { value } = COLUMNS.find((column) => column.id === order.column);
  const sign = order.descending ? -1 : 1;
  return found.sort((one, other) => sign * compare(value(one), value(other)) || compare(one.name, other.name));
}

const compare = (one, other) => (typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one - other);

const keptText = (topic) => [topic.storage === "memory" ? "in memory" : "", topic.cleanup_policy === "compact" ? "newest per key" : ""].filter(Boolean).join(", ") || "by age and size";

function headCell(column, sort) {
  return h("span", { role: "columnheader", class: column.end ? "end" : "" },
    h("button", { type: "button", class: "sort", onclick: sort }, column.title, h("span", { class: "arrow", "aria-hidden": "true" })));
}

function markOrder(head, column, order) {
  head.setAttribute("aria-sort", order.column === column.id ? (order.descending ? "descending" : "ascending") : "none");
}

function makeRow() {
  return h("div", { class: "topic-row" },
    h("span", { role: "gridcell" }, h("a", { tabindex: "-1" })),
    COLUMNS.slice(1).map((column) => h("span", { role: "gridcell", class: column.end ? "end" : "muted" })));
}

function fillRow(row, topic) {
  const [name, partitions, records, coming, size, kept] = row.children;
  say(name.firstChild, topic.name);
  name.firstChild.setAttribute("href", link(["topics", topic.name]));
  say(partitions, number(topic.partitions));
  say(records, recordCount(topic));
  say(coming, rate(topicRate(topic.name)));
  say(size, bytes(topic.bytes));
  say(kept, keptText(topic));
}

function nothing({ search, topics, internal }) {
  if (search) return empty("No topic matches", internal ? "Try fewer letters." : "Try fewer letters, or show internal topics.");
  if (topics.length) return empty("Only internal topics so far", "Create one here, or from a shell:", command("headrace topics create orders --partitions 4"));
  return empty("No topics yet", "Create one here, or from a shell:", command("headrace topics create orders --partitions 4"));
}

async function createTopic() {
  const made = await askFor({
    title: "Create a topic", action: "Create",
    fields: [
      { name: "name", label: "Name", required: true, hint: "Letters, digits, dots, underscores and dashes." },
      { name: "partitions", label: "Partitions", type: "number", min: 1, value: "4", hint: "Partitions can be added later, but not removed." },
      ...configFields(""),
    ],
    submit: async (values) => {
      const body = { name: values.name, partitions: Number(values.partitions), config: configOf(values.config) };
      await change("POST", path(["topics"]), body);
      return values.name;
    },
  });
  if (!made) return;
  notify(`Topic ${made} is there.`);
  go(["topics", made]);
}
