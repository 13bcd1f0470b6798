// The changes of a view as they come, corrections marked: what a row was, and what it is.

import { h, perFrame, put, say } from "../dom.js";
import { icon } from "../icons.js";
import { path } from "../api.js";
import { cell, oneLine } from "../format.js";
import { empty } from "./notice.js";

const KEPT = 60;
const KINDS = {
  close: ["result", "ok"], update: ["update", "unknown"], correction: ["corrected", "warn"], retraction: ["retracted", "bad"],
};

/** Follows the view's changes until `signal` aborts; `onchange` is called with each, `corrects` told. */
export function viewChanges(view, { signal, onchange }) {
  const state = { changes: [], paused: false, waiting: [], word: "Connecting" };
  const list = h("ol", { class: "changes", "aria-label": `Changes of ${view.name}` });
  const status = h("span", { class: "muted" });
  const button = h("button", { type: "button", class: "quiet", onclick: toggle });
  const none = h("div", {});
  const element = h("div", {}, h("header", { class: "section-head" }, h("h2", {}, "Changes"), status, button), none, list);

  const draw = perFrame(() => {
    say(status, state.paused ? `Paused, ${state.waiting.length} waiting` : state.word);
    put(button, icon(state.paused ? "play" : "pause"), state.paused ? "Resume" : "Pause");
    put(none, state.changes.length ? null : empty("No change yet", "Every row that changes appears here; corrections are marked."));
    list.replaceChildren(...state.changes.map((change) => (change.element ??= changeItem(view, change))));
  }, signal);

  function toggle() {
    state.paused = !state.paused;
    if (!state.paused) {
      keep(state.waiting);
      state.waiting = [];
    }
    draw();
  }

  function keep(changes) {
    state.changes = [...[...changes].reverse(), ...state.changes].slice(0, KEPT);
  }

  function come(changes) {
    for (const change of changes) {
      change.corrects = change.kind === "correction" || change.kind === "retraction";
      onchange(change);
    }
    if (state.paused) state.waiting = [...state.waiting, ...changes].slice(-KEPT);
    else keep(changes);
    draw();
  }

  const source = new EventSource(path(["views", view.name, "changes"]));
  source.addEventListener("changes", (event) => come(JSON.parse(event.data).changes));
  source.addEventListener("reset", () => {
    state.changes = [];
    state.word = "The view was rebuilt, or changes are no longer kept";
    draw();
  });
  source.onopen = () => { state.word = "Live"; draw(); };
  source.onerror = () => { state.word = source.readyState === EventSource.CLOSED ? "This store keeps no changes" : "Reconnecting"; draw(); };
  signal.addEventListener("abort", () => source.close(), { once: true });
  draw();
  return { element };
}

function changeItem(view, change) {
  const [word, tone] = KINDS[change.kind] ?? [String(change.kind), "unknown"];
  const types = new Map(view.columns.map((column) => [column.name, column.type]));
  const shownKey = Object.entries(change.key ?? {}).filter(([name]) => name !== "window_end").map(([name, value]) => cell(value, types.get(name))).join(" · ");
  return h("li", { class: "change" }, h("span", { class: `tag is-${tone}` }, word), h("span", { class: "change-key" }, shownKey), h("span", { class: "change-what" }, differences(view, change, types)));
}

/** The columns that differ, as before → after; all measures where a row is new. */
function differences(view, { before, after }, types) {
  const names = Object.keys(after ?? before ?? {}).filter((name) => !view.key.includes(name) && name !== "window_end" && name !== "window_start");
  if (!after) return "gone";
  return names.filter((name) => !before || oneLine(before[name]) !== oneLine(after[name])).map((name) => h("span", { class: "difference" },
    h("span", { class: "muted" }, `${name} `), before && h("del", {}, cell(before[name], types.get(name))), before && " → ", h("b", {}, cell(after[name], types.get(name)))));
}
