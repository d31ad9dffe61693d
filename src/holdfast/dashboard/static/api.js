// The HTTP API: requests with the token and a time limit, and problems as errors.

import { current } from "./token.js";

const csrf = document.querySelector("meta[name=csrf-token]"); // of an application that has the page among its own
let offset = 0; // of the server's clock, in milliseconds

export class Problem extends Error {
  constructor(status, title, detail) {
    super(detail || title);
    this.status = status;
    this.title = title;
  }
}

export const now = () => Date.now() + offset;
export const setClock = (text) => (offset = Date.parse(text) - Date.now());

export function headers(more) {
  const token = current();
  const sent = { "Holdfast-Client": "dashboard", ...more }; // for the audit log
  return token ? { Authorization: `Bearer ${token}`, ...sent } : sent;
}

export function query(params) {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(params || {}))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== undefined && one !== null && one !== "") made.append(name, one);
  const text = made.toString();
  return text ? `?${text}` : "";
}

// Cookies are for a program that serves the dashboard behind its own login; it redirects when the session has ended.
export const OPTIONS = { cache: "no-store", credentials: "same-origin", redirect: "manual" };

let admitted = false; // a request has succeeded since the page was loaded

/** Load the page again if that program no longer admits the user: it shows its login page. */
export function reloadIfLoggedOut(response) {
  const own = (response.headers.get("Content-Type") || "").startsWith("application/problem+json");
  if (admitted && (response.type === "opaqueredirect" || (response.status === 401 && !own))) location.reload();
}

const READ_LIMIT = 15000; // milliseconds until a request without a complete response has failed
const WRITE_LIMIT = 60000; // a step of a bulk operation changes up to 1,000 jobs

let heardAt = 0; // when the server last sent anything
const waiting = new Set(); // when each request without a response was sent
let number = 0; // of requests so far

/** Note that the server has sent something. */
export const heard = () => (heardAt = performance.now());
export const lastHeard = () => heardAt;
export const requests = () => number;

/** How long the server has sent nothing, in milliseconds; 0 if it owes nothing. `streaming`: it sends keep-alives. */
export function silence(streaming) {
  if (!streaming && !waiting.size) return 0;
  return performance.now() - (streaming ? heardAt : Math.max(heardAt, Math.min(...waiting)));
}

async function request(method, path, { body, signal, read, more } = {}) {
  const sent = current();
  const abort = new AbortController();
  const given = { method, ...OPTIONS, headers: headers(more), signal: abort.signal };
  if (csrf && method !== "GET") given.headers[csrf.dataset.header] = csrf.content;
  if (body !== undefined) {
    given.headers["Content-Type"] = "application/json";
    given.body = JSON.stringify(body);
  }
  const stop = () => abort.abort();
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop);
  const limit = setTimeout(stop, method === "GET" ? READ_LIMIT : WRITE_LIMIT);
  const began = performance.now() + Math.random() / 1e6; // distinct in the set
  waiting.add(began);
  number += 1;
  try {
    return await answered(await fetch(path, given), sent, read);
  } catch (error) {
    const late = abort.signal.aborted && !signal?.aborted;
    if (error instanceof Problem || (error.name === "AbortError" && !late)) throw error;
    const unknown = method === "GET" ? "" : " The change may have been made: check this before you repeat it.";
    throw new Problem(0, "No response", `The server did not respond.${unknown}`);
  } finally {
    clearTimeout(limit);
    waiting.delete(began);
    signal?.removeEventListener("abort", stop);
  }
}

async function answered(response, sent, read) {
  heard();
  admitted ||= response.ok;
  if (response.ok) return read?.(response);
  reloadIfLoggedOut(response);
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // not a response of Holdfast
  }
  if (response.status === 401 && sent !== current()) throw new DOMException("sent before the login", "AbortError");
  throw new Problem(response.status, problem.title || `HTTP ${response.status}`, problem.detail);
}

const json = (response) => response.json();
export const get = (path, params, options) => request("GET", path + query(params), { ...options, read: json });
export const post = (path, body, more) => request("POST", path, { body, read: json, more });
export const put = (path, body) => request("PUT", path, { body, read: json });
export const patch = (path, body) => request("PATCH", path, { body, read: json });
export const remove = (path) => request("DELETE", path);
export const jobPath = (id, rest = "") => `v1/jobs/${encodeURIComponent(id)}${rest}`;

/** The chunks that a job has emitted after a position. */
export async function chunks(id, position, signal) {
  const read = (response) => response.text();
  const text = await request("GET", jobPath(id, "/stream") + query({ position, follow: false }), { signal, read });
  const lines = text.slice(0, text.lastIndexOf("\n\n") + 1).split("\n"); // of complete events
  return lines.filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice(6)));
}

/** The output of a job from a position, and the position after it. */
export function output(id, position, signal) {
  const read = async (response) => ({
    data: await response.arrayBuffer(),
    next: Number(response.headers.get("Holdfast-Next-Position")),
  });
  return request("GET", jobPath(id, "/output") + query({ position }), { signal, read });
}
