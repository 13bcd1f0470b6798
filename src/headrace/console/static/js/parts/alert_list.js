// Alerts that hold now, worst first.

import { h, keyed, say } from "../dom.js";
import { icon } from "../icons.js";
import { ago } from "../format.js";
import { announce } from "./notice.js";

const TONES = { critical: "bad", error: "bad", warning: "warn", info: "ok" };

/** A list of alerts; `update(alerts)` brings it up to date and says aloud what is new. */
export function alertList() {
  const element = h("ul", { class: "alert-list", "aria-label": "Alerts" });
  let known = null;
  return {
    element,
    update(alerts) {
      const ids = new Set(alerts.map(idOf));
      const fresh = known ? alerts.filter((each) => !known.has(idOf(each))) : [];
      if (fresh.length) announce(`Alert: ${titleOf(fresh[0])}`);
      known = ids;
      keyed(element, alerts, idOf, make, fill);
    },
  };
}

/** What tells one alert from another. */
export const idOf = (alert) => alert.id ?? `${alert.kind ?? ""} ${alert.title ?? ""} ${alert.subject ?? ""}`;
export const titleOf = (alert) => alert.title ?? alert.text ?? alert.message ?? alert.kind ?? "";

function make() {
  return h("li", {}, icon("warning"), h("div", {}, h("p", { class: "alert-title" }), h("p", { class: "muted" }), h("p", { class: "alert-next" })), h("time", { class: "muted" }));
}

function fill(element, alert) {
  element.className = `alert is-${TONES[alert.severity] ?? "warn"}`;
  const [title, detail, next] = element.children[1].children;
  say(title, titleOf(alert));
  say(detail, alert.detail ?? "");
  detail.hidden = !alert.detail;
  say(next, alert.next ?? "");
  next.hidden = !alert.next;
  say(element.lastChild, alert.since ? ago(alert.since) : "");
}
