// A view as a picture that moves: asks for rows again whenever the view says that it changed.

import { h, put, say } from "../dom.js";
import { path, read } from "../api.js";
import { chartOf, chartOrder, overTime, ranking } from "../charting.js";
import { time } from "../format.js";
import { versionOf } from "../model.js";
import { rankingChart, timeChart } from "./chart.js";
import { empty, problemBox } from "./notice.js";

const ROWS = 400;

/**
 * The picture of `view`. `refresh(view)` reads the rows again if the view changed since; one request
 * at a time. `options.shape` and `options.measure` override what fits by itself.
 */
export function viewChart(view, { signal, height = 190, options = {}, onrows = () => {} }) {
  const fit = chartOf(view);
  const chosen = { shape: options.shape ?? fit.shape, measure: options.measure ?? fit.measures[0] };
  const about = h("p", { class: "chart-about muted" });
  const place = h("div", { class: "chart-place" });
  const element = h("div", { class: "view-chart" }, about, place);
  const state = { version: null, loading: false, again: null, rows: [], marks: new Set(), chart: null, closed: NaN };

  async function refresh(now, { force = false } = {}) {
    const version = versionOf(now);
    if (version === state.version && !force) return;
    if (state.loading) {
      state.again = now;
      return;
    }
    state.loading = true;
    try {
      const page = await read(path(["views", view.name, "rows"], { order: chartOrder(fit), limit: ROWS }), signal);
      markCorrections(page.rows, now);
      state.version = version;
      state.rows = page.rows;
      onrows(page);
      draw();
    } catch (error) {
      if (!signal.aborted) put(place, problemBox(error));
      state.chart = null;
    }
    state.loading = false;
    const { again } = state;
    state.again = null;
    if (again) refresh(again);
  }

  /** A row whose window had closed before, and whose number is another now, was corrected. */
  function markCorrections(rows, now) {
    const before = new Map(state.rows.map((row) => [keyOf(row), row]));
    for (const row of rows) {
      const known = before.get(keyOf(row));
      if (known && Date.parse(row.window_end) <= state.closed && known[chosen.measure] !== row[chosen.measure]) state.marks.add(Date.parse(row[fit.time]));
    }
    state.closed = Date.parse(now.watermark);
  }

  const keyOf = (row) => JSON.stringify(view.key.map((name) => row[name]));

  function draw() {
    if (chosen.shape === "none") {
      put(place, empty("Nothing to chart", "This view has no numeric column; see its rows below."));
    } else if (!state.rows.length) {
      put(place, empty("No rows yet", "They appear when the first window closes, that is, when the watermark passes its end."));
      state.chart = null;
    } else if (chosen.shape === "ranking") {
      drawRanking();
    } else {
      drawTimes();
    }
  }

  function ensure(shape, make) {
    if (state.chart?.shape !== shape) {
      state.chart = { shape, ...make() };
      put(place, state.chart.element);
    }
    return state.chart;
  }

  function drawTimes() {
    const chart = ensure("time", () => timeChart({ label: `${view.name}: ${chosen.measure}`, height }));
    chart.update({ ...overTime(state.rows, fit, chosen.measure), marks: state.marks }, { shape: chosen.shape });
    say(about, chosen.measure);
  }

  function drawRanking() {
    const chart = ensure("ranking", () => rankingChart({ label: `${view.name}: ${chosen.measure}` }));
    const { at, bars } = ranking(state.rows, fit, chosen.measure, { kind: view.kind });
    chart.update(bars);
    say(about, at === null ? chosen.measure : `${chosen.measure}, ${view.kind === "hopping" ? "window from" : "newest at"} ${time(at)}`);
  }

  return {
    element,
    fit,
    refresh,
    /** Draws the same rows another way. */
    choose(shape, measure) {
      Object.assign(chosen, { shape, measure });
      draw();
    },
    chosen,
  };
}
