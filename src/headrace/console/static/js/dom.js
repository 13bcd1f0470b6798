// Elements from code. Everything the page shows goes through here, and data only ever as text:
// there is no way in this module, and none elsewhere, from a string to markup.

const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open", "selected", "indeterminate"]);
const FORBIDDEN = new Set(["style", "srcdoc", "innerHTML", "outerHTML"]);

/**
 * An element with attributes, listeners (`onclick: function`) and children.
 * Children are nodes, or values shown as text; null, undefined and false are left out.
 */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** As `h`, for SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) set(element, name, value);
  append(element, children);
  return element;
}

function set(element, name, value) {
  if (value === undefined || value === null) return;
  if (FORBIDDEN.has(name)) throw new Error(`attribute ${name} is not allowed`);
  if (name.startsWith("on")) {
    if (typeof value !== "function") throw new Error(`${name} must be a function`);
    element.addEventListener(name.slice(2), value);
  } else if (PROPERTIES.has(name) && name in element) {
    element[name] = value;
  } else if (name === "href") {
    element.setAttribute(name, safeHref(value));
  } else if (value === true) {
    element.setAttribute(name, "");
  } else if (value !== false) {
    element.setAttribute(name, String(value));
  }
}

/** Links lead to this page or this server, never where data says. */
function safeHref(value) {
  const text = String(value);
  if (!/^(#|\/(?!\/))/.test(text)) throw new Error(`a link must begin with # or /: ${text}`);
  return text;
}

/** Adds children: nodes as they are, lists flattened, everything else as text. */
export function append(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** Replaces everything inside an element. */
export function put(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** Sets text only where it differs, so that a selection or a screen reader is not disturbed. */
export function say(element, text) {
  const wanted = String(text ?? "");
  if (element.textContent !== wanted) element.textContent = wanted;
  return element;
}

/**
 * Makes the children of `parent` those of `items`, keeping the elements of keys that stay.
 * `make(item)` gives a new element, `update(element, item)` brings one up to date.
 * Focus and selection inside elements that stay are kept.
 */
export function keyed(parent, items, key, make, update = () => {}) {
  const before = parent.keyedElements ?? new Map();
  const after = new Map();
  for (const item of items) {
    const id = key(item);
    const element = before.get(id) ?? make(item);
    update(element, item);
    after.set(id, element);
  }
  for (const [id, element] of before) if (!after.has(id)) element.remove();
  let place = parent.firstChild;
  for (const element of after.values()) {
    if (element === place) place = place.nextSibling;
    else parent.insertBefore(element, place);
  }
  parent.keyedElements = after;
}

/** Calls `work` once in the next frame however often it is asked for; nothing happens after `signal` aborts. */
export function perFrame(work, signal) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      if (!signal?.aborted) work();
    });
  };
}
