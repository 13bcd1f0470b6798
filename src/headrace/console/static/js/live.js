// What moves: one stream of `status` events for the whole page, once a second, so that nothing polls.

import { unauthorised } from "./api.js";

const RETRY_MS = 2_000;
const KEPT = 120; // samples of a history: two minutes

const watchers = new Set();
const histories = new Map();

/** The newest status (null before the first), and whether the stream is open. */
export const live = { status: null, connected: false, lastAt: 0 };

/** Calls `callback(live)` whenever there is a status and it or the connection changes, and now if there is one. */
export function watch(callback, signal) {
  watchers.add(callback);
  signal?.addEventListener("abort", () => watchers.delete(callback), { once: true });
  if (live.status) callback(live);
}

function changed() {
  if (!live.status) return;
  for (const callback of [...watchers]) callback(live);
}

let source = null;

/** Opens the stream; a stream that ends for good (a restart, a refusal) is opened again. */
export function connect() {
  disconnect();
  source = new EventSource("/v1/live");
  source.addEventListener("status", (event) => {
    live.status = JSON.parse(event.data);
    live.connected = true;
    live.lastAt = Date.now();
    remember(live.status);
    changed();
  });
  source.addEventListener("problem", (event) => {
    if (JSON.parse(event.data).status === 401) unauthorised(); // the token was removed meanwhile
  });
  source.onerror = () => {
    const gone = source?.readyState === EventSource.CLOSED;
    live.connected = false;
    changed();
    if (gone) setTimeout(() => source?.readyState === EventSource.CLOSED && connect(), RETRY_MS);
  };
}

/** Closes the stream until `connect`. */
export function disconnect() {
  source?.close();
  source = null;
  live.connected = false;
}

function remember(status) {
  const now = Date.now();
  const seen = new Set();
  for (const [topic, each] of Object.entries(status.topics ?? {})) sample(seen, `topic ${topic}`, now, each.end);
  for (const group of status.groups ?? []) sample(seen, `group ${group.group}`, now, group.lag_records);
  for (const view of status.views ?? []) sample(seen, `fresh ${view.name}`, now, view.freshness_s);
  for (const name of histories.keys()) if (!seen.has(name)) histories.delete(name); // gone, and so is its past
}

function sample(seen, name, now, value) {
  seen.add(name);
  if (typeof value !== "number") return;
  const kept = histories.get(name) ?? [];
  kept.push([now, value]);
  if (kept.length > KEPT) kept.shift();
  histories.set(name, kept);
}

/** Samples of a group's lag or a view's freshness since this page was opened: [[ms, value], …]. */
export const history = (name) => histories.get(name) ?? [];

/** Records a second that came to a topic over the last few seconds; null before two samples. */
export function topicRate(topic) {
  const kept = history(`topic ${topic}`).slice(-6);
  if (kept.length < 2) return null;
  const [[began, first], [ended, last]] = [kept[0], kept[kept.length - 1]];
  return ended > began ? Math.max(0, (last - first) / ((ended - began) / 1000)) : null;
}

/** A topic's rate between samples, for a sparkline. */
export function topicRates(topic) {
  const kept = history(`topic ${topic}`);
  return kept.slice(1).map(([at, end], index) => {
    const [before, start] = kept[index];
    return [at, Math.max(0, (end - start) / Math.max(0.001, (at - before) / 1000))];
  });
}
