// Tabs: one of several contents at a time; arrow keys move between them.

import { h } from "../dom.js";

/** Tabs of [{ title, content }]; the first is shown. */
export function tabs(label, entries) {
  const id = `tab-${Math.random().toString(36).slice(2)}`;
  const buttons = entries.map(({ title }, index) => h("button", {
    type: "button", role: "tab", id: `${id}-${index}`, "aria-controls": `${id}-panel-${index}`, onclick: () => choose(index),
  }, title));
  const contents = entries.map(({ content }, index) => h("div", { role: "tabpanel", id: `${id}-panel-${index}`, "aria-labelledby": `${id}-${index}`, class: "tab-content" }, content));
  const bar = h("div", { class: "tabs", role: "tablist", "aria-label": label, onkeydown: onKey }, buttons);

  function choose(chosen, { focus = false } = {}) {
    buttons.forEach((button, index) => {
      button.setAttribute("aria-selected", String(index === chosen));
      button.tabIndex = index === chosen ? 0 : -1;
      contents[index].hidden = index !== chosen;
    });
    if (focus) buttons[chosen].focus();
  }

  function onKey(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    choose((buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length, { focus: true });
  }

  choose(0);
  return h("div", { class: "tabbed" }, bar, contents);
}
