// Where a row comes from, and where a record went: `why` and `affects`, in a dialog.

import { h, put } from "../dom.js";
import { change, path } from "../api.js";
import { link } from "../router.js";
import { count, number, oneLine, time } from "../format.js";
import { empty, problemBox } from "./notice.js";
import { table } from "./table.js";

const WAIT = "The view is recomputed from the log, which takes as long as headrace verify: seconds for a small log, minutes for a large one.";

/** The records behind a row of `view`. */
export function askWhy(view, row) {
  const key = Object.fromEntries(view.key.map((name) => [name, row[name]]));
  ask(`Why is this row of ${view.name} as it is?`, words(key), path(["views", view.name, "why"]), key, (answer) => [
    h("p", { class: "muted" }, answer.count > answer.records.length ? `${number(answer.records.length)} of ${count(answer.count, "record")}` : count(answer.count, "record")),
    listed("Records behind the row", answer.records, (each) => `${each.topic}:${each.partition}@${each.offset}`, [
      { id: "record", title: "Record", text: (each) => `${each.topic}:${each.partition}@${each.offset}`, href: (each) => link(["topics", each.topic], { partition: each.partition, offset: each.offset }) },
      { id: "time", title: "Time", text: (each) => (each.time ? time(each.time) : "no longer on the log") },
      { id: "value", title: "Value", text: (each) => oneLine(each.value, 120), mono: true, wide: true },
      ...(answer.records.some((each) => each.command) ? [
        { id: "command", title: "Command", text: (each) => each.command?.name ?? each.command?.id ?? "" },
        { id: "by", title: "By", text: (each) => each.by ?? "" },
      ] : []),
    ]),
  ]);
}

/** The rows of views that a record has touched. */
export function askAffects(topic, { partition, offset }) {
  const place = `${topic}:${partition}@${offset}`;
  ask(`What has ${place} touched?`, "", path(["topics", topic, "records", partition, offset, "affects"]), undefined, (answer) => [
    answer.rows.length
      ? listed("Rows of views", answer.rows, (each) => `${each.view} ${JSON.stringify(each.key)}`, [
        { id: "view", title: "View", text: (each) => each.view, href: (each) => link(["views", each.view]) },
        { id: "key", title: "Row", text: (each) => words(each.key), wide: true },
      ])
      : empty("No row has anything of this record", "It was left out by a condition, came too late, or no view reads it."),
    answer.notes.map((note) => h("p", { class: "muted" }, note)),
  ]);
}

const words = (key) => Object.entries(key).map(([name, value]) => `${name} ${oneLine(value, 100)}`).join(", ");

function listed(caption, items, key, columns) {
  const made = table({ caption, key, columns });
  made.update(items);
  return made.element;
}

async function ask(title, about, url, body, render) {
  const leaving = new AbortController();
  const content = h("div", {}, h("p", { class: "muted", role: "status" }, WAIT));
  const dialog = h("dialog", { class: "dialog trace", "aria-labelledby": "trace-title" },
    h("h2", { id: "trace-title" }, title), about && h("p", {}, about), content,
    h("div", { class: "actions" }, h("button", { type: "button", onclick: close }, "Close")));
  function close() {
    leaving.abort();
    dialog.close();
    dialog.remove();
  }
  dialog.addEventListener("cancel", close);
  window.addEventListener("hashchange", close, { once: true, signal: leaving.signal });
  document.body.append(dialog);
  dialog.showModal();
  try {
    put(content, render(await change("POST", url, body, leaving.signal)));
  } catch (error) {
    if (!leaving.signal.aborted) put(content, problemBox(error));
  }
}
