// One view: a chart, its rows with filter, order, pages and CSV, its changes as they come, and a rebuild that waits.

import { h, put } from "../dom.js";
import { icon } from "../icons.js";
import { path, read } from "../api.js";
import { watch } from "../live.js";
import { link } from "../router.js";
import { number, time } from "../format.js";
import { asView } from "../model.js";
import { heading } from "../parts/notice.js";
import { facts } from "../parts/value.js";
import { showFreshness } from "../parts/freshness.js";
import { viewChart } from "../parts/view_chart.js";
import { viewRows } from "../parts/view_rows.js";
import { viewChanges } from "../parts/view_changes.js";
import { rebuiltView } from "../parts/rebuilt_view.js";

const SHAPES = { columns: "Columns over time", lines: "Lines over time", ranking: "Ranking", none: "No chart" };

/** Shows the view that the address names. */
export async function showView({ root, parts: [name], signal }) {
  const view = asView(await read(path(["views", name]), signal));
  const fresh = h("span", {});
  const about = h("div", {});
  const chart = viewChart(view, { signal, height: 230 });
  const rows = viewRows(view, signal);
  const rebuilt = rebuiltView(view, signal);
  const changes = viewChanges(view, {
    signal,
    onchange: (change) => {
      if (change.corrects) rows.mark(change.key);
    },
  });
  put(root, h("p", { class: "crumbs" }, h("a", { href: link(["views"]) }, "Views")),
    heading(name, view.doc, fresh, h("a", { class: "button", href: rows.csv(), id: "csv", download: `${name}.csv` }, icon("download"), "CSV")), about, rebuilt.element,
    h("section", { class: "card" }, h("header", {}, h("h2", {}, "Chart"), chartChoice(chart)), chart.element),
    h("div", { class: "view-columns" }, h("section", { "aria-label": "Rows" }, h("h2", {}, "Rows"), rows.element), h("section", { "aria-label": "Changes" }, changes.element)));
  rows.onasked(() => root.querySelector("#csv").setAttribute("href", rows.csv()));

  function update(now) {
    showFreshness(fresh, now);
    put(about, aboutView({ ...view, ...now }));
    chart.refresh(now);
    rows.refresh(now);
  }

  update(view);
  watch(({ status }) => {
    rebuilt.refresh(status.rebuilds?.[name]);
    const now = status.views?.find((each) => each.name === name);
    if (now) update(now);
  }, signal);
}

function aboutView(view) {
  const counters = view.counters ?? {};
  const counted = [["on time", counters.on_time], ["corrected", counters.corrected], ["dropped", counters.dropped]].filter(([, value]) => value !== undefined);
  return facts([
    ["Window", view.window ?? view.kind], ["Key", view.key.join(", ")],
    ["Reads", view.stream && h("a", { href: link(["topics", view.stream]) }, view.stream)],
    ["Watermark", time(view.watermark)], ["Batch", view.reflected?.batch_id],
    ["Counts", counted.map(([name, value]) => `${number(value)} ${name}`).join(", ")],
  ], { inline: true });
}

function chartChoice(chart) {
  const { fit, chosen } = chart;
  const shapes = Object.entries(SHAPES).filter(([shape]) => (fit.measures.length ? shape !== "none" && (fit.time || shape === "ranking") : shape === "none"));
  const shape = h("select", { "aria-label": "Chart type", onchange: redraw }, shapes.map(([value, text]) => h("option", { value, selected: value === chosen.shape }, text)));
  const measure = h("select", { "aria-label": "Measure", onchange: redraw }, fit.measures.map((name) => h("option", { value: name }, name)));
  function redraw() {
    chart.choose(shape.value, measure.value);
  }
  return h("div", { class: "choices" }, fit.measures.length > 1 && measure, shapes.length > 1 && shape);
}
