// A record written from the page: a form per stream, made from its schema, and what became of the record.

import { h, put, say } from "../dom.js";
import { icon } from "../icons.js";
import { change, path, read } from "../api.js";
import { link } from "../router.js";
import { span } from "../format.js";
import { fieldsOf, sendingOf, templateOf, viewsOf } from "../model.js";
import { announce, problemBox } from "./notice.js";

const WAIT_MS = 30_000;

/**
 * A form that sends a record to one of `streams`, then follows it: where the log put it, and when each
 * of the stream's `views()` reflects it.
 */
export function sendForm({ streams, views, signal }) {
  const state = { stream: streams[0], asJson: false, inputs: new Map() };
  const fields = h("div", { class: "send-fields" });
  const outcome = h("div", { class: "send-outcome", "aria-live": "polite" });
  const button = h("button", { class: "primary", type: "submit" });
  const choice = streams.length > 1 && h("label", { class: "field" }, h("span", { class: "label" }, "Stream"),
    h("select", { onchange: (event) => choose(streams[event.target.selectedIndex]) },
      streams.map((stream) => h("option", {}, stream.topic))));
  const element = h("form", { class: "send", onsubmit: submit, "aria-label": "Send a record" }, choice, fields,
    h("div", { class: "actions" }, button, h("button", { type: "button", class: "quiet", onclick: () => choose(state.stream) }, "New values")), outcome);

  async function choose(stream) {
    state.stream = stream;
    put(button, icon("send"), sendingOf(stream.topic));
    const schema = fieldsOf(stream.schema);
    const seen = await examples(stream.topic, signal);
    if (signal.aborted || state.stream !== stream) return;
    const template = templateOf(schema, seen[0]);
    state.inputs = new Map(schema.map((field) => [field, inputFor(field, template[field.name], seen)]));
    if (!schema.length) state.inputs = new Map([[null, h("textarea", { rows: 6, class: "mono", value: '{\n  "text": "hello"\n}' })]]);
    put(fields, [...state.inputs].map(([field, input]) => fieldRow(field, input)));
  }

  async function submit(event) {
    event.preventDefault();
    const { topic } = state.stream;
    const began = performance.now();
    button.disabled = true;
    try {
      renew(state.inputs, isTime);
      const value = valueOf(state.inputs);
      const answer = await change("POST", path(["topics", topic, "records"]), { value }, signal);
      const { partition, offset } = answer.records[0];
      announce(`Sent: ${topic}, partition ${partition}, offset ${offset}`);
      follow(topic, partition, offset, answer.token, began);
      renew(state.inputs, isId);
    } catch (error) {
      if (!signal.aborted) put(outcome, problemBox(error));
    } finally {
      button.disabled = false;
    }
  }

  function follow(topic, partition, offset, token, began) {
    const steps = h("ol", { class: "trail" }, step("In the log", true,
      h("a", { href: link(["topics", topic], { partition, offset }) }, `${topic}:${partition}@${offset}`), performance.now() - began));
    put(outcome, steps);
    for (const view of viewsOf(views(), topic)) {
      steps.append(followView(view, token, began, signal));
    }
  }

  choose(state.stream);
  return element;
}

function followView(view, token, began, signal) {
  const item = step(view.name, false, h("a", { href: link(["views", view.name]) }, "waiting for the view"));
  read(path(["views", view.name, "rows"], { limit: 1, token, wait_ms: WAIT_MS }), signal).then(
    () => {
      item.classList.add("is-done");
      say(item.querySelector("a"), "reflects the record");
      say(item.querySelector(".muted"), `after ${span((performance.now() - began) / 1000)}`);
    },
    (error) => {
      if (!signal.aborted) say(item.querySelector("a"), error.status === 409 ? "not yet; the driver is behind or stopped" : error.message);
    });
  return item;
}

function step(name, done, what, tookMs) {
  return h("li", { class: done ? "is-done" : "" }, h("span", { class: "trail-name" }, name), " ", what,
    h("span", { class: "muted" }, tookMs === undefined ? "" : `after ${span(tookMs / 1000)}`));
}

async function examples(topic, signal) {
  try {
    const page = await read(path(["topics", topic, "records"], { from: "end-50", limit: 50 }), signal);
    return page.records.map((record) => record.value).filter((value) => value && typeof value === "object" && !Array.isArray(value)).reverse();
  } catch {
    return []; // an empty topic, or one that is not there yet: the schema is enough
  }
}

function inputFor({ name, type }, value, seen) {
  if (/^bool/.test(type)) return h("input", { type: "checkbox", checked: Boolean(value), name });
  if (/^(float|double|decimal|tinyint|smallint|int|integer|bigint|long|short|byte)/.test(type)) {
    return h("input", { type: "number", step: "any", value: String(value), name });
  }
  const text = typeof value === "string" ? value : JSON.stringify(value);
  const input = h("input", { type: "text", value: text, name, autocomplete: "off", spellcheck: "false" });
  input.made = text;
  const known = [...new Set(seen.map((each) => each[name]).filter((each) => typeof each === "string"))];
  if (/^string/.test(type) && known.length > 1 && known.length <= 12) {
    const id = `seen-${name}-${Math.random().toString(36).slice(2)}`;
    input.setAttribute("list", id);
    input.known = h("datalist", { id }, known.map((each) => h("option", { value: each })));
  }
  return input;
}

const isTime = ({ type }) => /^timestamp/.test(type);
const isId = ({ name, type }) => /(^|_)(id|uuid)$/i.test(name) && /^string/.test(type);

/** New values for the fields of a kind that the reader has not touched: a time is when it is sent, an id is used once. */
function renew(inputs, kind) {
  for (const [field, input] of inputs) {
    if (!field || !kind(field) || input.value !== input.made) continue;
    input.made = templateOf([field], null)[field.name];
    input.value = input.made;
  }
}

function fieldRow(field, input) {
  const isShort = field && (input.type !== "text" || input.known);
  return h("label", { class: isShort ? "field" : "field wide" },
    h("span", { class: "label" }, field ? field.name : "JSON", field && h("span", { class: "type" }, field.type)), input, input.known);
}

/** What the inputs hold, as JSON; raises an Error that says which one is wrong. */
function valueOf(inputs) {
  const value = {};
  for (const [field, input] of inputs) {
    if (field === null) return parsed(input.value, "the record");
    if (input.type === "checkbox") value[field.name] = input.checked;
    else if (input.type === "number") value[field.name] = input.value === "" ? null : Number(input.value);
    else if (/^(array|struct|map)/.test(field.type)) value[field.name] = parsed(input.value, field.name);
    else value[field.name] = input.value;
  }
  return value;
}

function parsed(text, what) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${what} is not JSON: ${error.message}`);
  }
}

