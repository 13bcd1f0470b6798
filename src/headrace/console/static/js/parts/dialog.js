// Dialogs: a form of few fields, or a name typed before something is destroyed.

import { h } from "../dom.js";
import { problemBox } from "./notice.js";

/**
 * Asks for `fields` and calls `submit(values)`; the dialog stays, with the reason, while that fails.
 * A field has `name`, `label`, and optionally `value`, `hint`, `type`, `required`, `must` (the only
 * text that is accepted). Resolves to what `submit` gave, or undefined when the reader gave up.
 */
export function askFor({ title, about, fields, action, danger = false, submit }) {
  return new Promise((resolve) => {
    const inputs = new Map(fields.map((field) => [field.name, inputFor(field)]));
    const failure = h("div", {});
    const go = h("button", { class: danger ? "danger" : "primary", type: "submit" }, action);
    const form = h("form", { method: "dialog", onsubmit: send },
      h("h2", { id: "dialog-title" }, title),
      about && (about instanceof Node ? about : h("p", { class: "muted" }, about)),
      fields.map((field) => labelled(field, inputs.get(field.name))), failure,
      h("div", { class: "actions" },
        h("button", { type: "button", onclick: () => finish(undefined) }, "Cancel"), go));
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "dialog-title" }, form);
    const allowed = () => fields.every((field) => !field.must || inputs.get(field.name).value === field.must);
    const judge = () => { go.disabled = !allowed(); };
    form.addEventListener("input", judge);
    dialog.addEventListener("cancel", () => finish(undefined));
    judge();

    async function send(event) {
      event.preventDefault();
      if (!allowed()) return;
      go.disabled = true;
      try {
        finish(await submit(Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()]))));
      } catch (error) {
        failure.replaceChildren(problemBox(error));
        go.disabled = false;
      }
    }

    function finish(result) {
      dialog.close();
      dialog.remove();
      resolve(result);
    }

    document.body.append(dialog);
    dialog.showModal();
    form.querySelector("input, textarea, select")?.focus();
  });
}

function inputFor(field) {
  const shared = {
    "aria-describedby": field.hint && `hint-${field.name}`,
    name: field.name, id: `ask-${field.name}`, value: field.value ?? "", required: field.required, autocomplete: "off",
    spellcheck: "false", placeholder: field.placeholder,
  };
  if (field.type === "lines") return h("textarea", { ...shared, rows: field.rows ?? 5 });
  return h("input", { ...shared, type: field.type ?? "text", min: field.min });
}

function labelled(field, input) {
  return h("div", { class: "field" }, h("label", { class: "label", for: input.id }, field.label), input,
    field.hint && h("span", { class: "hint", id: `hint-${field.name}` }, field.hint));
}

/** Asks for `word` to be typed before `submit` is called. */
export function askTyped({ title, about, word, action, submit }) {
  return askFor({
    title, about, action, danger: true, submit,
    fields: [{ name: "word", label: `Type ${word} to confirm`, must: word }],
  });
}
