// Audit: every change through this console, by whom, from where, and how it ended.

import { h, put, say } from "../dom.js";
import { path, read } from "../api.js";
import { exact, oneLine, time } from "../format.js";
import { attempt, empty, heading } from "../parts/notice.js";
import { table } from "../parts/table.js";
import { valueBlock } from "../parts/value.js";

const PAGE = 100;

export async function show({ root, signal }) {
  const trouble = h("div", {});
  const detail = h("div", { class: "under" });
  const entries = table({
    caption: "Changes", key: (each) => `${each.partition}@${each.offset}`, order: null,
    choose: (each) => put(detail, h("h2", {}, "Full entry"), valueBlock(each)),
    columns: [
      { id: "at", title: "When", text: (each) => time(each.at), hint: (each) => exact(each.at) },
      { id: "who", title: "Who", text: (each) => each.who ?? "" },
      { id: "from", title: "From", text: (each) => each.from ?? "", mono: true },
      { id: "action", title: "What", text: (each) => each.action ?? "", mono: true, wide: true },
      { id: "target", title: "Target", text: (each) => oneLine(each.target ?? "", 120), mono: true },
      { id: "outcome", title: "Outcome", fill: fillOutcome },
    ],
  });
  const none = h("div", {});
  const further = h("button", { type: "button", hidden: true, onclick: () => load() }, "Older entries");
  put(root, heading("Audit", "Every change made through this console is a record in the topic __headrace_audit, newest first."), trouble, none, entries.element, further, detail);
  const state = { entries: [], next: null };

  async function load() {
    const page = await attempt(trouble, () => read(path(["audit"], { limit: PAGE, cursor: state.next }), signal), { signal });
    if (!page) return;
    state.entries.push(...page.entries);
    state.next = page.next ?? null;
    further.hidden = !state.next;
    entries.element.hidden = !state.entries.length;
    put(none, state.entries.length ? null : empty("No changes yet", "Creating a topic, sending a record, redriving and rebuilding each leave an entry here."));
    entries.update(state.entries);
  }

  await load();
}

function fillOutcome(cell, entry) {
  const tag = cell.firstElementChild ?? cell.appendChild(h("span", {}));
  tag.className = `tag is-${entry.status >= 200 && entry.status < 300 ? "ok" : "bad"}`;
  say(tag, `${entry.outcome ?? ""} ${entry.status ?? ""}`.trim());
}
