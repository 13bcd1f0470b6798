// A value as it was decoded, laid out for reading. Nodes only: nothing in a value becomes markup.

import { h } from "../dom.js";

const MOST_NODES = 2_000; // a value of a megabyte must not freeze the page

/** JSON with colours and indentation, text as it is, bytes as base64 with a word on it. */
export function valueBlock(value, encoding = "") {
  if (encoding === "base64") {
    return h("div", {}, h("p", { class: "muted" }, "Not text; its bytes in base64:"), h("pre", { class: "value" }, String(value)));
  }
  if (value === null || value === undefined) return h("pre", { class: "value" }, h("span", { class: "v-null" }, "null"));
  if (typeof value === "string") return h("pre", { class: "value" }, value);
  const left = { nodes: MOST_NODES };
  const block = h("pre", { class: "value" }, parts(value, "", left));
  if (left.nodes <= 0) block.append(h("span", { class: "muted" }, "\n… the rest is left out; the API has it whole"));
  return block;
}

function parts(value, indent, left) {
  left.nodes -= 1;
  if (left.nodes <= 0) return ["…"];
  if (Array.isArray(value)) return listed("[", "]", value.map((each) => [null, each]), indent, left);
  if (value !== null && typeof value === "object") return listed("{", "}", Object.entries(value), indent, left);
  return [h("span", { class: `v-${value === null ? "null" : typeof value}` }, JSON.stringify(value))];
}

function listed(begin, end, entries, indent, left) {
  if (!entries.length) return [begin + end];
  const inner = `${indent}  `;
  const made = [begin];
  entries.forEach(([name, each], index) => {
    if (left.nodes <= 0) return;
    made.push(`\n${inner}`);
    if (name !== null) made.push(h("span", { class: "v-name" }, JSON.stringify(name)), ": ");
    made.push(...parts(each, inner, left));
    if (index < entries.length - 1) made.push(",");
  });
  return [...made, `\n${indent}`, end];
}

/** Names and values side by side; what has no value is left out. `inline` lays them out in a line. */
export function facts(entries, { inline = false } = {}) {
  const known = entries.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  return h("dl", { class: inline ? "facts inline" : "facts" }, known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}
