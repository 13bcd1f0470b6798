// Overview: what comes in, what it becomes, how fresh that is, and what needs a hand.

import { h, keyed, put, say } from "../dom.js";
import { icon } from "../icons.js";
import { path, read } from "../api.js";
import { topicRate, topicRates, watch } from "../live.js";
import { renewWithApplication } from "../renewing.js";
import { link } from "../router.js";
import { count, number, rate, short, span } from "../format.js";
import { asView, sendingOf } from "../model.js";
import { may } from "../user.js";
import { command, empty, heading, problemBox } from "../parts/notice.js";
import { drawSpark, spark } from "../parts/spark.js";
import { sendForm } from "../parts/send.js";
import { viewChart } from "../parts/view_chart.js";
import { alertList } from "../parts/alert_list.js";
import { showFreshness } from "../parts/freshness.js";

export async function show({ root, signal }) {
  const [pipelines, listed] = await Promise.all([
    read(path(["pipelines"]), signal).catch(kept), read(path(["views"]), signal).catch(kept),
  ]);
  const application = pipelines.application ?? null;
  const views = (listed.views ?? []).map(asView);
  const canSend = Boolean(application?.streams?.length) && may("writer");
  const alerts = alertList();
  const tiles = h("div", { class: "tiles" });
  const charts = h("div", { class: "cards", id: "charts" });
  put(root, heading(application ? `Overview of ${application.name}` : "Overview",
    application ? "Incoming records, the views made from them, and how fresh they are." : "The log only; there is no application in this data folder.", canSend && toSend(application.streams[0])),
  alerts.element, tiles,
  h("div", { class: "overview-columns" }, h("section", { "aria-label": "Views" }, charts), canSend && sendCard(application.streams, views, signal)));
  if (!pipelines.problem) renewWithApplication(pipelines, signal);
  const failed = pipelines.problem ?? listed.problem;
  if (failed) root.append(problemBox(failed));
  if (!views.length) charts.append(noViews(application));
  const shown = new Map(views.map((view) => [view.name, viewCard(view, signal)]));
  charts.append(...[...shown.values()].map((card) => card.element));
  for (const view of views) shown.get(view.name).update(view);
  watch(({ status }) => {
    alerts.update(status.alerts ?? []);
    updateTiles(tiles, tilesOf(status, application));
    for (const view of status.views ?? []) shown.get(view.name)?.update(view);
  }, signal);
}

/** A part that failed leaves the others standing. */
function kept(error) {
  if (error.name === "AbortError" || error.status === 401) throw error;
  return { problem: error };
}

function noViews(application) {
  if (application) return empty("No views yet", "This application has no view in a store that the console can read.");
  return empty("No application yet",
    "Views, charts and the pipeline appear once an application runs with this console's data folder:",
    command("headrace run app.py"), "or try the demo:", command("headrace demo"));
}

function viewCard(view, signal) {
  const chart = viewChart(view, { signal });
  const fresh = h("span", { class: "fresh" });
  const counters = h("span", { class: "muted" });
  const element = h("article", { class: "card", "data-view": view.name },
    h("header", {}, h("h2", {}, h("a", { href: link(["views", view.name]) }, view.name)), fresh),
    view.doc && h("p", { class: "muted" }, view.doc), chart.element, h("footer", {}, h("span", { class: "muted" }, view.window ?? view.kind), counters));
  return {
    element,
    update(now) {
      showFreshness(fresh, now);
      say(counters, countersText(now.counters));
      chart.refresh(now);
    },
  };
}

function countersText(counters) {
  if (!counters) return "";
  const parts = [["on time", counters.on_time], ["corrected", counters.corrected], ["dropped", counters.dropped]];
  return parts.filter(([name, value]) => value || name === "on time").map(([name, value]) => `${short(value ?? 0)} ${name}`).join(" · ");
}

function tilesOf(status, application) {
  const streams = (application?.streams ?? []).map((stream) => stream.topic);
  const topics = streams.length ? streams : Object.keys(status.topics ?? {}).filter((name) => !name.startsWith("__"));
  const rates = topics.map(topicRate).filter((value) => value !== null);
  const coming = rates.length ? rates.reduce((sum, value) => sum + value, 0) : null;
  const fresh = (status.views ?? []).map((view) => view.freshness_s).filter((value) => typeof value === "number");
  const worst = (status.groups ?? []).filter((each) => each.lag_records !== null).sort((one, other) => (other.lag_records ?? 0) - (one.lag_records ?? 0))[0];
  const counters = (status.views ?? []).map((view) => view.counters ?? {});
  const sum = (name) => counters.reduce((total, each) => total + (each[name] ?? 0), 0);
  return [
    { id: "in", title: "Incoming", value: rate(coming), about: streams.length ? count(streams.length, "stream") : count(topics.length, "topic"),
      href: link(["topics"]), trend: summed(topics.map(topicRates)) },
    { id: "fresh", title: "Oldest view", value: fresh.length ? span(Math.max(...fresh)) : "–", about: count(fresh.length, "view"), href: link(["views"]) },
    { id: "lag", title: "Largest lag", value: worst ? number(worst.lag_records) : "–", about: worst?.group ?? "no groups", href: link(["groups"]) },
    { id: "late", title: "Late records", value: short(sum("corrected") + sum("dropped")), about: `${short(sum("corrected"))} corrected, ${short(sum("dropped"))} dropped`, href: link(["late"]) },
    { id: "dead", title: "Dead letters", value: number(deadOf(status)), about: "waiting", href: link(["dead-letters"]), tone: deadOf(status) ? "warn" : "" },
  ];
}

const deadOf = (status) => status.dead_letters?.waiting ?? null;

/** Rates of several topics added up, by the number of the sample. */
function summed(lists) {
  const longest = lists.reduce((best, list) => (list.length > best.length ? list : best), []);
  return longest.map(([at], index) => [at, lists.reduce((sum, list) => sum + (list[list.length - longest.length + index]?.[1] ?? 0), 0)]);
}

function updateTiles(place, tiles) {
  keyed(place, tiles, (tile) => tile.id, (tile) => h("a", { class: "tile", href: tile.href },
    h("span", { class: "tile-title" }, tile.title), h("b", { class: "tile-value" }), h("span", { class: "tile-about muted" }), tile.trend && spark(`${tile.title}, lately`)),
  (element, tile) => {
    element.className = `tile ${tile.tone ? `is-${tile.tone}` : ""}`;
    say(element.children[1], tile.value);
    say(element.children[2], tile.about);
    if (tile.trend) drawSpark(element.children[3], tile.trend);
  });
}

/** On narrow windows the form stands below the charts; this leads there. */
function toSend(stream) {
  return h("button", {
    type: "button", class: "to-send",
    onclick: () => {
      const card = document.querySelector(".send-card");
      card.scrollIntoView({ block: "start" });
      card.querySelector("input, select")?.focus({ preventScroll: true });
    },
  }, icon("send"), sendingOf(stream.topic));
}

function sendCard(streams, views, signal) {
  return h("aside", { class: "card send-card", "aria-label": "Send a record" },
    h("header", {}, h("h2", {}, icon("send"), "Send a record")),
    h("p", { class: "muted" }, "It is written to the log like that of any other client, and appears in the views."),
    sendForm({ streams, views: () => views, signal }));
}
