// The HTTP API: requests with the token, problems as errors, and the event stream.

const TOKEN_KEY = "holdfast.token";
let token = sessionStorage.getItem(TOKEN_KEY) || "";
const csrf = document.querySelector("meta[name=csrf-token]"); // of an application that has the page among its own
let offset = 0; // of the server's clock, in milliseconds

export class Problem extends Error {
  constructor(status, title, detail) {
    super(detail || title);
    this.status = status;
    this.title = title;
  }
}

/** Store the token for this tab; "" removes it. It is sent in a header, never in a URL. */
export function useToken(given) {
  token = given;
  if (given) sessionStorage.setItem(TOKEN_KEY, given);
  else sessionStorage.removeItem(TOKEN_KEY);
}

export const hasToken = () => token !== "";
export const now = () => Date.now() + offset;
export const setClock = (text) => (offset = Date.parse(text) - Date.now());

function headers(more) {
  return token ? { Authorization: `Bearer ${token}`, ...more } : { ...more };
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
const OPTIONS = { cache: "no-store", credentials: "same-origin", redirect: "manual" };

let admitted = false; // a request has succeeded since the page was loaded

/** Load the page again if that program no longer admits the user: it shows its login page. */
function reloadIfLoggedOut(response) {
  const own = (response.headers.get("Content-Type") || "").startsWith("application/problem+json");
  if (admitted && (response.type === "opaqueredirect" || (response.status === 401 && !own))) location.reload();
}

async function request(method, path, { body, signal } = {}) {
  const sent = token;
  const given = { method, signal, ...OPTIONS, headers: headers() };
  if (csrf && method !== "GET") given.headers[csrf.dataset.header] = csrf.content;
  if (body !== undefined) {
    given.headers["Content-Type"] = "application/json";
    given.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, given);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "No response", "The server did not respond.");
  }
  admitted ||= response.ok;
  if (response.ok) return response;
  reloadIfLoggedOut(response);
  let problem = {};
  try {
    problem = await response.json();
  } catch {
    // not a response of Holdfast
  }
  if (response.status === 401 && sent !== token) throw new DOMException("sent before the login", "AbortError");
  throw new Problem(response.status, problem.title || `HTTP ${response.status}`, problem.detail);
}

export const get = async (path, params, options) => (await request("GET", path + query(params), options)).json();
export const post = async (path, body) => (await request("POST", path, { body })).json();
export const remove = (path) => request("DELETE", path);
export const jobPath = (id, rest = "") => `v1/jobs/${encodeURIComponent(id)}${rest}`;

/** The output of a job from a position, and the position after it. */
export async function output(id, position, signal) {
  const response = await request("GET", jobPath(id, "/output") + query({ position }), { signal });
  return { data: await response.arrayBuffer(), next: Number(response.headers.get("Holdfast-Next-Position")) };
}

const IDLE_TIMEOUT = 40000; // milliseconds; the server sends a keep-alive every 15 s

/** The event stream: calls changed(transitions, missed) and state(live, seconds until the next attempt). */
export class Stream {
  constructor(changed, state) {
    this.changed = changed;
    this.state = state;
    this.last = null;
    this.stopped = false;
    this.wake = null;
    this.run();
  }

  stop() {
    this.stopped = true;
    if (this.abort) this.abort.abort();
    if (this.wake) this.wake();
  }

  /** Reconnect now. */
  retry() {
    if (this.wake) this.wake();
  }

  async run() {
    let failures = 0;
    while (!this.stopped) {
      let wait = 1 + Math.random(); // after a stream that the server has ended
      try {
        await this.read(() => (failures = 0));
      } catch (error) {
        if (error instanceof Problem && (error.status === 401 || error.status === 403))
          return this.state(false, null, error);
        if (this.stopped) return;
        failures += 1;
        wait = Math.min(15, 2 ** Math.min(failures - 1, 4)) + Math.random();
        this.state(false, wait);
      }
      if (this.stopped) return;
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, wait * 1000);
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.wake = null;
    }
  }

  async read(connected) {
    this.abort = new AbortController();
    let idle = setTimeout(() => this.abort.abort(), IDLE_TIMEOUT);
    try {
      const response = await fetch("v1/events", {
        headers: headers(this.last ? { "Last-Event-ID": this.last } : {}),
        signal: this.abort.signal,
        ...OPTIONS,
      });
      reloadIfLoggedOut(response);
      if (!response.ok) throw new Problem(response.status, "The event stream was refused");
      connected();
      this.state(true, 0);
      const reader = response.body.getReader();
      const decoder = new TextDecoder();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(idle);
        idle = setTimeout(() => this.abort.abort(), IDLE_TIMEOUT);
        const text = rest + decoder.decode(value, { stream: true });
        const end = text.lastIndexOf("\n\n");
        if (end < 0) {
          rest = text;
          continue;
        }
        rest = text.slice(end + 2);
        this.parse(text.slice(0, end));
      }
    } finally {
      clearTimeout(idle);
    }
  }

  parse(text) {
    const transitions = [];
    let missed = false;
    for (const block of text.split("\n\n")) {
      let kind = "message";
      let data = "";
      for (const line of block.split("\n")) {
        if (line.startsWith("event: ")) kind = line.slice(7);
        else if (line.startsWith("data: ")) data = line.slice(6);
        else if (line.startsWith("id: ")) this.last = line.slice(4);
      }
      if (kind === "job") transitions.push(JSON.parse(data));
      else if (kind === "reset") missed = true;
    }
    if (transitions.length || missed) this.changed(transitions, missed);
  }
}
