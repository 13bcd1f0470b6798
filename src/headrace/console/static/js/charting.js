// Which picture fits a view, and its rows as the picture's numbers. Pure.

const MOST_SERIES = 7; // colours that can be told apart; the rest is summed as "others"
const NUMERIC = /int|long|short|byte|float|double|decimal|number/i;
const TIME = /timestamp|date/i;

/** How a view can be drawn: measures, the column of time, the columns that name a series. */
export function chartOf(view) {
  const key = new Set(view.key ?? []);
  const columns = view.columns ?? [];
  const times = columns.filter((column) => TIME.test(column.type)).map((column) => column.name);
  const measures = columns.filter((column) => NUMERIC.test(column.type) && !key.has(column.name) && !column.name.startsWith("_")).map((column) => column.name);
  const time = times.includes("window_start") ? "window_start" : times.find((name) => key.has(name)) ?? times[0] ?? null;
  const names = namesOf(columns, key, times);
  return { measures, time, names, shape: shapeOf(view.kind, time, measures) };
}

/** Key columns that name something; where a row's key is only its place in the log, its texts. */
function namesOf(columns, key, times) {
  const named = [...key].filter((name) => !times.includes(name) && !name.startsWith("_"));
  return named.length ? named : columns.filter((column) => /string|utf8/i.test(column.type)).map((column) => column.name).slice(0, 2);
}

function shapeOf(kind, time, measures) {
  if (!measures.length) return "none";
  if (kind === "tumbling" && time) return "columns";
  return "ranking";
}

/** The order in which the rows of a picture are asked for: the newest windows first. */
export const chartOrder = ({ time }) => (time ? `-${time}` : "");

/** A number, also from a decimal that came as text; null for what is none. */
export function numeric(value) {
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  if (typeof value !== "string" || value.trim() === "") return null;
  const parsed = Number(value);
  return Number.isFinite(parsed) ? parsed : null;
}

const nameOf = (row, names) => names.map((name) => String(row[name] ?? "none")).join(" · ") || "all";

/**
 * Rows as series over time: { times: [ms, …], series: [{ name, values: [number|null, …] }] }, the
 * series with the largest sums first and in an order that does not jump as numbers move.
 */
export function overTime(rows, { time, names }, measure) {
  const times = [...new Set(rows.map((row) => Date.parse(row[time])).filter(Number.isFinite))].sort((a, b) => a - b);
  const place = new Map(times.map((at, index) => [at, index]));
  const found = new Map();
  for (const row of rows) {
    const index = place.get(Date.parse(row[time]));
    const value = numeric(row[measure]);
    if (index === undefined || value === null) continue;
    const name = nameOf(row, names);
    if (!found.has(name)) found.set(name, { name, sum: 0, values: times.map(() => null) });
    const series = found.get(name);
    series.values[index] = (series.values[index] ?? 0) + value;
    series.sum += value;
  }
  return { times, series: fewSeries([...found.values()], times) };
}

function fewSeries(series, times) {
  const bySum = [...series].sort((one, other) => other.sum - one.sum);
  const kept = bySum.slice(0, MOST_SERIES).sort((one, other) => one.name.localeCompare(other.name, "en", { numeric: true }));
  const rest = bySum.slice(MOST_SERIES);
  if (!rest.length) return kept;
  const values = times.map((_, index) => rest.reduce((sum, each) => sum + (each.values[index] ?? 0), 0));
  return [...kept, { name: `${rest.length} others`, sum: 0, values }];
}

/**
 * Rows as a ranking: one window's where windows overlap (hopping), else each name's newest row;
 * largest first. Gives { at: ms|null, bars: [{ name, value }] }.
 */
export function ranking(rows, { time, names }, measure, { kind, most = 8, now = Date.now() } = {}) {
  const newest = time ? (kind === "hopping" ? fullestWindow(rows, time, now) : newestTime(rows, time)) : null;
  const wanted = kind === "hopping" ? rows.filter((row) => Date.parse(row[time]) === newest) : newestOfEach(rows, time, names);
  const bars = wanted.map((row) => ({ name: nameOf(row, names), value: numeric(row[measure]) })).filter((bar) => bar.value !== null);
  bars.sort((one, other) => other.value - one.value || one.name.localeCompare(other.name));
  return { at: Number.isFinite(newest) ? newest : null, bars: bars.slice(0, most) };
}

function newestTime(rows, time) {
  return Math.max(...rows.map((row) => Date.parse(row[time])).filter(Number.isFinite), -Infinity);
}

/** Of windows that overlap, the one that is over next: it has seen the most. The newest, if all are over. */
function fullestWindow(rows, time, now) {
  const open = rows.filter((row) => Date.parse(row.window_end) > now && Date.parse(row[time]) <= now);
  return open.length ? Math.min(...open.map((row) => Date.parse(row[time]))) : newestTime(rows, time);
}

function newestOfEach(rows, time, names) {
  const found = new Map();
  for (const row of rows) {
    const name = nameOf(row, names);
    const before = found.get(name);
    if (!before || (time && Date.parse(row[time]) > Date.parse(before[time]))) found.set(name, row);
  }
  return [...found.values()];
}

/** Round numbers for an axis from 0 (or below) to at least `most`: three to six of them. */
export function ticks(least, most, wanted = 4) {
  const span = most - least || 1;
  const rough = span / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => span / each <= wanted) ?? rough;
  const first = Math.floor(least / step) * step;
  const made = [];
  for (let at = first; made.length < 12; at += step) {
    made.push(Number(at.toPrecision(12)));
    if (at >= most) break;
  }
  return made;
}
