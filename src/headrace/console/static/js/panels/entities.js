// Entities: the types, the entities of one, and the timeline of an entity with its state at every step.

import { h, put, say } from "../dom.js";
import { path, read } from "../api.js";
import { go, link } from "../router.js";
import { count, exact, number, oneLine, time } from "../format.js";
import { command, attempt, empty, heading, problemBox } from "../parts/notice.js";
import { table } from "../parts/table.js";
import { facts, valueBlock } from "../parts/value.js";

const PAGE = 100;
const SEAL = '"sealed:'; // how a sealed value begins
const SEALED = "Personal fields stay sealed here: events show them as they are on the log, and states are made as if they had been forgotten.";

export function show(place) {
  const [type, entity] = place.parts;
  if (entity !== undefined) return showEntity(place, type, entity);
  return type === undefined ? showTypes(place) : showType(place, type);
}

const crumbs = (...links) => h("p", { class: "crumbs" }, links.map(([text, parts], index) => [index ? " / " : null, h("a", { href: link(parts) }, text)]));

// --- types and lists ----------------------------------------------------------------------------

async function showTypes({ root, signal }) {
  const { types } = await read(path(["entities"]), signal);
  put(root, heading("Entities", "What an application keeps as events: every change of an entity, who asked for it, and by which command."));
  if (!types.length) {
    root.append(empty("No entity types", "An application declares them with app.entity, and serves them with:", command("headrace serve app.py")));
    return;
  }
  const list = table({
    caption: "Entity types", key: (each) => each.type, order: { column: "type", descending: false },
    columns: [
      { id: "type", title: "Type", value: (each) => each.type, text: (each) => each.type, href: (each) => link(["entities", each.type]) },
      { id: "commands", title: "Commands", text: (each) => each.commands.join(", "), wide: true },
      { id: "personal", title: "Personal fields", text: (each) => (each.personal ? "sealed" : "none") },
    ],
  });
  root.append(list.element);
  list.update(types);
}

async function showType({ root, query, signal }, type) {
  const state = { entities: [], next: null, turn: 0 };
  const trouble = h("div", {});
  const words = h("span", { class: "muted", role: "status" });
  const prefix = h("input", { type: "search", placeholder: "Id begins with", "aria-label": "Id begins with", value: query.get("prefix") ?? "", oninput: () => load() });
  const further = h("button", { type: "button", hidden: true, onclick: () => load(state.next) }, "Load more");
  const list = table({
    caption: `Entities of type ${type}`, key: (each) => each.entity, empty: "No entity matches.",
    columns: [
      { id: "entity", title: "Entity", text: (each) => each.entity, href: (each) => link(["entities", type, each.entity]), wide: true },
      { id: "version", title: "Version", text: (each) => number(each.version), end: true, about: "How many events it has" },
    ],
  });
  const form = h("form", { class: "toolbar", "aria-label": "Find an entity", onsubmit: (event) => {
    event.preventDefault();
    if (prefix.value) go(["entities", type, prefix.value]);
  } }, prefix, h("button", { type: "submit" }, "Open"), words);
  put(root, crumbs(["Entities", ["entities"]]), heading(type, "Every entity that something has happened to."), form, trouble, list.element, further);

  async function load(after = null) {
    const turn = ++state.turn;
    const page = await attempt(trouble, () => read(path(["entities", type], { prefix: prefix.value, after, limit: PAGE }), signal), { signal });
    if (!page || turn !== state.turn) return;
    state.entities = after ? [...state.entities, ...page.entities] : page.entities;
    state.next = page.next;
    further.hidden = !page.next;
    say(words, count(page.count, "entity", "entities"));
    list.update(state.entities);
  }

  await load();
}

// --- one entity ---------------------------------------------------------------------------------

async function showEntity({ root, query, signal }, type, entity) {
  const state = { events: [], states: new Map(), why: null, chosen: null, topic: "" };
  const trouble = h("div", {});
  const detail = h("aside", { class: "record-detail", "aria-label": "Selected event", tabindex: "0" });
  const older = h("button", { type: "button", hidden: true, onclick: () => load(state.events.at(-1).version - 1) }, "Load older events");
  const fresh = h("span", { class: "muted" });
  const events = table({
    caption: `Timeline of ${entity}`, key: (event) => String(event.version), choose,
    columns: [
      { id: "version", title: "Version", text: (event) => number(event.version), end: true },
      { id: "at", title: "When", text: (event) => time(event.at), hint: (event) => exact(event.at) },
      { id: "event", title: "Event", text: (event) => event.type },
      { id: "data", title: "Data", text: (event) => oneLine(withoutSeals(event.data), 120), mono: true, wide: true },
      { id: "command", title: "Command", text: (event) => event.command.name ?? event.command.id },
      { id: "by", title: "By", text: (event) => event.by ?? "" },
    ],
  });
  put(root, crumbs(["Entities", ["entities"]], [type, ["entities", type]]),
    heading(entity, null, fresh, h("button", { type: "button", onclick: () => load() }, "Refresh")), trouble,
    h("div", { class: "records" }, h("div", { class: "record-list" }, events.element, older), detail));

  function choose(event) {
    state.chosen = event;
    for (const row of events.body.children) row.toggleAttribute("aria-selected", false);
    const row = [...events.body.children].find((each) => each.item === event);
    row?.setAttribute("aria-selected", "true");
    put(detail, eventDetail(event, state));
  }

  async function load(to = null) {
    const page = await attempt(trouble, () => read(path(["entities", type, entity, "history"], { to, limit: PAGE }), signal), { signal });
    if (!page) return;
    const newest = [...page.events].reverse();
    state.topic = page.topic;
    state.events = to ? [...state.events, ...newest] : newest;
    older.hidden = !state.events.length || state.events.at(-1).version === 1;
    say(fresh, `${type}, version ${number(page.version)}`);
    if (!state.events.length) {
      put(detail, empty("Nothing has happened", `There is no ${type} with this id yet, or its events are not committed.`));
    }
    events.update(state.events);
    if (!to && state.events.length) {
      const wanted = state.events.find((each) => String(each.version) === query.get("version")) ?? state.events[0];
      choose(wanted);
    }
    if (newest.length) loadStates(newest.at(-1).version, newest[0].version);
  }

  /** States are made by the application's code, which takes a moment: the events do not wait for them. */
  async function loadStates(from, to) {
    try {
      const page = await read(path(["entities", type, entity, "history"], { states: true, from, to, limit: PAGE }), signal);
      for (const event of page.events) state.states.set(event.version, event);
    } catch (error) {
      if (signal.aborted) return;
      state.why = error;
    }
    if (state.chosen) put(detail, eventDetail(state.chosen, state));
  }

  await load();
}

function eventDetail(event, { topic, states, why }) {
  const step = states.get(event.version);
  const { partition, offset } = event;
  return [
    h("h2", {}, `Version ${number(event.version)}: ${event.type}`),
    facts([
      ["Time", h("span", { title: exact(event.at) }, time(event.at, { millis: true }))], ["By", event.by],
      ["Command", event.command.name], ["Command id", h("code", {}, event.command.id)],
      ["Cause", event.cause && h("code", {}, event.cause)],
      ["Correlation", event.correlation && event.correlation !== event.command.id && h("code", {}, event.correlation)],
      ["Record", h("a", { href: link(["topics", topic], { partition, offset }) }, `${topic}:${partition}@${offset}`)],
    ]),
    h("h3", {}, "Event"), valueBlock(event.data),
    h("h3", {}, "Changed"), step ? changesOf(step.changed) : stateless(why),
    step && [h("h3", {}, "State after it"), valueBlock(step.state)],
    JSON.stringify(event.data).includes(SEAL) && h("p", { class: "note muted" }, SEALED),
  ];
}

const short = (value) => oneLine(JSON.stringify(value) ?? "none", 200);

/** The same data for a line of a list, where a sealed value is only told to be one. */
function withoutSeals(data) {
  return JSON.parse(JSON.stringify(data ?? null, (_, value) => (typeof value === "string" && value.startsWith("sealed:") ? "sealed" : value)));
}

function stateless(why) {
  return why ? problemBox(why) : h("p", { class: "muted", role: "status" }, "The application's code is making the states…");
}

function changesOf(changed) {
  const entries = Object.entries(changed);
  if (!entries.length) return h("p", { class: "muted" }, "Nothing of the state.");
  return facts(entries.map(([name, [before, after]]) => [name || "state", h("code", {}, `${short(before)} → ${short(after)}`)]));
}
