// A topic's configuration as lines of text, name=value, which is how Kafka's tools write it. Pure.

/** The field for a form. */
export const configFields = (value) => [{
  name: "config", label: "Settings", type: "lines", value, rows: 4, placeholder: "retention.ms=604800000",
  hint: "One name=value per line; leave empty for the defaults.",
}];

/** Lines as a mapping; raises an Error that names the line that is none. */
export function configOf(text) {
  const found = {};
  for (const line of text.split("\n").map((each) => each.trim()).filter(Boolean)) {
    const place = line.indexOf("=");
    if (place < 1) throw new Error(`"${line}" is not of the form name=value`);
    found[line.slice(0, place).trim()] = line.slice(place + 1).trim();
  }
  return found;
}

/** A mapping as lines. */
export const configText = (config) => Object.entries(config ?? {}).map(([name, value]) => `${name}=${value}`).join("\n");
