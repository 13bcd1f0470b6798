// Alerts that hold now, worst first.

import { h, keyed, say } from "../dom.js";
import { icon } from "../icons.js";
import { ago } from "../format.js";
import { announce } from "./notice.js";

const TONES = { critical: "bad", warning: "warn" };

/** A list of alerts; `update(alerts)` brings it up to date and says aloud what is new. */
export function alertList() {
  const element = h("ul", { class: "alert-list", "aria-label": "Alerts" });
  let known = null;
  return {
    element,
    update(alerts) {
      const ids = new Set(alerts.map((alert) => alert.id));
      const fresh = known ? alerts.filter((each) => !known.has(each.id)) : [];
      if (fresh.length) announce(`Alert: ${fresh[0].title}`);
      known = ids;
      keyed(element, alerts, (alert) => alert.id, make, fill);
    },
  };
}

function make() {
  return h("li", {}, icon("warning"), h("div", {}, h("p", { class: "alert-title" }), h("p", { class: "muted" }), h("p", { class: "alert-next" })), h("time", { class: "muted" }));
}

function fill(element, alert) {
  element.className = `alert is-${TONES[alert.severity] ?? "warn"}`;
  const [title, detail, next] = element.children[1].children;
  say(title, alert.title);
  say(detail, alert.detail);
  detail.hidden = !alert.detail;
  say(next, alert.next);
  next.hidden = !alert.next;
  say(element.lastChild, alert.since ? ago(alert.since * 1000) : "");
}
