// A rebuilt view beside the one that is shown: what differs, and the button that shows it.

import { h, put } from "../dom.js";
import { icon } from "../icons.js";
import { change, path, read } from "../api.js";
import { cell, count, number } from "../format.js";
import { may } from "../user.js";
import { askTyped } from "./dialog.js";
import { attempt, notify } from "./notice.js";
import { table } from "./table.js";

const KINDS = { changed: ["changed", "warn"], added: ["new", "ok"], removed: ["gone", "bad"] };
const STATES = {
  rebuilding: "A rebuild of this view is under way, out of readers' sight. What it changes is listed here once it has caught up.",
  switching: "The rebuilt rows are shown as soon as the process that keeps this view notices.",
};

/** The card of a view; `refresh(state)` is called with the state of its rebuild, undefined without one. */
export function rebuiltView(view, signal) {
  const { name } = view;
  const element = h("section", { class: "card rebuilt", "aria-label": `Rebuilt ${name}`, hidden: true });
  let shown;

  async function refresh(state) {
    if (state === shown) return;
    shown = state;
    element.hidden = !state;
    if (state === "waiting") await compare();
    else put(element, h("h2", {}, "Rebuilt"), h("p", { role: "status" }, STATES[state] ?? ""));
  }

  async function compare() {
    const found = await attempt(element, () => read(path(["views", name, "rebuilt"]), signal), { signal });
    if (found?.comparison) put(element, comparison(found));
  }

  function comparison({ rebuild, comparison: compared }) {
    const button = h("button", { type: "button", class: "danger", onclick: () => begin(rebuild, compared) }, icon("check"), "Show the rebuilt rows");
    return [
      h("header", {}, h("h2", {}, "Rebuilt, and held back"), may("admin") && button),
      h("p", { role: "status" }, inWords(compared)),
      compared.columns && h("p", {}, `Columns: ${compared.columns}.`),
      newer(compared),
      differences(view, compared),
    ];
  }

  async function begin(rebuild, compared) {
    const done = await askTyped({
      title: `Show the rebuilt ${name}?`, word: name, action: "Show",
      about: `Readers see the rebuilt rows from then on, and the old ones are dropped. ${inWords(compared)}`,
      submit: () => change("POST", path(["views", name, "switch"]), { rebuild }).then(() => true),
    });
    if (done) notify("The rebuilt rows will be shown in a moment.");
  }

  return { element, refresh };
}

function inWords({ shown_rows, rebuilt_rows, changed, added, removed }) {
  return `${count(shown_rows, "row")} shown, ${number(rebuilt_rows)} rebuilt: ${number(changed)} changed, ${number(added)} new, ${number(removed)} gone.`;
}

function newer({ shown_at, rebuilt_at }) {
  let records = 0;
  for (const [topic, ends] of Object.entries(rebuilt_at)) {
    for (const [partition, end] of Object.entries(ends)) records += Math.max(0, end - (shown_at[topic]?.[partition] ?? 0));
  }
  return records > 0 && h("p", { class: "muted" }, `The rebuilt rows reflect ${count(records, "record")} more, so rows may also differ because of these.`);
}

function differences({ name, columns }, { differences: listed, changed, added, removed }) {
  const all = changed + added + removed;
  const types = new Map(columns.map((column) => [column.name, column.type]));
  const words = (row) => Object.entries(row).map(([field, value]) => `${field} ${cell(value, types.get(field))}`).join(", ");
  const made = table({
    caption: `Rows of ${name} that differ`, key: (each) => JSON.stringify(each.key), empty: "No row differs.",
    columns: [
      { id: "kind", title: "", fill: fillKind },
      ...Object.keys(listed[0]?.key ?? {}).map((field) => ({ id: field, title: field, text: ({ key }) => cell(key[field], types.get(field)) })),
      { id: "shown", title: "Shown", text: (each) => words(fields(each, each.shown, each.rebuilt)), wide: true },
      { id: "rebuilt", title: "Rebuilt", text: (each) => words(fields(each, each.rebuilt, each.shown)), wide: true },
    ],
  });
  made.update(listed);
  return [made.element, all > listed.length && h("p", { class: "muted" }, `The first ${number(listed.length)} of ${number(all)}.`)];
}

/** The fields of a row beside its key; only those that differ from the `other` row, where there is one. */
function fields({ key }, row, other) {
  return Object.fromEntries(Object.entries(row ?? {}).filter(([name, value]) =>
    !(name in key) && (!other || JSON.stringify(other[name]) !== JSON.stringify(value))));
}

function fillKind(element, { shown, rebuilt }) {
  const [word, tone] = KINDS[!shown ? "added" : !rebuilt ? "removed" : "changed"];
  put(element, h("span", { class: `tag is-${tone}` }, word));
}
