// Addresses inside the page: #/panel/part?name=value. Parts may hold anything; they are encoded.

/** The address as parts and query. */
export function current() {
  const [where, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: where.split("/").filter(Boolean).map(decoded), query: new URLSearchParams(query) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a hand-written address
  }
}

/** A link to a place in this page. */
export function link(parts, query = {}) {
  const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== "" && value != null));
  const text = asked.toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Goes to a place in this page. */
export function go(parts, query) {
  location.hash = link(parts, query);
}

/** Shows the same place again. */
export function refresh() {
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Notes state in the address without going anywhere. */
export function note(parts, query) {
  history.replaceState(null, "", link(parts, query));
}
