// A view's rows: filtered and ordered by the server, page by page; what a correction changed is marked.

import { h, perFrame, put, say } from "../dom.js";
import { icon } from "../icons.js";
import { path, read } from "../api.js";
import { cell, count, exact, number } from "../format.js";
import { versionOf } from "../model.js";
import { may } from "../user.js";
import { problemBox } from "./notice.js";
import { table } from "./table.js";
import { askWhy } from "./trace.js";

const PAGE = 50;
const OPERATORS = [["eq", "is"], ["ne", "is not"], ["ge", "at least"], ["gt", "more than"], ["le", "at most"], ["lt", "less than"], ["prefix", "starts with"]];

/** The rows of `view`; `refresh(view)` reads the page again when the view changed, `mark(key)` marks a row. */
export function viewRows(view, signal) {
  const { columns } = view;
  const first = columns.find((column) => /timestamp/.test(column.type));
  const state = { filters: [], order: first ? `-${first.name}` : "", cursors: [""], version: null, loading: false, rows: null, marked: new Set(), told: () => {} };
  const chips = h("div", { class: "chips" });
  const trouble = h("div", {});
  const pages = pager();
  const rows = table({
    caption: `Rows of ${view.name}`, key: (row) => keyOf(view, row), empty: "No rows in the view, or none that match the filter.",
    order: first ? { column: first.name, descending: true } : null, onsort: sort,
    columns: [...columns.map((column) => ({
      id: column.name, title: column.name, about: column.type, value: (row) => row[column.name], text: (row) => cell(row[column.name], column.type),
      end: /int|double|float|decimal/.test(column.type), hint: (row) => (/timestamp/.test(column.type) ? exact(row[column.name]) : null),
    })), { id: " mark", title: "", fill: fillMark }, ...(may("writer") && view.key.length ? [{ id: " why", title: "", fill: fillWhy }] : [])],
  });
  const element = h("div", {}, filterForm(columns, add), chips, trouble, rows.element, pages.element);

  const redraw = perFrame(() => state.rows && rows.update(state.rows), signal);

  function sort(column, descending) {
    state.order = `${descending ? "-" : ""}${column}`;
    again();
  }

  function add(filter) {
    state.filters.push(filter);
    drawChips();
    again();
  }

  function drawChips() {
    put(chips, state.filters.map((filter) => h("button", {
      type: "button", class: "chip", "aria-label": `Remove the filter ${filter.words}`,
      onclick: () => { state.filters = state.filters.filter((each) => each !== filter); drawChips(); again(); },
    }, filter.words, icon("close"))));
  }

  function asked() {
    return [...state.filters.map(({ name, value }) => [name, value]), ["order", state.order]];
  }

  function again() {
    state.cursors = [""];
    state.told();
    load();
  }

  async function load() {
    if (state.loading) {
      state.again = true;
      return;
    }
    state.loading = true;
    try {
      const page = await read(path(["views", view.name, "rows"], [...asked(), ["limit", PAGE], ["cursor", state.cursors.at(-1)]]), signal);
      put(trouble);
      state.rows = page.rows;
      rows.update(page.rows);
      state.next = page.next ?? null;
      pages.update(state.cursors.length, page.rows.length, state.next);
    } catch (error) {
      if (!signal.aborted) put(trouble, problemBox(error));
    }
    state.loading = false;
    if (state.again) {
      state.again = false;
      load();
    }
  }

  function fillMark(place, row) {
    const marked = state.marked.has(keyOf(view, row));
    if (marked && !place.firstChild) place.append(h("span", { class: "tag is-warn" }, "corrected"));
    else if (!marked) place.replaceChildren();
  }

  function fillWhy(place, row) {
    place.row = row;
    if (!place.firstChild) place.append(h("button", { type: "button", class: "quiet", title: "The records behind this row", onclick: () => askWhy(view, place.row) }, "Why?"));
  }

  function pager() {
    const words = h("span", { class: "muted", role: "status" });
    const back = h("button", { type: "button", onclick: () => { state.cursors.pop(); load(); } }, "Previous page");
    const on = h("button", { type: "button", onclick: () => { state.cursors.push(state.next); load(); } }, "Next page");
    return {
      element: h("div", { class: "pager" }, back, on, words),
      update(page, shown, next) {
        back.disabled = page < 2;
        on.disabled = !next;
        say(words, `Page ${number(page)}, ${count(shown, "row")}`);
      },
    };
  }

  return {
    element,
    /** Reads again if the view is another than last time; later pages stand still while being read. */
    refresh(now) {
      const version = versionOf(now);
      if (version === state.version) return;
      const isFirst = state.version === null;
      state.version = version;
      if (isFirst || state.cursors.length === 1) load();
    },
    mark(key) {
      state.marked.add(keyOf(view, key));
      redraw(); // the row may have been read before its change was heard of
    },
    csv: () => path(["views", view.name, "rows"], [...asked(), ["format", "csv"]]),
    onasked(callback) {
      state.told = callback;
    },
  };
}

const keyOf = (view, row) => JSON.stringify(view.key.length ? view.key.map((name) => row[name]) : row);

function filterForm(columns, add) {
  const column = h("select", { "aria-label": "Column" }, columns.map(({ name }) => h("option", {}, name)));
  const operator = h("select", { "aria-label": "Comparison" }, OPERATORS.map(([value, words]) => h("option", { value }, words)));
  const value = h("input", { "aria-label": "Value", placeholder: "Value", required: true });
  return h("form", {
    class: "toolbar", "aria-label": "Filter rows",
    onsubmit: (event) => {
      event.preventDefault();
      add({ name: `${column.value}.${operator.value}`, value: value.value, words: `${column.value} ${operator.selectedOptions[0].text} ${value.value}` });
      value.value = "";
    },
  }, column, operator, value, h("button", { type: "submit" }, "Filter"));
}
