// The newest records of a topic, kept within a bound whatever the rate. Pure, but for the stream at the end.

/** At most `limit` records, newest first; while held, what comes is counted and waits for `release`. */
export class Tail {
  constructor(limit) {
    this.limit = limit;
    this.records = [];
    this.waiting = [];
    this.held = false;
    this.passed = 0; // records that came and are no longer kept
  }

  /** Adds records, oldest first as the log has them. */
  add(records) {
    const target = this.held ? this.waiting : this.records;
    const joined = [...records.slice(-this.limit).reverse(), ...target];
    this.passed += Math.max(0, records.length + target.length - this.limit);
    joined.length = Math.min(joined.length, this.limit);
    if (this.held) this.waiting = joined;
    else this.records = joined;
  }

  hold() {
    this.held = true;
  }

  /** Shows what waited. */
  release() {
    this.held = false;
    const waited = this.waiting;
    this.waiting = [];
    this.records = [...waited, ...this.records].slice(0, this.limit);
  }

  clear() {
    this.records = [];
    this.waiting = [];
    this.passed = 0;
  }
}

/**
 * Follows a topic until `signal` aborts. `onrecords(list)` for each event; `onstate(word)` is one of
 * open, cut (the browser resumes by itself, exactly), gone. Resuming is the browser's Last-Event-ID.
 */
export function follow(url, { onrecords, onstate = () => {}, signal }) {
  const source = new EventSource(url);
  source.onopen = () => onstate("open");
  source.addEventListener("records", (event) => onrecords(JSON.parse(event.data).records));
  source.onerror = () => onstate(source.readyState === EventSource.CLOSED ? "gone" : "cut");
  signal.addEventListener("abort", () => source.close(), { once: true });
  return source;
}

/** Whether a record holds the text, in key, value or headers. Pure. */
export function holds(record, text) {
  if (!text) return true;
  return textOf(record).includes(text.toLowerCase());
}

const texts = new WeakMap(); // a search looks at every record kept, again in every frame

function textOf(record) {
  let text = texts.get(record);
  if (text === undefined) {
    const parts = [record.key, record.value, record.headers].map((part) => (typeof part === "string" ? part : JSON.stringify(part ?? "")));
    text = parts.join("\n").toLowerCase();
    texts.set(record, text);
  }
  return text;
}
