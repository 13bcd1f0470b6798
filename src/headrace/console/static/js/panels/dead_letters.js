// Dead letters: records that could not be read, why, and sending them again.

import { h, put, say } from "../dom.js";
import { icon } from "../icons.js";
import { change, path, read } from "../api.js";
import { watch } from "../live.js";
import { link } from "../router.js";
import { bytes, count, oneLine, time } from "../format.js";
import { headersOf } from "../model.js";
import { may } from "../user.js";
import { askFor } from "../parts/dialog.js";
import { attempt, empty, heading, notify } from "../parts/notice.js";
import { table } from "../parts/table.js";
import { facts, valueBlock } from "../parts/value.js";

const PAGE = 200;
const REASONS = 12; // the most frequent; the rest is found by searching

const idOf = (letter) => `${letter.topic}:${letter.partition}:${letter.offset}`;

export async function show({ root, signal }) {
  const state = { letters: [], next: null, chosen: new Set(), turn: 0 };
  const trouble = h("div", {});
  const none = h("div", {});
  const detail = h("aside", { class: "record-detail", "aria-label": "Selected dead letter", tabindex: "0" }, empty("No dead letter selected", "Select one to see its reason."));
  const all = h("input", { type: "checkbox", "aria-label": "Select all shown", onchange: () => selectAll(all.checked) });
  const redrive = h("button", { type: "button", class: "primary", disabled: true, onclick: sendAgain }, icon("rebuild"), h("span", {}, "Redrive"));
  const search = h("input", { type: "search", placeholder: "Filter by reason or value", "aria-label": "Filter by reason or value", oninput: draw });
  const letters = table({
    caption: "Dead letters", key: idOf, empty: "No dead letter matches.", choose: (letter) => put(detail, letterDetail(letter)),
    columns: [
      { id: "pick", title: "", fill: fillPick },
      { id: "at", title: "When", text: (each) => time(each.timestamp) },
      { id: "source", title: "Source", text: sourceText, mono: true },
      { id: "reason", title: "Reason", text: said, wide: true },
      { id: "value", title: "Value", text: (each) => oneLine(each.value, 120), mono: true, wide: true },
      { id: "again", title: "", fill: fillAgain },
    ],
  });
  letters.element.querySelector("th").append(all);
  const further = h("button", { type: "button", hidden: true, onclick: () => load(state.next) }, "Load more");
  const body = h("div", { class: "records" }, h("div", { class: "record-list" }, letters.element, further), detail);
  const reasons = h("div", { class: "toolbar", role: "group", "aria-label": "Reasons of the dead letters shown" });
  const toolbar = h("div", { class: "toolbar" }, search, may("writer") && redrive);
  put(root, heading("Dead letters", "Records that could not be processed, with the reason and their source. Redriving sends them back to their source topic."), trouble, none, toolbar, reasons, body);

  function shown() {
    const wanted = search.value.trim().toLowerCase();
    return state.letters.filter((each) => !wanted || `${each.reason} ${each.error ?? ""} ${oneLine(each.value, 5_000)} ${sourceText(each)}`.toLowerCase().includes(wanted));
  }

  function draw() {
    const there = state.letters.length > 0;
    put(none, there ? null : empty("No dead letters", "Every record so far was processed. One that cannot be appears here with its reason, while the pipeline continues."));
    toolbar.hidden = !there;
    reasons.hidden = !there;
    put(reasons, ...byReason(state.letters).map(([reason, letters]) => h("button", { type: "button", onclick: () => choose(reason) }, `${reason} (${letters})`)));
    body.hidden = !there;
    letters.update(shown());
    redrive.disabled = !state.chosen.size;
    say(redrive.lastChild, state.chosen.size ? `Redrive ${count(state.chosen.size, "dead letter")}` : "Redrive");
  }

  /** Shows the letters of one reason; chosen again, all of them. */
  function choose(reason) {
    search.value = search.value === reason ? "" : reason;
    draw();
  }

  function fillPick(cell, letter) {
    const box = cell.firstElementChild ?? cell.appendChild(h("input", { type: "checkbox", onchange: () => pick(cell.letter, box.checked) }));
    cell.letter = letter;
    box.checked = state.chosen.has(idOf(letter));
    box.setAttribute("aria-label", `Select ${idOf(letter)}`);
  }

  function pick(letter, on) {
    if (on) state.chosen.add(idOf(letter));
    else state.chosen.delete(idOf(letter));
    draw();
  }

  function selectAll(on) {
    for (const letter of shown()) state.chosen[on ? "add" : "delete"](idOf(letter));
    draw();
  }

  async function sendAgain() {
    const chosen = state.letters.filter((letter) => state.chosen.has(idOf(letter)));
    const answer = await askFor({
      title: `Redrive ${count(chosen.length, "dead letter")}?`, action: "Redrive", fields: [],
      about: "Each is sent to its source topic with its key and value. Fix the cause first, or it comes back here.",
      submit: () => change("POST", path(["dead-letters", "redrive"]), { letters: chosen.map(({ topic, partition, offset }) => ({ topic, partition, offset })) }),
    });
    if (!answer) return;
    notify(`${count(answer.sent, "dead letter")} redriven.`, answer.skipped ? { next: `${count(answer.skipped, "dead letter")} skipped: the source is unknown, or the original record is gone.` } : {});
    state.chosen.clear();
    all.checked = false;
    await load();
  }

  /** Reads the first letters, or those behind the ones shown; of two readings at a time the later one counts. */
  async function load(cursor = null) {
    const turn = ++state.turn;
    const page = await attempt(trouble, () => read(path(["dead-letters"], { limit: PAGE, cursor }), signal), { signal });
    if (!page || turn !== state.turn) return;
    state.letters = cursor ? [...state.letters, ...page.letters] : page.letters;
    state.next = page.next ?? null;
    further.hidden = !state.next;
    draw();
  }

  await load();
  let known = null;
  watch(({ status }) => {
    const ends = Object.entries(status.topics ?? {}).filter(([name]) => name.endsWith(".dead")).map(([, each]) => each.end).join();
    if (known !== ends) load(); // at the first time too: something may have come since it was read
    known = ends;
  }, signal);
}

/** Why a letter is dead: its error begins with the reason that it shares with others, or stands beside it. */
function said({ reason, error }) {
  if (!error) return reason ?? "no reason given";
  return !reason || error.startsWith(reason) ? error : reason;
}

/** Reasons with the number of letters of each, most frequent first. */
function byReason(letters) {
  const counts = new Map();
  for (const { reason } of letters) counts.set(reason ?? "no reason given", (counts.get(reason ?? "no reason given") ?? 0) + 1);
  return [...counts].sort((one, other) => other[1] - one[1]).slice(0, REASONS);
}

const sourceText = ({ source }) => (source ? `${source.topic}:${source.partition}@${source.offset}` : "unknown");

function fillAgain(cell, letter) {
  const tag = cell.firstElementChild ?? cell.appendChild(h("span", { class: "tag is-ok" }, "redriven"));
  tag.hidden = !(letter.redriven);
}

function letterDetail(letter) {
  const { source } = letter;
  const headers = headersOf(letter);
  return [
    h("h2", {}, `${letter.topic}:${letter.partition}@${letter.offset}`),
    facts([
      ["Reason", said(letter)], ["Error", letter.error && !letter.error.startsWith(letter.reason ?? "") && h("code", {}, letter.error)],
      ["Truncated", letter.truncated ? `${bytes(letter.truncated)} in total; the whole record is at its source` : null],
      ["Source", source && h("a", { href: link(["topics", source.topic], { partition: source.partition, offset: source.offset }) }, sourceText(letter))],
      ["Time", time(letter.timestamp)], ["Given up by", letter.owner], ["Key", letter.key === null || letter.key === undefined ? null : h("code", {}, oneLine(letter.key, 2_000))],
    ]),
    headers.length ? [h("h3", {}, "Headers"), facts(headers.map(([name, value]) => [name, h("code", {}, value === null ? "null" : oneLine(value, 2_000))]))] : null,
    h("h3", {}, "Value"), valueBlock(letter.value, letter.encoding),
  ];
}
