// Charts drawn by ourselves: columns or lines over time, and rankings. They follow the size of their place.

import { append, h, put, say, svg } from "../dom.js";
import { minute, number, short, time } from "../format.js";
import { ticks } from "../charting.js";

const PAD = { left: 46, right: 10, top: 10, bottom: 22 };

/**
 * A chart over time. `update({ times, series, marks })` draws; `marks` are times to mark as corrected.
 * Left and right arrow keys read it, as the pointer does.
 */
export function timeChart({ label, shape = "columns", height = 200 }) {
  const picture = svg("svg", { class: "chart", role: "img", tabindex: "0", "aria-label": label });
  const tip = h("div", { class: "tip", hidden: true });
  const legend = h("ul", { class: "legend" });
  const element = h("figure", { class: "figure" }, h("div", { class: "chart-frame" }, picture, tip), legend);
  const state = { data: { times: [], series: [] }, shape, pointed: null, geometry: null };
  picture.style.height = `${height}px`;

  function draw() {
    const width = Math.max(200, picture.clientWidth || element.clientWidth || 400);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const { times, series } = state.data;
    state.geometry = geometryOf(state.data, state.shape, width, height);
    put(picture, gridOf(state.geometry), axisOf(times, state.geometry));
    append(picture, [state.shape === "lines" ? linesOf(state.data, state.geometry) : columnsOf(state.data, state.geometry),
      marksOf(state.data, state.geometry)]);
    drawLegend(legend, series);
    picture.setAttribute("aria-label", `${label}. ${summary(state.data)}`);
    if (state.pointed !== null) point(Math.min(state.pointed, times.length - 1));
  }

  function point(index) {
    const { times, series } = state.data;
    state.pointed = index;
    tip.hidden = index === null || index < 0;
    picture.querySelector(".cross")?.remove();
    if (tip.hidden) return;
    const x = state.geometry.x(index);
    picture.append(svg("line", { class: "cross", x1: x, x2: x, y1: PAD.top, y2: height - PAD.bottom }));
    put(tip, h("p", { class: "tip-title" }, time(times[index])), series.map((each, place) => (each.values[index] === null ? null
      : h("p", {}, swatch(place), h("span", {}, each.name), h("b", {}, number(each.values[index]))))));
    tip.style.left = `${Math.min(Math.max(0, x + 12), state.geometry.width - 170)}px`;
  }

  picture.addEventListener("pointermove", (event) => {
    if (!state.data.times.length) return;
    point(state.geometry.nearest(event.clientX - picture.getBoundingClientRect().left));
  });
  picture.addEventListener("pointerleave", () => point(null));
  picture.addEventListener("blur", () => point(null));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !state.data.times.length) return;
    event.preventDefault();
    const last = state.data.times.length - 1;
    point(Math.min(last, Math.max(0, (state.pointed ?? last + (step < 0 ? 1 : 0)) + step)));
  });
  new ResizeObserver(draw).observe(element);
  return {
    element,
    update(data, { shape: wanted = state.shape } = {}) {
      state.data = data;
      state.shape = wanted;
      draw();
    },
  };
}

function geometryOf({ times, series }, shape, width, height) {
  const stacked = times.map((_, index) => series.reduce((sum, each) => sum + Math.max(0, each.values[index] ?? 0), 0));
  const all = series.flatMap((each) => each.values.filter((value) => value !== null));
  const most = Math.max(1e-9, ...(shape === "lines" ? all : stacked));
  const scale = ticks(Math.min(0, ...all), most);
  const [low, high] = [scale[0], scale[scale.length - 1]];
  const [inner, tall] = [width - PAD.left - PAD.right, height - PAD.top - PAD.bottom];
  const slot = inner / Math.max(8, times.length);
  const begin = PAD.left + inner - slot * times.length; // the newest stands at the right edge
  return {
    width, height, slot, scale,
    x: (index) => begin + slot * (index + 0.5),
    y: (value) => PAD.top + tall - ((value - low) / (high - low || 1)) * tall,
    nearest: (x) => Math.min(times.length - 1, Math.max(0, Math.round((x - begin) / slot - 0.5))),
  };
}

function gridOf({ scale, y, width }) {
  return scale.map((value) => [
    svg("line", { class: "grid", x1: PAD.left, x2: width - PAD.right, y1: y(value), y2: y(value) }),
    svg("text", { class: "axis", x: PAD.left - 6, y: y(value) + 3.5, "text-anchor": "end" }, short(value)),
  ]);
}

function axisOf(times, { x, slot, height, width }) {
  const every = Math.max(1, Math.ceil(64 / slot));
  return times.map((at, index) => ((times.length - 1 - index) % every || x(index) > width - 16 ? null
    : svg("text", { class: "axis", x: x(index), y: height - 6, "text-anchor": "middle" }, axisTime(at, times))));
}

function axisTime(at, times) {
  const step = times.length > 1 ? times[1] - times[0] : 60_000;
  return step < 60_000 ? time(at).slice(-8) : minute(new Date(at));
}

function columnsOf({ times, series }, { x, y, slot }) {
  const wide = Math.min(40, Math.max(1, slot * 0.72));
  return times.map((_, index) => {
    let base = 0;
    return series.map((each, place) => {
      const value = each.values[index];
      if (!value || value < 0) return null;
      const top = y(base + value);
      const tall = y(base) - top;
      base += value;
      return svg("rect", { class: `s${place % 8}`, x: x(index) - wide / 2, y: top, width: wide, height: Math.max(0, tall - 0.6) });
    });
  });
}

function linesOf({ series }, { x, y }) {
  return series.map((each, place) => {
    const points = each.values.map((value, index) => (value === null ? null : `${x(index).toFixed(1)} ${y(value).toFixed(1)}`));
    const drawn = points.filter(Boolean);
    if (!drawn.length) return null;
    if (drawn.length === 1) return svg("circle", { class: `s${place % 8}`, cx: drawn[0].split(" ")[0], cy: drawn[0].split(" ")[1], r: 3 });
    return svg("path", { class: `line l${place % 8}`, d: `M${drawn.join("L")}` });
  });
}

function marksOf({ times, series, marks = new Set() }, { x, y }) {
  return times.map((at, index) => {
    if (!marks.has(at)) return null;
    const total = series.reduce((sum, each) => sum + Math.max(0, each.values[index] ?? 0), 0);
    const top = Math.max(PAD.top, y(total) - 8);
    return svg("path", { class: "corrected-mark", d: `M${x(index)} ${top + 5}l-4 -6h8z` }, svg("title", {}, "corrected while this page was open"));
  });
}

const swatch = (place) => svg("svg", { class: "swatch", viewBox: "0 0 8 8", "aria-hidden": "true" }, svg("rect", { class: `s${place % 8}`, width: 8, height: 8 }));

function drawLegend(legend, series) {
  const names = series.map((each) => each.name).join("\n");
  if (legend.names === names) return;
  legend.names = names;
  put(legend, series.length > 1 || series[0]?.name !== "all" ? series.map((each, place) => h("li", {}, swatch(place), each.name)) : []);
}

function summary({ times, series }) {
  if (!times.length) return "No rows yet.";
  const last = times.length - 1;
  return `${time(times[last])}: ${series.map((each) => `${each.name} ${number(each.values[last])}`).join(", ")}.`;
}

/** A ranking: names with bars, largest first. `update(bars)` draws. */
export function rankingChart({ label }) {
  const list = h("ol", { class: "ranking", "aria-label": label });
  return {
    element: list,
    update(bars) {
      const most = Math.max(1e-9, ...bars.map((bar) => bar.value));
      while (list.children.length > bars.length) list.lastChild.remove();
      while (list.children.length < bars.length) {
        list.append(h("li", {}, h("span", { class: "rank-name" }), h("span", { class: "rank-bar", "aria-hidden": "true" }, h("span", {})), h("b", {})));
      }
      bars.forEach((bar, index) => {
        const [name, track, value] = list.children[index].children;
        say(name, bar.name);
        name.title = bar.name;
        track.firstChild.style.width = `${Math.max(0, (bar.value / most) * 100).toFixed(1)}%`;
        say(value, number(bar.value));
      });
    },
  };
}
