// Alerts that hold now, and what the driver said lately.

import { h, put } from "../dom.js";
import { path, read } from "../api.js";
import { watch } from "../live.js";
import { time } from "../format.js";
import { empty, heading } from "../parts/notice.js";
import { alertList } from "../parts/alert_list.js";
import { table } from "../parts/table.js";

export async function show({ root, signal }) {
  const list = alertList();
  const none = h("div", {});
  const said = table({
    caption: "Messages from the driver", key: (each) => `${each.at} ${each.text}`, order: { column: "at", descending: true }, empty: "Nothing yet.",
    columns: [
      { id: "at", title: "When", value: (each) => each.at, text: (each) => time(each.at * 1000) },
      { id: "text", title: "What", text: (each) => each.text, wide: true },
    ],
  });
  const messages = h("section", { hidden: true }, h("h2", {}, "Messages from the driver"), said.element);
  put(root, heading("Alerts", "Lag, late records, dead letters and stopped queries that need attention."), none, list.element, messages);

  function update(alerts) {
    list.update(alerts);
    put(none, alerts.length ? null : empty("All is well", "There are no active alerts. They appear here and in the navigation, and disappear once they are resolved."));
  }

  update((await read(path(["alerts"]), signal)).alerts);
  watch(({ status }) => {
    update(status.alerts ?? []);
    const lines = status.pipelines?.messages ?? [];
    messages.hidden = !lines.length;
    said.update(lines);
  }, signal);
}
