// Shared components: states, links, panels, dialogs and toasts.

import { h, render } from "./dom.js";
import { age, ago, at, line, plain, span } from "./format.js";

export const STATES = ["queued", "running", "scheduled", "failed", "dead", "succeeded", "cancelled", "blocked"];
export const ENDED = new Set(["succeeded", "dead", "cancelled"]);

export const state = (name, more) => h("span", { class: `state ${name}` }, name, more);
export const muted = (...text) => h("span", { class: "soft" }, ...text);
export const mono = (text, title) => h("span", { class: "mono", title }, text);
/** A page before its data is loaded. */
export const loading = (title) => [
  h("div", { class: "title" }, h("h1", {}, title)),
  h("p", { class: "loading" }, "Loading…"),
];

export const jobHref = (id) => `#/jobs/${encodeURIComponent(id)}`;

/** The name of a job: its task, or the command of a shell job. A row of a list has only the beginning of its payload. */
export function jobName({ type, payload }, max) {
  if (type !== "shell") return line(type, max);
  const start = typeof payload === "string" ? payload : JSON.stringify(payload);
  const quoted = /"command": ?("(?:[^"\\]|\\.)*)/.exec(start ?? "");
  if (!quoted) return type;
  try {
    return line(JSON.parse(`${quoted[1]}"`), max);
  } catch {
    return type; // cut within an escape sequence
  }
}

export function jobsHref(filters) {
  const made = new URLSearchParams();
  for (const [name, value] of Object.entries(filters))
    for (const one of [value].flat()) if (one) made.append(name, one);
  return `#/jobs?${made}`;
}

/** The cursors of a page of a list and those before it: of the history, or of an address that was opened or shared. */
export function cursorsOf(params) {
  const cursor = params.get("cursor");
  if (!cursor) return [null];
  return history.state?.cursors?.at(-1) === cursor ? history.state.cursors : [null, cursor];
}

/** A relative time; the exact time is the tooltip. */
export function when(time, word) {
  if (!time) return muted("–");
  return h("time", { datetime: time, title: exact(time) }, word ? `${word} ` : "", ago(time));
}

export const exact = (time) => `${at(time)}  (${new Date(time).toISOString()})`;

/** The duration from one time to another, or until now. */
export const lasted = (from, to) => span(to ? (Date.parse(to) - Date.parse(from)) / 1000 : age(from));

export const shortId = (id) => (id.length > 13 ? `${line(id, 60).slice(0, 8)}…${line(id.slice(-4), 4)}` : line(id, 13));

/** The short form of a worker id: node and pid. */
export function workerName(id) {
  const parts = String(id).split(":");
  return parts.length < 3 ? line(id, 40) : `${line(parts.slice(0, -2).join(":"), 30)} · ${line(parts.at(-2), 10)}`;
}

export function button(label, click, options = {}) {
  const { kind = "", title, disabled = false, icon: name } = options;
  return h(
    "button",
    { type: "button", class: `button ${kind}`, title, disabled, on: { click } },
    name && icon(name),
    h("span", {}, label),
  );
}

const PATHS = {
  overview: "M2.5 13.5v-5M6.2 13.5v-9M9.8 13.5v-6M13.5 13.5v-11",
  jobs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  queues: "M2.5 3h11v2.6h-11zM2.5 6.9h11v2.6h-11zM2.5 10.8h11v2.6h-11z",
  schedules: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2M8 4.8V8l2.3 1.5",
  workers:
    "M4.5 4.5h7v7h-7zM6.5 1.8v2.7M9.5 1.8v2.7M6.5 11.5v2.7M9.5 11.5v2.7M1.8 6.5h2.7M1.8 9.5h2.7M11.5 6.5h2.7M11.5 9.5h2.7",
  dead: "M2.5 4.5l5.5 4 5.5-4M2.5 3.5h11v9h-11z",
  errors: "M8 2.2l6.2 11.1H1.8zM8 6.4v3.2M8 11.4v.2",
  retry: "M12.8 6.2A5.2 5.2 0 1 0 13.2 9M13.2 2.8v3.6H9.6",
  cancel: "M4 4l8 8M12 4l-8 8",
  delete: "M3 4.5h10M6.2 4.5V3h3.6v1.5M4.4 4.5l.6 9h6l.6-9",
  copy: "M5.5 5.5h7.5v7.5H5.5zM3 10.5V3h7.5",
  edit: "M3 13l.7-3L11 2.7l2.3 2.3L6 12.3z",
  add: "M8 3v10M3 8h10",
  undo: "M3.2 6.2A5.2 5.2 0 1 1 2.8 9M2.8 2.8v3.6h3.6",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  run: "M9.2 1.8 3.8 9h3.7l-.8 5.2L12.2 7H8.4z",
  resume: "M5 3.2l7.5 4.8L5 12.8z",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6M8 1.5v1.4M8 13.1v1.4M1.5 8h1.4M13.1 8h1.4M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
  audit: "M4 2.5h8v11H4zM6 5.5h4M6 8h4M6 10.5h2.5",
  settings: "M2.5 4.5h6M11.5 4.5h2M2.5 11.5h2M7.5 11.5h6M10 3v3M6 10v3",
  help: "M5.8 6.2a2.2 2.2 0 1 1 3.3 1.9c-.8.5-1.1.9-1.1 1.7M8 12v.2",
  flows: "M2 3h4v3H2zM10 3h4v3h-4zM6 10h4v3H6zM4 6v2h8V6M8 8v2",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M10.4 10.4 13.5 13.5",
  leave: "M9.5 3H3.5v10h6M7 8h7M11.5 5.5 14 8l-2.5 2.5",
};

export const icon = (name) =>
  h(
    "svg",
    { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true", focusable: "false" },
    h("path", { d: PATHS[name] }),
  );

const UTC = /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\+00:00/g; // as the server writes times into sentences

/** A sentence of the server: what is in backticks as code, and its times in the zone of this page. */
export const coded = (text) =>
  line(text, 400)
    .replace(UTC, (time) => at(time.replace(" ", "T")))
    .split("`")
    .map((part, at) => (at % 2 ? h("code", {}, part) : part));

export function panel(title, props, ...content) {
  const { note, side, key, kind = "" } = props || {};
  return h(
    "section",
    { class: `panel ${kind}`, key, "aria-label": typeof title === "string" ? title : undefined },
    h(
      "header",
      {},
      h("h2", {}, title),
      note && h("p", { class: "note" }, note),
      side && h("div", { class: "side" }, side),
    ),
    ...content,
  );
}

/** The placeholder of an empty page, with a command to start with. */
export const empty = (title, text, command) =>
  h(
    "div",
    { class: "empty" },
    h("p", { class: "title" }, title),
    text && h("p", {}, text),
    command && h("pre", {}, command),
  );

export const FIRST_JOB = "holdfast enqueue -- echo hello\nholdfast worker start --foreground";

export function bar(done, total, note) {
  const share = total > 0 ? Math.min(1, Math.max(0, done / total)) : 0;
  const text = total ? `${Math.round(share * 100)} %` : `${done}`;
  return h(
    "span",
    { class: "progress" },
    h(
      "span",
      {
        class: "track",
        role: "progressbar",
        "aria-valuemin": "0",
        "aria-valuemax": "100",
        "aria-valuenow": Math.round(share * 100),
        "aria-label": "Progress",
      },
      h("span", { class: "fill", style: { width: `${share * 100}%` } }),
    ),
    h("span", { class: "soft num" }, text, note ? ` · ${line(note, 80)}` : ""),
  );
}

const LONG = 20000;

/** Text in a box, truncated to LONG characters until expanded. */
export function block(text, opened, open, props = {}) {
  const cut = !opened && text.length > LONG;
  return h(
    "div",
    { class: "block" },
    h("pre", { tabindex: "0", ...props }, cut ? `${text.slice(0, LONG)}…` : text),
    cut && button(`Show all ${Math.round(text.length / 1000)} thousand characters`, open, { kind: "small" }),
  );
}

// -- toasts

let hideTimer = null;

export function toast(text, kind = "") {
  const place = document.getElementById("toasts");
  render(place, h("div", { class: `toast ${kind}` }, plain(text)));
  clearTimeout(hideTimer);
  hideTimer = setTimeout(() => render(place), kind === "bad" ? 9000 : 5000);
}

export const failed = (error) => error.name !== "AbortError" && toast(error.message, "bad");

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what} copied`);
  } catch {
    window.prompt(`Copy the ${what.toLowerCase()}:`, text);
  }
}

export const copyButton = (what, text) =>
  button(`Copy ${what}`, () => copy(text, what.charAt(0).toUpperCase() + what.slice(1)), {
    kind: "small",
    icon: "copy",
  });

// -- dialogs

/**
 * A modal dialog; `redraw` calls `content` again. Resolves with the argument of `close`. `onlyButtons`: a click beside
 * it does not close it.
 */
export function dialog(label, content, { onlyButtons = false } = {}) {
  const element = document.createElement("dialog");
  element.setAttribute("aria-label", label);
  document.body.appendChild(element);
  return new Promise((resolve) => {
    const close = (answer) => {
      if (!element.isConnected) return;
      element.close();
      element.remove();
      resolve(answer);
    };
    const redraw = () => element.isConnected && render(element, content(close, redraw));
    element.addEventListener("cancel", (event) => {
      event.preventDefault();
      close(undefined);
    });
    element.addEventListener("click", (event) => event.target === element && !onlyButtons && close(undefined));
    redraw();
    element.showModal();
  });
}

/** Ask for confirmation; resolves with true if confirmed. */
export function confirm(title, text, label, kind = "danger") {
  return dialog(title, (close) =>
    h(
      "div",
      { class: "dialog-body" },
      h("h2", {}, title),
      text && h("p", {}, text),
      h(
        "div",
        { class: "buttons" },
        button("Go back", () => close(false)),
        button(label, () => close(true), { kind }),
      ),
    ),
  );
}
