// How far a view is behind the log.

import { say } from "../dom.js";
import { count, span } from "../format.js";

const STALE_S = 30;

/** Shows it in an element: by the clock, and in its title by records not yet in the view. */
export function showFreshness(element, view) {
  const behind = view.lag_records ?? 0;
  const known = typeof view.freshness_s === "number";
  element.className = `fresh is-${!known ? "unknown" : view.freshness_s > STALE_S ? "warn" : "ok"}`;
  say(element, known ? (behind ? `${span(view.freshness_s)} behind` : "up to date") : view.problem ? "not readable" : "no batch yet");
  element.title = view.problem ?? (known ? `${count(behind, "record")} not in the view yet; the oldest has waited ${span(view.freshness_s)}` : "");
}
