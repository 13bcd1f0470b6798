// The panels, in the order of the navigation: the one place to add a panel.
//
// A panel is a line here and a module in panels/ that exports `show(place)`, where `place` has
// `root` (an empty element), `parts` and `query` of the address, and `signal`, which aborts when
// the reader goes elsewhere. `role` hides it from those whom the server would refuse; `badge` counts.

export const PANELS = [
  { id: "", title: "Overview", icon: "overview", group: "Now", module: "./panels/overview.js" },
  { id: "pipeline", title: "Pipeline", icon: "pipeline", group: "Now", module: "./panels/pipeline.js" },
  { id: "views", title: "Views", icon: "views", group: "Now", module: "./panels/views.js" },
  { id: "entities", title: "Entities", icon: "entities", group: "Now", module: "./panels/entities.js" },
  { id: "alerts", title: "Alerts", icon: "alerts", group: "Now", module: "./panels/alerts.js", badge: alertCount },
  { id: "topics", title: "Topics", icon: "topics", group: "Log", module: "./panels/topics.js" },
  { id: "groups", title: "Groups", icon: "groups", group: "Log", module: "./panels/groups.js" },
  { id: "captures", title: "Captures", icon: "captures", group: "Log", module: "./panels/captures.js" },
  { id: "late", title: "Late", icon: "late", group: "Operations", module: "./panels/late.js" },
  { id: "dead-letters", title: "Dead letters", icon: "dead", group: "Operations", module: "./panels/dead_letters.js", badge: deadCount },
  { id: "rebuild", title: "Rebuild", icon: "rebuild", group: "Operations", module: "./panels/rebuild.js", role: "admin" },
  { id: "audit", title: "Audit", icon: "audit", group: "Operations", module: "./panels/audit.js", role: "admin" },
];

/** The panel of an address; the first one where there is none of that name. */
export const panelOf = (parts) => PANELS.find((panel) => panel.id === (parts[0] ?? "")) ?? PANELS[0];

function alertCount(status) {
  return status.alerts?.length ?? 0;
}

function deadCount(status) {
  return status.dead_letters?.waiting ?? 0;
}
