// Tables that change under the reader without losing focus, selection or order.

import { h, keyed, say } from "../dom.js";

/**
 * A table of rows. A column has `title`, and one of `text(row)`, or `fill(cell, row)`, which must be
 * harmless when repeated; optionally `href(row)` beside `text`, `value(row)` to sort by, `end` (right
 * aligned), `mono`, `wide`. `update(rows)` brings it up to date; `key(row)` says which row is which.
 * With `onsort(column, descending)` the order is somebody else's; `choose(row)` makes rows buttons.
 */
export function table({ caption, columns, key, order = null, onsort = null, choose = null, empty = "Nothing here." }) {
  const state = { order, rows: [], chosen: null };
  const body = h("tbody", {});
  const none = h("p", { class: "table-empty", hidden: true }, empty);
  const heads = columns.map((column) => head(column, state, (changed) => sortBy(changed)));
  const element = h("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, h("tr", {}, heads.map((each) => each.element))), body),
    none);

  function sortBy(column) {
    const descending = state.order?.column === column.id ? !state.order.descending : Boolean(column.end);
    state.order = { column: column.id, descending };
    for (const each of heads) each.mark(state.order);
    if (onsort) onsort(column.id, descending);
    else update(state.rows);
  }

  function update(rows) {
    state.rows = rows;
    none.hidden = rows.length > 0;
    keyed(body, onsort ? rows : sorted(rows, columns, state.order), key, make, fill);
  }

  function make() {
    const row = h("tr", {}, columns.map((column) => h("td", { class: classes(column) })));
    if (choose) makeChoosable(row);
    return row;
  }

  function makeChoosable(row) {
    row.tabIndex = 0;
    row.classList.add("choosable");
    row.addEventListener("click", (event) => event.target.closest("a, button, input") || pick(row));
    row.addEventListener("keydown", (event) => {
      if (event.target === row && (event.key === "Enter" || event.key === " ")) {
        event.preventDefault();
        pick(row);
      } else if (event.target === row && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
        event.preventDefault();
        (event.key === "ArrowDown" ? row.nextElementSibling : row.previousElementSibling)?.focus();
      }
    });
  }

  function pick(row) {
    for (const each of body.querySelectorAll("[aria-selected]")) each.removeAttribute("aria-selected");
    row.setAttribute("aria-selected", "true");
    choose(row.item);
  }

  function fill(row, item) {
    row.item = item;
    columns.forEach((column, index) => fillCell(row.children[index], column, item));
  }

  for (const each of heads) each.mark(state.order);
  return { element, update, body, order: () => state.order };
}

function head(column, state, sortBy) {
  const sortable = Boolean(column.value);
  const content = sortable
    ? h("button", { type: "button", class: "sort", onclick: () => sortBy(column) }, column.title, h("span", { class: "arrow", "aria-hidden": "true" }))
    : column.title;
  const element = h("th", { scope: "col", class: column.end ? "end" : "", title: column.about }, content);
  return {
    element,
    mark(order) {
      if (!sortable) return;
      const own = order?.column === column.id;
      element.setAttribute("aria-sort", own ? (order.descending ? "descending" : "ascending") : "none");
    },
  };
}

function fillCell(cell, column, item) {
  if (column.fill) {
    column.fill(cell, item);
  } else if (column.href) {
    const anchor = cell.firstElementChild ?? cell.appendChild(h("a", {}));
    const href = column.href(item);
    if (anchor.getAttribute("href") !== href) anchor.setAttribute("href", href.startsWith("#") ? href : "#");
    say(anchor, column.text(item));
  } else {
    say(cell, column.text(item));
  }
  if (column.hint) cell.title = column.hint(item) ?? "";
}

const classes = (column) => [column.end && "end", column.mono && "mono", column.wide && "wide"].filter(Boolean).join(" ");

/** Rows in a column's order; those that are equal stay as they were. Pure. */
export function sorted(rows, columns, order) {
  const column = order && columns.find((each) => each.id === order.column);
  if (!column?.value) return rows;
  const sign = order.descending ? -1 : 1;
  return [...rows].sort((one, other) => sign * compare(column.value(one), column.value(other)));
}

function compare(one, other) {
  if (one === other) return 0;
  if (one === null || one === undefined) return -1;
  if (other === null || other === undefined) return 1;
  if (typeof one === "string") return one.localeCompare(String(other), "en", { numeric: true });
  return one < other ? -1 : 1;
}
