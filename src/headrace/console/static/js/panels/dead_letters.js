// Dead letters: records that could not be read, why, and sending them again.

import { h, put, say } from "../dom.js";
import { icon } from "../icons.js";
import { change, path, read } from "../api.js";
import { watch } from "../live.js";
import { link } from "../router.js";
import { count, oneLine, time } from "../format.js";
import { headersOf } from "../model.js";
import { may } from "../user.js";
import { askFor } from "../parts/dialog.js";
import { attempt, empty, heading, notify } from "../parts/notice.js";
import { table } from "../parts/table.js";
import { facts, valueBlock } from "../parts/value.js";

const PAGE = 200;

const idOf = (letter) => `${letter.topic}:${letter.partition}:${letter.offset}`;

export async function show({ root, signal }) {
  const state = { letters: [], next: null, chosen: new Set(), turn: 0 };
  const trouble = h("div", {});
  const none = h("div", {});
  const detail = h("aside", { class: "record-detail", "aria-label": "The chosen letter", tabindex: "0" }, empty("No letter chosen", "Choose one to see why it died."));
  const all = h("input", { type: "checkbox", "aria-label": "Select all shown", onchange: () => selectAll(all.checked) });
  const redrive = h("button", { type: "button", class: "primary", disabled: true, onclick: sendAgain }, icon("rebuild"), h("span", {}, "Send again"));
  const search = h("input", { type: "search", placeholder: "Filter by reason or value", "aria-label": "Filter by reason or value", oninput: draw });
  const letters = table({
    caption: "Dead letters", key: idOf, empty: "None holds that.", choose: (letter) => put(detail, letterDetail(letter)),
    columns: [
      { id: "pick", title: "", fill: fillPick },
      { id: "at", title: "When", text: (each) => time(each.timestamp) },
      { id: "source", title: "Came from", text: sourceText, mono: true },
      { id: "reason", title: "Reason", text: (each) => each.reason ?? "no reason given", wide: true },
      { id: "value", title: "Value", text: (each) => oneLine(each.value, 120), mono: true, wide: true },
      { id: "again", title: "", fill: fillAgain },
    ],
  });
  letters.element.querySelector("th").append(all);
  const further = h("button", { type: "button", hidden: true, onclick: () => load(state.next) }, "Further letters");
  const body = h("div", { class: "records" }, h("div", { class: "record-list" }, letters.element, further), detail);
  const toolbar = h("div", { class: "toolbar" }, search, may("writer") && redrive);
  put(root, heading("Dead letters", "Records that could not be read, with the reason and where they stood. Sent again they go to the topic they came from."), trouble, none, toolbar, body);

  function shown() {
    const wanted = search.value.trim().toLowerCase();
    return state.letters.filter((each) => !wanted || `${each.reason} ${each.error ?? ""} ${oneLine(each.value, 5_000)} ${sourceText(each)}`.toLowerCase().includes(wanted));
  }

  function draw() {
    const there = state.letters.length > 0;
    put(none, there ? null : empty("No dead letters", "Every record so far could be read. One that cannot appears here with its reason; the pipeline goes on meanwhile."));
    toolbar.hidden = !there;
    body.hidden = !there;
    letters.update(shown());
    redrive.disabled = !state.chosen.size;
    say(redrive.lastChild, state.chosen.size ? `Send ${count(state.chosen.size, "letter")} again` : "Send again");
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
      title: `Send ${count(chosen.length, "letter")} again?`, action: "Send again", fields: [],
      about: "Each goes to the topic it came from, with the key and value that it has. What made it die must be mended first, or it comes back here.",
      submit: () => change("POST", path(["dead-letters", "redrive"]), { letters: chosen.map(({ topic, partition, offset }) => ({ topic, partition, offset })) }),
    });
    if (!answer) return;
    notify(`${count(answer.sent, "letter")} sent again.`, answer.skipped ? { next: `${count(answer.skipped, "letter")} did not say where they came from and stay.` } : {});
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

const sourceText = ({ source }) => (source ? `${source.topic}:${source.partition}@${source.offset}` : "unknown");

function fillAgain(cell, letter) {
  const tag = cell.firstElementChild ?? cell.appendChild(h("span", { class: "tag is-ok" }, "sent again"));
  tag.hidden = !(letter.redriven);
}

function letterDetail(letter) {
  const { source } = letter;
  const headers = headersOf(letter);
  return [
    h("h2", {}, `${letter.topic}:${letter.partition}@${letter.offset}`),
    facts([
      ["Reason", letter.reason], ["Error", letter.error && h("code", {}, letter.error)],
      ["Came from", source && h("a", { href: link(["topics", source.topic], { partition: source.partition, offset: source.offset }) }, sourceText(letter))],
      ["Died", time(letter.timestamp)], ["Given up by", letter.owner], ["Key", letter.key === null || letter.key === undefined ? null : h("code", {}, oneLine(letter.key, 2_000))],
    ]),
    headers.length ? [h("h3", {}, "Headers"), facts(headers.map(([name, value]) => [name, h("code", {}, value === null ? "null" : oneLine(value, 2_000))]))] : null,
    h("h3", {}, "Value"), valueBlock(letter.value, letter.encoding),
  ];
}
