// Late: of everything that came, what was on time, what corrected a result, what was dropped; per view and window.

import { h, keyed, put, say } from "../dom.js";
import { path, read } from "../api.js";
import { watch } from "../live.js";
import { link } from "../router.js";
import { number, span, time } from "../format.js";
import { empty, heading } from "../parts/notice.js";
import { table } from "../parts/table.js";

const PARTS = [["on_time", "on time", "ok"], ["corrected", "corrected", "warn"], ["dropped", "dropped", "bad"]];

export async function show({ root, signal }) {
  const summary = h("div", { class: "late-views" });
  const windows = table({
    caption: "Late records by window", order: { column: "window", descending: true }, empty: "No window has corrected results or dropped records.",
    key: (each) => `${each.view} ${each.window_start} ${each.window_end}`,
    columns: [
      { id: "view", title: "View", value: (each) => each.view, text: (each) => each.view, href: (each) => link(["views", each.view]), wide: true },
      { id: "window", title: "Window", value: (each) => each.window_start ?? "", text: windowText },
      { id: "corrected", title: "Results corrected", value: (each) => each.corrected, text: (each) => number(each.corrected), end: true, about: "Results that were published again; one may include several late records" },
      { id: "dropped", title: "Records dropped", value: (each) => each.dropped, text: (each) => number(each.dropped), end: true },
      { id: "most", title: "Late by, at most", value: (each) => each.late_by_s ?? -1, text: (each) => span(each.late_by_s), end: true, about: "By how much the latest dropped record was late" },
    ],
  });
  const none = h("div", {});
  const where = h("p", { class: "muted" });
  const detail = h("section", { hidden: true }, h("h2", {}, "By window"), where, windows.element);
  put(root, heading("Late", "Records in = on time + corrected + dropped, exactly. A late record corrects its window, or is dropped, counted and kept in the late topic."), none, summary, detail);

  async function load() {
    const late = await read(path(["late"]), signal);
    const { views } = late;
    put(none, views.length ? null : empty("No windows", "Windowed views show here which records were on time and which were late."));
    showCounters(views);
    windows.update(late.windows);
    detail.hidden = !views.length;
    put(where, late.topic ? ["Dropped records are in ", h("a", { href: link(["topics", late.topic]) }, late.topic), ", each with the window it missed."] : null);
  }

  function showCounters(views) {
    keyed(summary, views, (each) => each.view, makeBar, fillBar);
  }

  await load();
  let version = null;
  watch(async ({ status }) => {
    const now = JSON.stringify((status.views ?? []).map((view) => view.counters));
    if (now === version) return;
    version = now;
    await load().catch(() => {}); // at the first time too: something may have come since; the next change tries again
  }, signal);
}

function windowText(each) {
  if (!each.window_start) return "–";
  return `${time(each.window_start)} to ${time(each.window_end)}`;
}

function makeBar(view) {
  return h("article", { class: "card late-view" }, h("h2", {}, h("a", { href: link(["views", view.view]) }, view.view)),
    h("div", { class: "split", role: "img" }, PARTS.map(([, , tone]) => h("span", { class: `is-${tone}` }))),
    h("dl", { class: "split-legend" }, PARTS.map(([, name, tone]) => h("div", {}, h("dt", {}, h("span", { class: `dot is-${tone}`, "aria-hidden": "true" }), name), h("dd", {})))), h("p", { class: "muted" }));
}

function fillBar(element, { counters }) {
  const counts = PARTS.map(([name]) => counters[name] ?? 0);
  const total = counts.reduce((sum, each) => sum + each, 0);
  const [, bar, legend, beside] = element.children;
  bar.setAttribute("aria-label", PARTS.map(([, name], index) => `${name} ${number(counts[index])}`).join(", "));
  counts.forEach((each, index) => {
    bar.children[index].style.flexGrow = String(each);
    bar.children[index].hidden = !each;
    say(legend.children[index].lastChild, `${number(each)}${total ? ` (${share(each, total)})` : ""}`);
  });
  say(beside, besideText(counters));
}

/** Records that never came to a window are told beside it. */
function besideText({ filtered, dead, repeated, declared, skipped }) {
  const parts = [
    filtered && `${number(filtered)} filtered out by the view`,
    dead && `${number(dead)} dead`,
    repeated && `${number(repeated)} redriven that had been counted before`,
    declared && `${number(declared)} watermark declarations`,
    skipped && `${number(skipped)} offsets deleted by retention before they were read`,
  ];
  return parts.filter(Boolean).length ? `Also: ${parts.filter(Boolean).join(", ")}.` : "";
}

/** A share that never calls something nothing, nor not quite all everything. */
function share(part, total) {
  const percent = (part / total) * 100;
  if (part && percent < 0.1) return "<0.1%";
  if (part < total && percent > 99.9) return ">99.9%";
  const digits = (percent > 0 && percent < 10) || (percent > 90 && percent < 100) ? 1 : 0;
  return `${percent.toFixed(digits)}%`;
}
