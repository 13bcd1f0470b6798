// Views: all of them with their freshness, or one as a chart, a table and the changes that come.

import { h, put } from "../dom.js";
import { path, read } from "../api.js";
import { history, watch } from "../live.js";
import { link, refresh } from "../router.js";
import { number, time } from "../format.js";
import { asView } from "../model.js";
import { command, empty, heading } from "../parts/notice.js";
import { drawSpark, spark } from "../parts/spark.js";
import { table } from "../parts/table.js";
import { showFreshness } from "../parts/freshness.js";
import { showView } from "./view.js";

export const show = (place) => (place.parts.length ? showView(place) : showViews(place));

async function showViews({ root, signal }) {
  const listed = await read(path(["views"]), signal);
  const known = new Map(listed.views.map((view) => [view.name, asView(view)]));
  const list = table({
    caption: "Views", key: (view) => view.name, order: { column: "name", descending: false },
    columns: [
      { id: "name", title: "View", value: (view) => view.name, text: (view) => view.name, href: (view) => link(["views", view.name]) },
      { id: "doc", title: "Description", text: (view) => view.doc ?? "", wide: true },
      { id: "window", title: "Window", text: (view) => view.window ?? view.kind ?? "" },
      { id: "behind", title: "Lag", value: (view) => view.lag_records ?? -1, text: (view) => number(view.lag_records), end: true, about: "Records in the log that are not in the view yet" },
      { id: "watermark", title: "Watermark", value: watermarkOf, text: (view) => time(watermarkOf(view)) },
      { id: "fresh", title: "Freshness", value: (view) => view.freshness_s ?? -1, fill: fillFresh },
      { id: "trend", title: "Trend", fill: fillTrend },
    ],
  });
  put(root, heading("Views", "Tables that are kept up to date from the log. Freshness is how long the oldest record that is not in the view yet has waited."));
  watch(({ status }) => {
    if (status.views && status.views.map((view) => view.name).sort().join() !== [...known.keys()].sort().join()) refresh();
  }, signal);
  if (!known.size) {
    root.append(empty("No views yet", "A view is a function in an application file; run one:", command("headrace run app.py")));
    return;
  }
  root.append(list.element);
  list.update([...known.values()]);
  watch(({ status }) => {
    for (const view of status.views ?? []) if (known.has(view.name)) known.set(view.name, { ...known.get(view.name), ...view, columns: known.get(view.name).columns });
    list.update([...known.values()]);
  }, signal);
}

const watermarkOf = (view) => view.watermark ?? null;

function fillFresh(cell, view) {
  showFreshness(cell.firstElementChild ?? cell.appendChild(h("span", {})), view);
}

function fillTrend(cell, view) {
  drawSpark(cell.firstElementChild ?? cell.appendChild(spark("Freshness trend")), history(`fresh ${view.name}`));
}
