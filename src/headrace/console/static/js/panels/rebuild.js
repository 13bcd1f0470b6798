// Rebuild: every view again from the start of the log, with progress; readers see the old rows until then.
// Rebuilt views that are compared first wait here until somebody has decided.

import { h, keyed, put, say } from "../dom.js";
import { icon } from "../icons.js";
import { change, path, read } from "../api.js";
import { live, watch } from "../live.js";
import { renewWithApplication } from "../renewing.js";
import { link } from "../router.js";
import { number, span, time } from "../format.js";
import { may } from "../user.js";
import { askTyped } from "../parts/dialog.js";
import { command, empty, heading, notify } from "../parts/notice.js";

export async function show({ root, signal }) {
  const pipelines = await read(path(["pipelines"]), signal);
  const name = pipelines.application?.name;
  renewWithApplication(pipelines, signal);
  const button = h("button", { type: "button", class: "danger", onclick: () => begin(name) }, icon("rebuild"), "Rebuild all views");
  const state = h("p", { class: "rebuild-state", role: "status" });
  const bars = h("div", { class: "bars" });
  const waiting = h("section", { class: "card", "aria-label": "Compared before they are shown" });
  put(root, heading("Rebuild", "Reads the log from its start and rebuilds every view. Readers see the old rows until the new ones are ready; no webhooks or mail are sent again."));
  if (!name) {
    root.append(empty("No application", "There is nothing to rebuild until one runs with this console's data folder:", command("headrace run app.py")));
    return;
  }
  root.append(h("section", { class: "card" }, h("h2", {}, name), state, bars, may("admin") && h("div", { class: "actions" }, button)), waiting);
  const update = (now) => {
    const progress = progressOf(now);
    say(state, stateText(now));
    button.disabled = isRebuilding(now) || !now.running;
    keyed(bars, progress, (each) => each.name, makeBar, fillBar);
  };
  update(pipelines);
  watch(({ status }) => {
    if (status.pipelines) update(status.pipelines);
    showWaiting(waiting, status.rebuilds ?? {});
  }, signal);
}

const isRebuilding = ({ rebuild, queries }) => Boolean(rebuild && !rebuild.done_at) || queries.some((query) => query.state === "rebuilding");

/** Per query how far it is of where it must come: while a rebuild runs to its targets, else to the log's end. */
function progressOf({ rebuild, queries }) {
  return queries.map(({ name, state, positions }) => {
    const targets = (rebuild && !rebuild.done_at && rebuild.targets[name]) || live.status?.topics?.[name]?.partitions || {};
    return { name, state, ...counted(positions, targets) };
  });
}

function counted(positions, targets) {
  let [done, all] = [0, 0];
  for (const [partition, target] of Object.entries(targets)) {
    all += target;
    done += Math.min(target, positions[partition] ?? 0);
  }
  return { done, all };
}

function stateText(pipelines) {
  const { rebuild } = pipelines;
  if (isRebuilding(pipelines)) return `Rebuilding${rebuild ? ` since ${time(rebuild.began_at * 1000)}` : ""}. Readers see the old rows until the new ones are ready.`;
  if (rebuild?.done_at) return `Rebuilt at ${time(rebuild.done_at * 1000)}, in ${span(rebuild.done_at - rebuild.began_at)}.`;
  return pipelines.running ? "Not rebuilt since the driver started." : "The driver is not running. Start it with headrace run FILE; add --rebuild to rebuild all views.";
}

function makeBar() {
  return h("div", { class: "bar-row" }, h("span", { class: "bar-name" }), h("progress", { max: "1", value: "0" }), h("span", { class: "muted" }), h("span", { class: "tag" }));
}

function fillBar(element, { name, state, done, all }) {
  const [title, bar, words, tag] = element.children;
  say(title, name);
  bar.value = all ? done / all : 0;
  bar.setAttribute("aria-label", `${name}: ${number(done)} of ${number(all)}`);
  say(words, all ? `${number(done)} of ${number(all)}` : "");
  tag.className = `tag is-${state === "running" ? "ok" : state === "failed" ? "bad" : "warn"}`;
  say(tag, state ?? "");
}

const STATES = { rebuilding: ["being rebuilt", "warn"], waiting: ["waits for a decision", "warn"], switching: ["about to be shown", "ok"] };

/** The rebuilt views that are compared before they are shown; each links to what differs. */
function showWaiting(element, rebuilds) {
  const views = Object.entries(rebuilds).sort();
  const seen = JSON.stringify(views);
  if (element.dataset.seen === seen) return; // what has the focus keeps it
  element.dataset.seen = seen;
  element.hidden = !views.length;
  put(element, h("h2", {}, "Compared before they are shown"), h("ul", {}, views.map(([view, state]) => {
    const [words, tone] = STATES[state] ?? [state, "unknown"];
    return h("li", {}, h("a", { href: link(["views", view]) }, view), " ", h("span", { class: `tag is-${tone}` }, words));
  })));
}

async function begin(name) {
  const done = await askTyped({
    title: `Rebuild ${name}?`, word: name, action: "Rebuild",
    about: "Every query starts over from the start of the log. This takes as long as reading the log; the views stay readable.",
    submit: () => change("POST", path(["pipelines", "rebuild"]), { confirm: name }).then(() => true),
  });
  if (done) notify("The rebuild was requested; its progress is shown below.");
}
