// One topic: its records as they come, any place in it, its partitions and settings.

import { h, put, say } from "../dom.js";
import { change, path, read } from "../api.js";
import { topicRate, topicRates, watch } from "../live.js";
import { go, link, refresh } from "../router.js";
import { bytes, count, number, rate, recordCount } from "../format.js";
import { may } from "../user.js";
import { askFor, askTyped } from "../parts/dialog.js";
import { heading, notify } from "../parts/notice.js";
import { drawSpark, spark } from "../parts/spark.js";
import { table } from "../parts/table.js";
import { tabs } from "../parts/tabs.js";
import { configFields, configOf, configText } from "../parts/topic_config.js";
import { facts } from "../parts/value.js";
import { recordBrowser } from "../parts/record_browser.js";

/** Shows the topic that the address names. */
export async function showTopic({ root, parts: [name], query, signal }) {
  const topic = await read(path(["topics", name]), signal);
  const coming = h("b", {});
  const trend = spark("Incoming records");
  put(root, h("p", { class: "crumbs" }, h("a", { href: link(["topics"]) }, "Topics")),
    heading(name, null, h("span", { class: "coming" }, trend, coming),
      may("admin") && h("button", { type: "button", onclick: () => alter(topic, refresh) }, "Settings"),
      may("admin") && h("button", { type: "button", class: "danger-quiet", onclick: () => remove(name) }, "Delete")));
  const browser = recordBrowser({ topic, query, signal });
  const partitions = partitionTable();
  partitions.update(topic.partitions);
  root.append(tabs("Topic", [
    { title: "Records", content: browser.element },
    { title: "Partitions", content: h("div", {}, partitions.element) },
    { title: "Settings", content: settings(topic) },
  ]));
  watch(({ status }) => {
    const end = status.topics?.[name];
    say(coming, rate(topicRate(name)));
    drawSpark(trend, topicRates(name));
    if (end?.partitions) partitions.update(topic.partitions.map((each) => grownTo(each, end.partitions[each.partition] ?? each.end)));
  }, signal);
  browser.begin();
}

/** A partition as it is now: what came since it was described is not counted, and may be markers. */
function grownTo(partition, end) {
  const more = end - partition.end;
  return more > 0 ? { ...partition, end, records: partition.records + more, exact: false } : partition;
}

function partitionTable() {
  return table({
    caption: "Partitions", key: (each) => each.partition, order: { column: "partition", descending: false },
    columns: [
      { id: "partition", title: "Partition", value: (each) => each.partition, text: (each) => each.partition, end: true },
      { id: "start", title: "Log start", value: (each) => each.start, text: (each) => number(each.start), end: true },
      { id: "end", title: "Log end", value: (each) => each.end, text: (each) => number(each.end), end: true },
      { id: "records", title: "Records", value: (each) => each.records, text: (each) => recordCount(each), end: true },
    ],
  });
}

function settings(topic) {
  const overrides = new Set(topic.config_overrides);
  return h("div", {}, facts([
    ["Partitions", count(topic.partitions.length, "partition")],
    ["Records", recordCount(topic)], ["Size", typeof topic.bytes === "number" ? bytes(topic.bytes) : null],
    ["Storage", topic.storage === "memory" ? "memory: lost on restart" : topic.storage], ["Cleanup", topic.cleanup_policy],
  ]), h("h2", {}, "Configuration"), facts(Object.entries(topic.config ?? {}).map(([name, value]) =>
    [name, h("span", { class: overrides.has(name) ? "is-set" : "" }, String(value ?? ""), overrides.has(name) ? " (set here)" : "")])));
}

async function alter(topic, done) {
  const own = Object.fromEntries(topic.config_overrides.map((name) => [name, topic.config[name]]));
  const changed = await askFor({
    title: `Settings of ${topic.name}`, action: "Change",
    fields: [
      { name: "partitions", label: "Partitions", type: "number", min: topic.partitions.length, value: String(topic.partitions.length), hint: "Partitions can be added but not removed." },
      ...configFields(configText(own)),
    ],
    submit: async (values) => {
      const wanted = configOf(values.config);
      const body = { config: { ...Object.fromEntries(Object.keys(own).map((name) => [name, null])), ...wanted } }; // what is left out goes back to its default
      if (Number(values.partitions) !== topic.partitions.length) body.partitions = Number(values.partitions);
      if (body.partitions || Object.keys(body.config).length) await change("PATCH", path(["topics", topic.name]), body);
      return true;
    },
  });
  if (changed) done();
}

async function remove(name) {
  const gone = await askTyped({
    title: `Delete ${name}?`, word: name, action: "Delete topic",
    about: "This deletes all its records and the groups' offsets in it, and cannot be undone.",
    submit: () => change("DELETE", path(["topics", name], { confirm: name })).then(() => true),
  });
  if (!gone) return;
  notify(`Topic ${name} was deleted.`);
  go(["topics"]);
}
