// Numbers, spans and times as people read them. Pure.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const FINE = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const NONE = "–";

/** 12,345 or 3.14; a dash for what is not known. */
export function number(value) {
  if (!isNumber(value)) return NONE;
  return Number.isInteger(value) ? WHOLE.format(value) : FINE.format(value);
}

/** 12.3K, for places where width matters. */
export function short(value) {
  if (!isNumber(value)) return NONE;
  return Math.abs(value) < 10_000 ? number(value) : SHORT.format(value);
}

/** A rate; small ones keep a digit. */
export function rate(perSecond) {
  if (!isNumber(perSecond)) return NONE;
  if (perSecond > 0 && perSecond < 10) return `${perSecond.toFixed(1)}/s`;
  return `${short(Math.round(perSecond))}/s`;
}

export function bytes(value) {
  if (!isNumber(value)) return NONE;
  const units = ["B", "KB", "MB", "GB", "TB"];
  let size = value;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${size >= 100 || unit === 0 ? Math.round(size) : size.toFixed(1)} ${units[unit]}`;
}

/** A span of seconds in its two largest units: 850 ms, 4.2 s, 3 min 20 s, 2 h 5 min. */
export function span(seconds) {
  if (!isNumber(seconds)) return NONE;
  if (seconds < 0) return `-${span(-seconds)}`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return pair(whole, 60, "min", 1, "s");
  if (whole < 86_400) return pair(whole, 3600, "h", 60, "min");
  return pair(whole, 86_400, "d", 3600, "h");
}

function pair(seconds, large, largeName, small, smallName) {
  const rest = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

/** A moment from RFC 3339 text or milliseconds; null if it is none. */
export function moment(value) {
  if (value === null || value === undefined || value === "") return null;
  const date = new Date(value);
  return Number.isNaN(date.getTime()) ? null : date;
}

/** 14:03:27 of this reader's clock; the date too when it is not today. */
export function time(value, { millis = false } = {}) {
  const date = moment(value);
  if (!date) return NONE;
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const text = millis ? `${clock}.${String(date.getMilliseconds()).padStart(3, "0")}` : clock;
  return date.toDateString() === new Date().toDateString() ? text : `${day(date)} ${text}`;
}

/** The whole moment with its zone, for titles. */
export function exact(value) {
  const date = moment(value);
  return date ? `${date.toISOString()} (here: ${day(date)} ${time(date, { millis: true })})` : NONE;
}

/** 14:03, for axes. */
export const minute = (date) => `${two(date.getHours())}:${two(date.getMinutes())}`;

/** How long ago, in words. */
export function ago(value, now = Date.now()) {
  const date = moment(value);
  if (!date) return NONE;
  const seconds = (now - date.getTime()) / 1000;
  return seconds < 1 ? "now" : `${span(Math.max(1, Math.round(seconds)))} ago`;
}

const day = (date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
const two = (value) => String(value).padStart(2, "0");
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** "1 record", "2 records". */
export const count = (value, noun, plural = `${noun}s`) => `${number(value)} ${value === 1 ? noun : plural}`;

/** How many records a topic or a partition holds, which may be known as a bound only. */
export const recordCount = ({ records, exact }) => (exact ? number(records) : `at most ${number(records)}`);

/** A value of any JSON type on one line. */
export function oneLine(value, limit = 400) {
  if (value === null || value === undefined) return "null";
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text.length > limit ? `${text.slice(0, limit)}…` : text;
}

/** A cell of a view: times shortened, numbers grouped, the rest as it is. */
export function cell(value, type = "") {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return number(value);
  if (/timestamp/.test(type)) return time(value);
  return oneLine(value, 200);
}
