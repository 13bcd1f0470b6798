// Requests to this server. Every failure is a Problem that says what happened and what to do next.

/** An answer that was not a success, or no answer; `next` is what to do about it. */
export class Problem extends Error {
  constructor({ status = 0, title = "", detail = "", next = "", fields = {} }) {
    super(detail || title || `the server responded with ${status}`);
    this.name = "Problem";
    this.status = status;
    this.title = title;
    this.next = next;
    this.fields = fields;
  }
}

let whenUnauthorised = () => {};

/** Called when the server asks who this is. */
export function onUnauthorised(callback) {
  whenUnauthorised = callback;
}

/** The server asks who this is, or says that it no longer knows. */
export const unauthorised = () => whenUnauthorised();

/** A path under /v1 from parts that may hold anything, with its query (an object, or pairs); empty values are left out. */
export function path(parts, query = {}) {
  const encoded = parts.map((part) => encodeURIComponent(part)).join("/");
  const asked = new URLSearchParams();
  for (const [name, value] of Array.isArray(query) ? query : Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") asked.append(name, value);
  }
  const text = asked.toString();
  return `/v1/${encoded}${text ? `?${text}` : ""}`;
}

/** Reads JSON. */
export const read = (url, signal) => request("GET", url, undefined, signal);

/** Changes something: `body` goes as JSON, with the header that only this page can send. */
export const change = (method, url, body, signal) => request(method, url, body, signal);

async function request(method, url, body, signal) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["Headrace-Request"] = "1";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(url, {
      method, headers, signal, credentials: "same-origin", cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({
      title: "No response", detail: "The console is not responding.",
      next: "Check that its process is running; this page continues on its own once it is.",
    });
  }
  if (response.status === 401) unauthorised();
  return answerOf(response);
}

async function answerOf(response) {
  const text = await response.text();
  const fields = parsed(text);
  if (response.ok) return fields;
  throw new Problem({
    status: response.status, title: fields?.title, detail: fields?.detail ?? fields?.title,
    next: fields?.next, fields: fields ?? {},
  });
}

function parsed(text) {
  if (!text) return null;
  try {
    return JSON.parse(text);
  } catch {
    return { title: "The response is not JSON", detail: text.slice(0, 200) };
  }
}
