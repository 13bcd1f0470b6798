// Pipeline: the application as a graph; per node what passes, how far its time is, and a look inside.

import { h, put, say, svg } from "../dom.js";
import { path, read } from "../api.js";
import { watch } from "../live.js";
import { renewWithApplication } from "../renewing.js";
import { link } from "../router.js";
import { bytes, cell, count, moment, rate, short, span, time } from "../format.js";
import { graphOf, isAside, titleOf } from "../graph.js";
import { attempt, command, empty, heading } from "../parts/notice.js";
import { layout, wire } from "../parts/layout.js";
import { table } from "../parts/table.js";
import { facts } from "../parts/value.js";

const SIZE = { boxWidth: 204, boxHeight: 62, gapX: 40, gapY: 18 };
const PAD = 14;
const KINDS = { topic: "topic", query: "query", step: "step", window: "window", join: "join", table: "table", group: "group", view: "view", hook: "hook", store: "store" };

export async function show({ root, query, signal }) {
  const pipelines = await read(path(["pipelines"]), signal);
  renewWithApplication(pipelines, signal);
  const graph = graphOf(pipelines);
  put(root, heading("Pipeline", "From topics through queries to views. Select a node to see its rows."));
  if (!graph.nodes.length) {
    root.append(empty("No pipeline yet", "The graph appears once an application runs with this console's data folder:", command("headrace run app.py")));
    return;
  }
  const detail = h("section", { class: "card node-detail", "aria-label": "Selected node", "aria-live": "off" }, empty("No node selected", "Select one in the graph to see its rows, rate and watermark."));
  const boxes = new Map();
  const choose = (node) => {
    for (const [id, box] of boxes) box.element.setAttribute("aria-pressed", String(id === node.id));
    showNode(detail, node, signal).then(() => detail.scrollIntoView({ block: "nearest" }));
  };
  const cluster = h("p", { class: "cluster", "aria-live": "off" });
  say(cluster, clusterText(pipelines.cluster));
  root.append(legend(graph.nodes), cluster, drawing(graph, boxes, choose), detail);
  watch(({ status }) => {
    if (status.pipelines) say(cluster, clusterText(status.pipelines.cluster));
    for (const node of status.pipelines ? graphOf(status.pipelines).nodes : []) boxes.get(node.id)?.update(node);
  }, signal);
  const wanted = graph.nodes.find((node) => node.id === query.get("node"));
  if (wanted) choose(wanted);
}

const legend = (nodes) => h("ul", { class: "legend" }, ["topic", "table", "join", "group", "query", "window", "view", "hook"].filter((kind) => nodes.some((node) => node.kind === kind)).map((kind) =>
  h("li", {}, svg("svg", { class: "swatch", viewBox: "0 0 8 8", "aria-hidden": "true" }, svg("rect", { class: `kind-${kind}`, width: 8, height: 8 })), kind)));

function drawing(graph, boxes, choose) {
  const placed = layout(graph.nodes.map((node) => ({ id: node.id, last: isAside(node) })), graph.edges, SIZE);
  const [width, height] = [placed.width + 2 * PAD, placed.height + 2 * PAD];
  const picture = svg("svg", { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Pipeline" });
  const inner = svg("g", { transform: `translate(${PAD} ${PAD})` });
  for (const { from, to } of graph.edges) {
    const [one, other] = [placed.nodes.get(from), placed.nodes.get(to)];
    const aside = isAside(graph.nodes.find((node) => node.id === to) ?? {});
    if (one && other) inner.append(svg("path", { class: aside ? "wire aside" : "wire", d: wire(one, other, SIZE) }));
  }
  for (const node of graph.nodes) {
    const box = nodeBox(node, placed.nodes.get(node.id), choose);
    boxes.set(node.id, box);
    box.update(node);
    inner.append(box.element);
  }
  picture.append(inner);
  return h("div", { class: "graph-frame", tabindex: "0", role: "region", "aria-label": "Pipeline graph" }, picture);
}

function nodeBox(node, { x, y }, choose) {
  const state = { node };
  const [title, flow, delay] = ["node-title", "node-flow", "node-flow end"].map((name) => svg("text", { class: name }));
  const light = svg("circle", { class: "node-light", cx: SIZE.boxWidth - 12, cy: 13, r: 4 });
  place(title, 12, 18);
  place(flow, 12, 51);
  place(delay, SIZE.boxWidth - 12, 51);
  delay.setAttribute("text-anchor", "end");
  const words = node.label && node.label !== titleOf(node) ? node.label : kindText(node);
  const label = svg("text", { class: "node-label" }, clipped(words, 180, "11.5px"));
  place(label, 12, 34);
  const hint = svg("title", {});
  const element = svg("g", {
    class: `node node-${KINDS[node.kind] ?? "step"}`, transform: `translate(${x} ${y})`, tabindex: "0", role: "button", "aria-pressed": "false",
    "data-node": node.id, onclick: () => choose(state.node), onkeydown: onKey,
  }, hint, svg("rect", { width: SIZE.boxWidth, height: SIZE.boxHeight, rx: 7 }), title, label, flow, delay, light);

  function onKey(event) {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    choose(state.node);
  }

  function update(now) {
    state.node = { ...node, ...now };
    say(title, clipped(titleOf(node), state.node.state ? 166 : 182, "600 13px"));
    const [passing, late] = footOf(state.node);
    say(flow, passing);
    say(delay, late);
    light.setAttribute("class", `node-light is-${toneOf(state.node.state)}`);
    say(hint, `${node.kind} ${titleOf(node)}${node.label ? `: ${node.label}` : ""}`);
    element.setAttribute("aria-label", `${node.kind} ${titleOf(node)}, ${flowTexts(state.node)[0]} ${delayTexts(state.node)[0]} ${state.node.state ?? ""}`);
  }

  return { element, update };
}

function place(text, x, y) {
  text.setAttribute("x", x);
  text.setAttribute("y", y);
}


const ruler = document.createElement("canvas").getContext("2d");

function widthOf(text, font) {
  ruler.font = `${font} ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

/** As much of a text as fits into so many pixels. */
function clipped(text, width, font) {
  let shown = String(text);
  if (widthOf(shown, font) <= width) return shown;
  while (shown && widthOf(`${shown}…`, font) > width) shown = shown.slice(0, -1);
  return `${shown.trimEnd()}…`;
}

const clusterText = (cluster) => (cluster ? `Spark at ${cluster.master}: ${count(cluster.executors, "executor")}, ${count(cluster.cores, "task")} at a time` : "");

/** How far a query is spread: tasks, and the buckets of its state. */
const spreadText = (node) => (node.tasks ? `${count(node.tasks, "task")}, ${count(node.buckets, "bucket")}` : null);

const kindText = (node) => (typeof node.stage === "number" ? `${node.kind} · stage ${node.stage}` : node.kind);

const flowOf = (node) => (typeof node.records_per_s === "number" ? rate(node.records_per_s) : "");

/** What stands at the foot of a node: what an operator keeps, or else what passes; from long to short. */
function flowTexts(node) {
  if (typeof node.state_rows !== "number") return [flowOf(node)];
  const rows = `${short(node.state_rows)} ${node.state_rows === 1 ? "row" : "rows"}`;
  return [`${rows}, ${bytes(node.state_bytes)}`, rows];
}

/** How far its time is; from long to short. */
function delayTexts(node) {
  if (typeof node.delay_s === "number") return [`${span(node.delay_s)} behind`, span(node.delay_s)];
  return [moment(node.watermark) ? `to ${time(node.watermark)}` : ""];
}

/** Both, as long as they fit beside each other. */
function footOf(node) {
  const pairs = flowTexts(node).flatMap((flow) => delayTexts(node).map((delay) => [flow, delay]));
  return pairs.find(([flow, delay]) => widthOf(flow, "11.5px") + widthOf(delay, "11.5px") <= SIZE.boxWidth - 32) ?? pairs.at(-1);
}

const toneOf = (state) => ({ running: "ok", failed: "bad", restarting: "warn", rebuilding: "warn", starting: "warn", stopped: "unknown" })[state] ?? "none";

async function showNode(place, node, signal) {
  const trouble = h("div", {});
  const rows = h("div", { class: "sample" });
  put(place, h("header", {}, h("h2", {}, titleOf(node)), linkOf(node)),
    facts([["Kind", node.kind], ["Description", node.label !== titleOf(node) ? node.label : null], ["State", node.state], ["Rate", flowOf(node) || null],
      ["Spread over", spreadText(node)], ["Slowest put of state", typeof node.put_ms === "number" ? `${node.put_ms.toFixed(0)} ms` : null],
      ["Keeps", typeof node.state_rows === "number" ? `${count(node.state_rows, "row")}, ${bytes(node.state_bytes)}` : null],
      ["Skew", typeof node.state_skew === "number" ? `${node.state_skew.toFixed(1)} × the median bucket` : null],
      ["Oldest", moment(node.state_oldest) ? time(node.state_oldest) : null], ["Planned", node.why || null],
      ["Watermark", moment(node.watermark) ? time(node.watermark) : null], ["Delay", typeof node.delay_s === "number" ? span(node.delay_s) : null], ["Error", node.error]], { inline: true }),
    trouble, rows);
  const sample = await attempt(trouble, () => read(path(["pipelines", "nodes", node.sample ?? node.id, "sample"], { limit: 20 }), signal), { signal });
  if (sample) put(rows, h("h3", {}, "Newest rows"), sampleTable(sample.rows));
}

function linkOf(node) {
  if (node.kind === "view") return h("a", { href: link(["views", node.name]) }, "Open the view");
  if (node.kind === "topic") return h("a", { href: link(["topics", node.name]) }, "Open the topic");
  return null;
}

/** Rows of any shape: their own columns for objects, else the value in one. */
function sampleTable(rows) {
  if (!rows.length) return empty("No rows yet", "No data has passed through this node.");
  const flat = rows.map((row) => (row.partition !== undefined && row.offset !== undefined ? ofRecord(row) : row));
  const names = [...new Set(flat.flatMap((row) => Object.keys(row)))].slice(0, 16);
  const shown = table({
    caption: "Newest rows", key: (row) => row.index,
    columns: names.map((name) => ({ id: name, title: name, text: (row) => cell(row.row[name], /(_start|_end|_at|time)$/.test(name) && Number.isNaN(Number(row.row[name])) ? "timestamp" : ""), end: typeof flat[0][name] === "number" })),
  });
  shown.update(flat.map((row, index) => ({ index, row })));
  return shown.element;
}

function ofRecord(record) {
  const place = { place: `${record.partition}@${record.offset}` };
  const { value } = record;
  return value && typeof value === "object" && !Array.isArray(value) ? { ...place, ...value } : { ...place, key: record.key, value };
}
