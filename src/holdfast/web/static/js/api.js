// Requests to the public API; scripts use nothing else of the server.

/** The API answered with an error. */
export class ApiError extends Error {
  /** @param {any} problem */
  constructor(problem) {
    super(problem.detail);
    this.status = problem.status;
    this.code = problem.code;
    this.subcode = problem.subcode ?? null;
    /** @type {Record<string, string>} */
    this.params = problem.params ?? {};
    this.verdict = problem.verdict ?? null;
    this.state = problem.state ?? null;
    this.job = problem.job ?? null;
    this.document = problem.document ?? null;
    this.requestId = problem.request_id ?? "";
  }
}

/** The server did not answer. */
export class ServerUnreachable extends Error {}

const API_PREFIX = "/api/v1";
const MAX_PARALLEL_UPLOADS = 3;

/**
 * Return the API path of a base or of something in it: `basePath("handbook", "documents", 7)`.
 * @param {string} base
 * @param {...(string | number)} rest
 */
export const basePath = (base, ...rest) => ["/bases", base, ...rest].map((part, index) => (index ? encodeURIComponent(part) : part)).join("/");

/**
 * Send a request. An aborted request throws an AbortError, which `tryOrNotify` ignores.
 * @param {string} method
 * @param {string} path
 * @param {{body?: any, query?: Record<string, any>, signal?: AbortSignal, headers?: Record<string, string>}} [options]
 * @returns {Promise<any>}
 */
export async function request(method, path, { body, query, signal, headers = {} } = {}) {
  const raw = body instanceof Blob || body instanceof FormData;
  let answer;
  try {
    answer = await fetch(API_PREFIX + path + encodeQuery(query), {
      method,
      signal,
      headers: { ...(body !== undefined && !raw ? { "content-type": "application/json" } : {}), ...headers },
      body: body === undefined ? undefined : raw ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ServerUnreachable(String(error));
  }
  if (answer.status === 401 && path !== "/session") {
    location.assign(`/signin?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  if (answer.status === 204) return null;
  const text = await answer.text();
  const read = text && answer.headers.get("content-type")?.includes("json") ? JSON.parse(text) : text;
  if (!answer.ok) throw new ApiError(typeof read === "string" ? { status: answer.status, code: "unknown", detail: read } : read);
  return read;
}

/** @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] */
export const get = (path, query, signal) => request("GET", path, { query, signal });

/** @param {string} path @param {any} [body] @param {Record<string, any>} [query] */
export const post = (path, body, query) => request("POST", path, { body, query });

/**
 * Return a function that makes the signal of a new request and aborts the request before.
 * Example: `const listing = latest();` once, then `get(path, query, listing())` for each request.
 */
export function latest() {
  let current = new AbortController();
  return () => {
    current.abort();
    current = new AbortController();
    return current.signal;
  };
}

/**
 * Call `work` for each item, in order, a few at a time.
 * @template T
 * @param {T[]} items
 * @param {(item: T) => Promise<unknown>} work
 */
export async function inParallel(items, work) {
  const waiting = [...items];
  const lane = async () => {
    for (let item = waiting.shift(); item; item = waiting.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: MAX_PARALLEL_UPLOADS }, lane));
}

/** Return null for "404 Not Found" and throw every other error: `get(path).catch(nullIfMissing)`. @param {any} error */
export function nullIfMissing(error) {
  if (error?.status === 404) return null;
  throw error;
}

/**
 * Encode a query string. A list becomes repeated parameters; empty values are left out.
 * @param {Record<string, any>} [query]
 */
export function encodeQuery(query = {}) {
  const written = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") written.append(name, String(one));
    }
  }
  const text = written.toString();
  return text ? `?${text}` : "";
}
