// The server's descriptions in the form the panels use. Pure.

/** Columns as [{ name, type }], from a list or from a mapping of names to types. */
export function columnsOf(view) {
  const columns = view?.columns ?? [];
  if (Array.isArray(columns)) return columns;
  return Object.entries(columns).map(([name, type]) => ({ name, type: String(type) }));
}

/** A view with its columns as a list. */
export const asView = (view) => ({ ...view, columns: columnsOf(view), key: view.key ?? [] });

/** Changes when a view's rows may have: its batch, and its owner, which a rebuild changes. */
export const versionOf = (view) => `${view.sequence ?? ""}/${view.reflected?.query_id ?? ""}/${view.reflected?.batch_id ?? ""}`;

/** Fields of a schema in DDL ("id string, at timestamp, tags array<string>") as [{ name, type }]. */
export function fieldsOf(schema) {
  if (Array.isArray(schema)) return schema;
  if (schema && typeof schema === "object") return columnsOf({ columns: schema });
  return splitOutside(String(schema ?? "")).map((part) => {
    const [, name, type] = part.trim().match(/^(`[^`]+`|[^\s:]+)[\s:]+(.+?)(?:\s+not\s+null)?$/is) ?? [];
    return name ? { name: name.replaceAll("`", ""), type: type.trim().toLowerCase() } : null;
  }).filter(Boolean);
}

/** Splits at commas that stand in no brackets. */
function splitOutside(text) {
  const parts = [];
  let depth = 0;
  let part = "";
  for (const letter of text) {
    if (letter === "<" || letter === "(") depth += 1;
    if (letter === ">" || letter === ")") depth -= 1;
    if (letter === "," && depth === 0) {
      parts.push(part);
      part = "";
    } else {
      part += letter;
    }
  }
  return part.trim() ? [...parts, part] : parts;
}

const PLACE = { order: "Place" };

/** What a stream's records are called, from its topic: shop.orders holds orders, each an order. */
export function nounOf(topic) {
  const last = String(topic).split(/[.\-_/]/).filter(Boolean).pop() ?? "record";
  const singular = last.replace(/ies$/, "y").replace(/(ch|sh|x|ss)es$/, "$1").replace(/([^s])s$/, "$1");
  return /^[a-z]+$/i.test(singular) ? singular.toLowerCase() : "record";
}

/** The words of the button that sends one: "Place an order", "Send a click". */
export function sendingOf(topic) {
  const noun = nounOf(topic);
  return `${PLACE[noun] ?? "Send"} ${/^[aeiou]/.test(noun) ? "an" : "a"} ${noun}`;
}

/**
 * A record to begin with: the fields of the newest record that is an object where there is one, so
 * that it lands among the others; ids are new, and times are now.
 */
export function templateOf(fields, example, now = new Date(), random = Math.random) {
  const like = example && typeof example === "object" && !Array.isArray(example) ? example : {};
  return Object.fromEntries(fields.map(({ name, type }) => [name, valueFor(name, type, like[name], now, random)]));
}

function valueFor(name, type, like, now, random) {
  if (/^(timestamp|date)/.test(type)) return type.startsWith("date") ? now.toISOString().slice(0, 10) : now.toISOString();
  if (/(^|_)(id|uuid)$/i.test(name) && /^string/.test(type)) return `console-${random().toString(36).slice(2, 10)}`;
  if (like !== undefined && like !== null) return like;
  if (/^bool/.test(type)) return true;
  if (/^(float|double|decimal|real)/.test(type)) return 10.5;
  if (/^(tinyint|smallint|int|integer|bigint|long|short|byte)/.test(type)) return 1;
  if (/^array/.test(type)) return [];
  if (/^(struct|map)/.test(type)) return {};
  return "text";
}

/** A record's headers as [[name, value], …]. */
export const headersOf = (record) => (record.headers ?? []).map(({ name, value }) => [name, value]);

/** The names of views that follow a stream. */
export const viewsOf = (views, topic) => views.filter((view) => view.stream === topic);
