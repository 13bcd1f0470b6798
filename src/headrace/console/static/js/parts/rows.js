// A list of any length, of which only what is seen has elements: thousands of topics, or a tail.

import { h, perFrame } from "../dom.js";

const SPARE = 8; // rows above and below the visible ones

/**
 * Rows of one height. `make()` gives an empty row, `fill(row, item, index)` shows an item in it; rows
 * are used again for other items. `open(item)` is called on Enter or a click, `move(item)` when arrow keys,
 * Home, End or Page keys made another row the active one. The number of elements depends on the height
 * of the frame only.
 */
export function virtualRows({ label, height, make, fill, open, move = () => {}, head = null }) {
  const inner = h("div", { class: "rows-inner", role: "rowgroup" });
  const element = h("div", { class: "rows", role: "grid", tabindex: "0", "aria-label": label },
    head && h("div", { class: "rows-head", role: "row", "aria-rowindex": "1" }, head), inner);
  const pool = [];
  const state = { items: [], active: -1 };
  const id = `rows-${Math.random().toString(36).slice(2)}`;
  const draw = perFrame(render);

  function render() {
    const offset = element.scrollTop;
    const first = Math.max(0, Math.floor(offset / height) - SPARE);
    const last = Math.min(state.items.length, Math.ceil((offset + element.clientHeight) / height) + SPARE);
    while (pool.length < last - first) pool.push(newRow());
    pool.forEach((row, place) => show(row, first + place, last));
    mark();
  }

  function newRow() {
    const row = make();
    row.setAttribute("role", "row");
    row.classList.add("rows-row");
    row.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey) return;
      activate(row.index, { scroll: false });
      open?.(state.items[row.index], row.index);
    });
    inner.append(row);
    return row;
  }

  function show(row, index, last) {
    row.index = index;
    row.hidden = index >= last;
    if (row.hidden) return;
    row.id = `${id}-${index}`;
    row.style.transform = `translateY(${index * height}px)`;
    row.setAttribute("aria-rowindex", String(index + (head ? 2 : 1)));
    fill(row, state.items[index], index);
  }

  function mark() {
    for (const row of pool) row.setAttribute("aria-selected", String(!row.hidden && row.index === state.active));
    if (state.active >= 0) element.setAttribute("aria-activedescendant", `${id}-${state.active}`);
    else element.removeAttribute("aria-activedescendant");
  }

  function activate(index, { scroll = true } = {}) {
    if (!state.items.length) return;
    state.active = Math.min(state.items.length - 1, Math.max(0, index));
    if (scroll) reveal(state.active);
    render();
  }

  function reveal(index) {
    const top = index * height;
    const room = element.clientHeight - (head ? height : 0);
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + room) element.scrollTop = top + height - room;
  }

  function onKey(event) {
    const page = Math.max(1, Math.floor(element.clientHeight / height) - 2);
    const moves = {
      ArrowDown: state.active + 1, ArrowUp: state.active - 1, PageDown: state.active + page,
      PageUp: state.active - page, Home: 0, End: state.items.length - 1,
    };
    if (event.key in moves) {
      event.preventDefault();
      activate(moves[event.key]);
      move(state.items[state.active]);
    } else if (event.key === "Enter" && state.active >= 0) {
      event.preventDefault();
      open?.(state.items[state.active], state.active);
    }
  }

  element.addEventListener("scroll", draw, { passive: true });
  element.addEventListener("keydown", onKey);
  new ResizeObserver(draw).observe(element);

  return {
    element,
    /** Shows other items; the active row keeps its place in the list. */
    update(items, { active = state.active } = {}) {
      state.items = items;
      state.active = Math.min(active, items.length - 1);
      inner.style.height = `${items.length * height}px`;
      element.setAttribute("aria-rowcount", String(items.length + (head ? 1 : 0)));
      render();
    },
    render,
    activate,
    active: () => state.active,
  };
}
