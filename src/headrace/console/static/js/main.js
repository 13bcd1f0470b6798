// The frame of the page: navigation, the state of log and driver, the theme, and which panel is shown.

import { append, h, keyed, put, say } from "./dom.js";
import { icon } from "./icons.js";
import { change, onUnauthorised, read } from "./api.js";
import { connect, disconnect, live, watch } from "./live.js";
import { current, link } from "./router.js";
import { PANELS, panelOf } from "./panels.js";
import { notifyProblem, problemBox } from "./parts/notice.js";
import { may, setUser, user } from "./user.js";

const main = document.getElementById("main");
let leaving = new AbortController();
const badges = new Map();
let asking = false; // while the login is shown

async function showPanel({ focus = true } = {}) {
  const { parts, query } = current();
  const panel = panelOf(parts);
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  document.title = `${parts[1] ? `${parts[1]} · ` : ""}${panel.title} · Headrace`;
  markCurrent(panel);
  try {
    const { show } = await import(panel.module);
    if (signal.aborted) return;
    const root = h("div", { class: `panel panel-${panel.id || "overview"}` }, h("p", { class: "loading muted" }, "Loading…"));
    put(main, root);
    await show({ root, parts: parts.slice(1), query, signal });
  } catch (error) {
    if (signal.aborted) return;
    put(main, problemBox(error));
  }
  if (focus && !signal.aborted) main.querySelector("h1")?.focus({ preventScroll: true });
}

function buildNavigation() {
  const groups = [...new Set(PANELS.map((panel) => panel.group))];
  put(document.getElementById("side"), groups.map((group) => h("div", { class: "side-group" },
    h("h2", { class: "side-title", id: `nav-${group}` }, group),
    h("ul", { "aria-labelledby": `nav-${group}` },
      PANELS.filter((panel) => panel.group === group && may(panel.role ?? "nobody")).map(navigationItem)))));
}

function navigationItem(panel) {
  const badge = h("span", { class: "badge", hidden: true });
  const item = h("a", { href: link(panel.id ? [panel.id] : []), "data-panel": panel.id }, icon(panel.icon),
    h("span", {}, panel.title), badge);
  if (panel.badge) badges.set(panel, badge);
  return h("li", {}, item);
}

function updateBadges({ status }) {
  for (const [panel, badge] of badges) {
    const count = panel.badge(status);
    badge.hidden = !count;
    say(badge, count || "");
  }
}

function markCurrent(panel) {
  for (const item of document.querySelectorAll("#side a")) {
    if (item.dataset.panel === panel.id) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  document.querySelector('#side a[aria-current="page"]')?.scrollIntoView?.({ block: "nearest", inline: "nearest" });
}

function buildState() {
  const pills = h("div", { class: "pills" });
  append(document.getElementById("state"), [pills, themeSwitch(), h("span", { id: "user" })]);
  const update = () => keyed(pills, stateOf(live), (each) => each.name, (each) => h("span", { class: "pill" },
    h("span", { class: "dot", "aria-hidden": "true" }), h("span", { class: "pill-name" }, each.name), h("b", {})),
  (element, each) => {
    element.className = `pill is-${each.tone}`;
    element.title = each.title;
    say(element.lastChild, each.word);
  });
  update();
  watch(update);
}

function stateOf({ status, connected }) {
  if (!status || !connected) {
    return [{ name: "Live", word: status ? "reconnecting" : "connecting", tone: "warn", title: "The event stream" }];
  }
  const away = status.problems?.topics;
  const pills = [{ name: "Log", tone: away ? "bad" : "ok", word: away ? "unreachable" : "up", title: away ?? "The log is reachable" }];
  if (status.driver) {
    pills.push({
      name: "Driver", tone: status.driver.running ? "ok" : "warn", word: status.driver.running ? "running" : "not running",
      title: status.driver.running ? "headrace run is running" : "Start the application with headrace run FILE",
    });
  }
  return pills;
}

const THEMES = { system: ["system", "System"], light: ["sun", "Light"], dark: ["moon", "Dark"] };

function themeSwitch() {
  const button = h("button", { class: "quiet icon-only", type: "button", id: "theme", onclick: next });
  function next() {
    const order = Object.keys(THEMES);
    const choice = order[(order.indexOf(window.headraceTheme.choice()) + 1) % order.length];
    window.headraceTheme.choose(choice);
    shown();
  }
  function shown() {
    const [name, words] = THEMES[window.headraceTheme.choice()];
    put(button, icon(name));
    button.title = `Theme: ${words.toLowerCase()}. Click to change`;
    button.setAttribute("aria-label", button.title);
  }
  shown();
  return button;
}

async function askWho() {
  if (asking) return;
  asking = true;
  leaving.abort();
  disconnect();
  const { showLogin } = await import("./panels/login.js");
  await showLogin(put(main, h("div", { class: "panel" })).firstChild);
  asking = false;
  start();
}

async function start() {
  onUnauthorised(askWho);
  const session = await read("/v1/session").catch(() => null); // no answer: the panel says so
  if (session?.login === "needed") return askWho();
  if (session) setUser(session);
  buildNavigation();
  showUser();
  connect();
  return showPanel({ focus: false });
}

function showUser() {
  put(document.getElementById("user"), user.name && h("button", {
    class: "quiet", type: "button", title: `Signed in as ${user.name} (${user.role}). Sign out`, onclick: leave,
  }, user.name, icon("out")));
}

async function leave() {
  try {
    await change("POST", "/v1/logout");
  } catch (error) {
    notifyProblem(error);
    return;
  }
  setUser({ name: null, role: "nobody", login: "needed" });
  showUser();
  askWho();
}

/** "/" goes to the panel's search, as elsewhere. */
function onSlash(event) {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select, [contenteditable]")) return;
  const search = main.querySelector('input[type="search"]');
  if (!search) return;
  event.preventDefault();
  search.focus();
}

document.addEventListener("keydown", onSlash);
buildState();
watch(updateBadges);
watch(({ status }) => say(document.getElementById("application"), status.pipelines?.application?.name ?? ""));
window.addEventListener("hashchange", () => asking || showPanel());
start();
