// Telling the reader: what failed and what to do, what was done, what there is not yet.

import { h, say } from "../dom.js";
import { icon } from "../icons.js";

const SHOWN_MS = 6_000;

/** A failure in place of what could not be shown; with a button when trying again may help. */
export function problemBox(error, again) {
  return h("div", { class: "problem", role: "alert" }, icon("warning"), h("div", {},
    h("p", { class: "problem-title" }, error.message),
    error.next && h("p", {}, error.next),
    again && h("button", { type: "button", onclick: again }, "Try again")));
}

/** Runs `work`; a failure is shown in `place` (emptied first) unless the reader has left. */
export async function attempt(place, work, { signal } = {}) {
  place.replaceChildren();
  try {
    return await work();
  } catch (error) {
    if (!signal?.aborted && error.name !== "AbortError") place.replaceChildren(problemBox(error));
    return undefined;
  }
}

/** A short message at the edge of the page; failures stay until closed. */
export function notify(text, { tone = "ok", next = "" } = {}) {
  const close = () => box.remove();
  const box = h("div", { class: `notice is-${tone}` }, icon(tone === "ok" ? "check" : "warning"),
    h("p", {}, text, next && h("span", { class: "muted" }, ` ${next}`)),
    h("button", { class: "quiet icon-only", type: "button", "aria-label": "Close this message", onclick: close }, icon("close")));
  document.getElementById("notices").append(box);
  if (tone === "ok") setTimeout(close, SHOWN_MS);
}

/** As `notify`, for a Problem. */
export const notifyProblem = (error) => notify(error.message, { tone: "bad", next: error.next });

/** For screen readers only, and sparingly. */
export function announce(text) {
  say(document.getElementById("announcer"), text);
}

/** Nothing to show yet: why, and what to do about it. */
export function empty(title, ...body) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), body.map((each) =>
    (each instanceof Node ? each : h("p", {}, each))));
}

/** A command to type, in an empty state. */
export const command = (text) => h("pre", { class: "command" }, h("code", {}, text));

/** The head of a panel: its name, one line on what it shows, and what can be done. */
export function heading(title, about, ...actions) {
  return h("div", { class: "heading" },
    h("div", { class: "heading-text" }, h("h1", { tabindex: "-1" }, title), about && h("p", { class: "muted" }, about)),
    actions.length ? h("div", { class: "actions" }, actions) : null);
}
