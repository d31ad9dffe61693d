// The shell of all pages: login, navigation, keyboard shortcuts, refresh and connection state.

import { get, lastHeard, requests, setClock, silence } from "./api.js";
import audit from "./audit.js";
import dead from "./dead.js";
import { h, render } from "./dom.js";
import errorGroup from "./errorgroup.js";
import errors from "./errors.js";
import flow from "./flow.js";
import flows from "./flows.js";
import { plain } from "./format.js";
import incident from "./incident.js";
import job from "./job.js";
import jobs from "./jobs.js";
import { Live } from "./live.js";
import overview from "./overview.js";
import { openPalette } from "./palette.js";
import { button, dialog, failed, icon } from "./parts.js";
import queue from "./queue.js";
import queues from "./queues.js";
import schedules from "./schedules.js";
import settings from "./settings.js";
import * as token from "./token.js";
import workers from "./workers.js";

const PAGES = [
  ["overview", "Overview", overview, "o"],
  ["jobs", "Jobs", jobs, "b", job],
  ["flows", "Flows", flows, "f", flow],
  ["queues", "Queues", queues, "q", queue],
  ["schedules", "Schedules", schedules, "s"],
  ["workers", "Workers", workers, "w"],
  ["dead", "Dead letters", dead, "d"],
  ["errors", "Errors", errors, "e", errorGroup],
];
const HIDDEN = [
  ["incident", "Incident", incident],
  ["audit", "Audit log", audit],
  ["settings", "Settings", settings],
]; // pages that others lead to
const KEYS = [
  ["/", "search"],
  ["j, k", "next, previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["Ctrl-K", "find a page, job id, queue, task or action"],
  ["g then o, b, f, q, s, w, d, e", "go to overview, jobs, flows, queues, schedules, workers, dead letters, errors"],
  ["?", "show this list"],
];
const REFRESH_EVERY = 5000; // milliseconds between refreshes if nothing changes
const IDLE_REQUEST = 2400; // milliseconds for each request of a refresh if nothing changes: at most 25 a minute
const IDLE_SHARE = 0.01; // of the time at most waits for refreshes and draws them if nothing changes
const MAX_INTERVAL = 30000; // milliseconds between refreshes, however long they take
const REDRAW_EVERY = 1000; // milliseconds between redraws that only update ages
const REDRAW_SHARE = 0.004; // of the time at most is spent on these; layout and paint take as long again
const MIN_INTERVAL = 900; // minimum milliseconds between two refreshes
const MAX_SILENCE = 4000; // milliseconds without a sign of the server, which owes one, until the connection is lost

const CONNECTIONS = new Map([
  [null, ["live", "Connecting"]],
  [true, ["live", "Live"]],
  [false, ["polling", "Polling"]],
]);

const root = document.getElementById("app");
const shell = {
  me: null, // {roles, version, store, extras}
  refused: null, // the reason of a failed login
  page: null,
  name: "",
  live: null, // whether changes arrive by the event stream; null: not known yet
  unreachable: false, // the last refresh got no response
  silentSince: null, // when the last answer arrived before the server stopped answering
  refreshedAt: 0,
  took: 0,
  asked: 0, // requests of the last refresh
  drawnAt: 0,
  drawTook: 0,
  refreshing: false,
  dirty: false,
  problem: null,
};
let live = null;
let drawing = 0;
let arrived = false; // a new page is shown, whose heading has not got the focus yet
const positions = new Map(); // how far each address was scrolled

/** What a page gets: roles, extras, and functions to redraw and refresh it. */
const context = {
  may: (role) => shell.me?.roles.includes(role) ?? false,
  has: (extra) => shell.me?.extras.includes(extra) ?? false,
  draw,
  reload: () => refresh(true),
  lists: { jobs: "#/jobs", flows: "#/flows", queues: "#/queues" }, // as they were last shown, for the way back
  /** Change the address of this page: in place, or as a new entry of the history, which keeps the state. */
  replace(hash) {
    history.replaceState({ ...history.state, visited: true }, "", hash);
    context.lists[shell.name] = hash;
  },
  push(hash, state) {
    history.pushState({ ...state, visited: true }, "", hash);
    context.lists[shell.name] = hash;
  },
};

// -- drawing

function draw() {
  if (!drawing) drawing = requestAnimationFrame(paint);
}

function paint() {
  drawing = 0;
  if (shell.refused !== null) return render(root, login());
  if (!shell.me || !shell.page) return;
  const began = performance.now();
  const { title } = shell.page;
  const heading = typeof title === "function" ? title.call(shell.page) : title;
  document.title = `${heading} · Holdfast`;
  const onHeading = document.activeElement?.matches("h1");
  render(
    root,
    h("a", { class: "skip", href: "#main", on: { click: skip } }, "Skip to the content"),
    sidebar(),
    h(
      "main",
      { id: "main", tabindex: "-1" },
      banner(),
      h("div", { class: `page ${shell.name}`, key: shell.where }, shell.page.view()),
    ),
  );
  if (arrived || (onHeading && document.activeElement === document.body)) focusHeading();
  arrived = false;
  replay();
  shell.drawnAt = performance.now();
  shell.drawTook = shell.drawnAt - began;
}

/** Move the focus to the heading of the page, so that screen readers announce it. */
function focusHeading() {
  const heading = document.querySelector(".page h1");
  if (!heading || document.querySelector("dialog") || document.activeElement?.matches("input")) return;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function sidebar() {
  const { me, name } = shell;
  const connection = !up() ? ["lost", "Connection lost"] : CONNECTIONS.get(shell.live);
  return h(
    "aside",
    { class: "sidebar" },
    h(
      "a",
      { class: "brand", href: "#/" },
      h("img", { src: "dashboard/icon.svg", alt: "", width: "22", height: "22" }),
      "Holdfast",
    ),
    h(
      "nav",
      { "aria-label": "Pages" },
      PAGES.map(([key, label]) =>
        h(
          "a",
          { href: key === "overview" ? "#/" : `#/${key}`, "aria-current": key === name ? "page" : undefined },
          icon(key),
          h(
            "span",
            {},
            label.split(" ")[0],
            label.includes(" ") && h("span", { class: "more" }, ` ${label.split(" ")[1]}`),
          ),
        ),
      ),
    ),
    h(
      "div",
      { class: "foot" },
      h("p", { class: `connection ${connection[0]}` }, connection[1]),
      h("p", { class: "soft where" }, `${me.store} · ${me.version}${context.may("operate") ? "" : " · read-only"}`),
      h(
        "div",
        { class: "tools" },
        tool("search", "Commands (Ctrl-K)", findCommand),
        tool("sun", "Theme: light, dark or system", switchTheme),
        context.may("operate") && tool("audit", "Audit log", () => (location.hash = "#/audit")),
        tool("settings", "Settings", () => (location.hash = "#/settings")),
        tool("help", "Keyboard shortcuts", help),
        token.current() && tool("leave", "Log out", logOut),
      ),
    ),
  );
}

const tool = (name, label, click) =>
  h("button", { type: "button", class: "tool", title: label, "aria-label": label, on: { click } }, icon(name));

function logOut() {
  token.logOut();
  location.reload();
}

function retryNow() {
  live.retry();
  refresh(true);
}

function banner() {
  const { problem } = shell;
  if (!up())
    return h(
      "div",
      { class: "banner bad", role: "alert", key: "lost" },
      h("span", {}, "Connection lost: the server does not respond. Retrying; the data shown may be outdated."),
      button("Retry now", retryNow, { kind: "small" }),
    );
  if (problem)
    return h(
      "div",
      { class: "banner bad", role: "alert", key: "problem" },
      h("span", {}, plain(problem.message)),
      button("Try again", () => refresh(true), { kind: "small" }),
    );
  return null;
}

// -- refresh

/** Load the page's data again: now, or after the minimum interval. `still`: the stream has told of no change. */
async function refresh(now = false, still = false) {
  const { page } = shell;
  if (!page || (shell.refused !== null && !now)) return;
  if (shell.refreshing && !now) {
    shell.dirty = true;
    return;
  }
  shell.refreshing = true;
  shell.dirty = false;
  let began = performance.now();
  const before = requests();
  try {
    await page.load(still);
    if (page === shell.page) shell.problem = null;
    shell.unreachable = false;
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) return token.current() || shell.me ? showLogin(error.message) : undefined; // see start()
    if (page === shell.page && error.status !== 0) shell.problem = error;
    if (error.status === 0) {
      shell.unreachable = true;
      began = performance.now(); // a request without a response says nothing about the load of the server
    }
  } finally {
    shell.refreshedAt = performance.now();
    shell.took = shell.refreshedAt - began;
    shell.asked = requests() - before;
    shell.refreshing = false;
    if (page === shell.page) draw();
  }
}

const up = () => !shell.unreachable && shell.silentSince !== lastHeard();

/** Runs every 250 ms: refreshes if due, and redraws to update ages. */
function tick() {
  if (document.hidden || !shell.page) return;
  if (up() && silence(shell.live) > MAX_SILENCE) {
    shell.silentSince = lastHeard();
    draw();
  }
  const since = performance.now() - shell.refreshedAt;
  const took = Math.min(shell.took * 4, MAX_INTERVAL); // longer only if the machine was suspended meanwhile
  const interval = Math.max(MIN_INTERVAL, took);
  const wanted = shell.page.every || REFRESH_EVERY;
  const spent = (shell.took + shell.drawTook) / IDLE_SHARE;
  const sparing = Math.min(Math.max(shell.asked * IDLE_REQUEST, spent), MAX_INTERVAL);
  const idle = shell.page.busy ? wanted : Math.max(wanted, sparing);
  const every = shell.live ? idle : Math.min(wanted, REFRESH_EVERY);
  if (!shell.refreshing && ((shell.dirty && since > interval) || since > Math.max(every, took)))
    refresh(false, Boolean(shell.live) && !shell.dirty);
  if (performance.now() - shell.drawnAt > Math.max(REDRAW_EVERY, shell.drawTook / REDRAW_SHARE)) draw();
}

function changed(transitions, missed) {
  const { page } = shell;
  if (page?.concerns && !missed) {
    if (page.concerns(transitions)) shell.dirty = true;
  } else shell.dirty = true;
}

function streamState(streaming, error) {
  if (error?.status === 401) return showLogin("The token is no longer valid. Log in with another one.");
  shell.live = streaming;
  if (!document.hidden) refresh(); // what the stream missed, or whether the server responds at all
  draw();
}

// -- routing

function route() {
  const hash = location.hash.replace(/^#\/?/, "");
  const [path, search = ""] = hash.split("?");
  const [name = "overview", id] = path === "" ? ["overview"] : path.split("/");
  const known = [...PAGES, ...HIDDEN].find(([key]) => key === name) || PAGES[0];
  const where = id === undefined ? known[0] : hash;
  const position = history.state?.visited ? positions.get(location.hash) || 0 : 0;
  history.replaceState({ ...history.state, visited: true }, "");
  if (id === undefined && known[0] in context.lists) context.lists[known[0]] = location.hash;
  if (where === shell.where && shell.page.query) {
    shell.page.query(new URLSearchParams(search));
    return refresh(true).then(() => scrollTo(position));
  }
  arrived = Boolean(shell.page);
  if (shell.page?.stop) shell.page.stop();
  let decoded = id;
  try {
    decoded = id === undefined ? undefined : decodeURIComponent(id);
  } catch {
    // malformed percent-encoding: the id is used as it is
  }
  shell.name = known[0];
  shell.where = where;
  shell.problem = null;
  shell.page = decoded && known[4] ? known[4](context, decoded) : known[2](context, new URLSearchParams(search));
  shell.refreshing = false;
  pendingKeys = [];
  window.scrollTo(0, 0);
  draw();
  refresh(true).then(() => scrollTo(position));
}

/** After the page is drawn. */
const scrollTo = (position) => position && requestAnimationFrame(() => window.scrollTo(0, position));

// -- login

function showLogin(why) {
  shell.me = null;
  shell.refused = why;
  live?.stop();
  live = null;
  draw();
}

function login() {
  const submit = (event) => {
    event.preventDefault();
    token.useToken(new FormData(event.target).get("token").trim());
    start();
  };
  return h(
    "main",
    { class: "login", key: "login" },
    h(
      "form",
      { class: "panel", on: { submit } },
      h("img", { src: "dashboard/icon.svg", alt: "", width: "36", height: "36" }),
      h("h1", {}, "Holdfast"),
      shell.refused && h("p", { class: "bad", role: "alert" }, plain(shell.refused)),
      h("label", { for: "token" }, "Token"),
      h("input", {
        id: "token",
        name: "token",
        type: "password",
        required: true,
        autocomplete: "current-password",
        spellcheck: "false",
        mount: (element) => queueMicrotask(() => element.focus()),
      }),
      h("button", { type: "submit", class: "button primary" }, "Log in"),
      h("p", { class: "soft" }, "The token is kept until you close all tabs of the dashboard. Create one with:"),
      h("pre", {}, "holdfast token create --role read --role operate"),
    ),
  );
}

// -- keyboard and theme

function switchTheme() {
  const order = ["", "light", "dark"];
  const next = order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % 3];
  localStorage.setItem("holdfast.theme", next);
  document.documentElement.dataset.theme = next;
}

function help() {
  if (document.querySelector("dialog")) return;
  dialog("Keyboard shortcuts", (close) =>
    h(
      "div",
      { class: "dialog-body" },
      h("h2", {}, "Keyboard shortcuts"),
      h(
        "dl",
        { class: "keys" },
        KEYS.map(([key, what]) => [
          h(
            "dt",
            {},
            key.split(/(, | then )/).map((one) => (/^(, | then )$/.test(one) ? one : h("kbd", {}, one))),
          ),
          h("dd", {}, what),
        ]),
      ),
      h(
        "div",
        { class: "buttons" },
        button("Close", () => close(), { kind: "primary" }),
      ),
    ),
  );
}

function findCommand() {
  if (document.querySelector("dialog") || !shell.me) return;
  const out = token.current() ? [["Log out", logOut]] : [];
  const more = HIDDEN.filter(([key]) => key === "settings" || (key === "audit" && context.may("operate")));
  openPalette(context, [...PAGES, ...more], [["Switch theme", switchTheme], ["Show keyboard shortcuts", help], ...out]);
}

let going = 0; // when g was pressed

function key(event) {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && event.key.toLowerCase() === "k" && shell.me) {
    event.preventDefault();
    return findCommand();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog") || !shell.page) return;
  const { target } = event;
  if (target.matches("input, textarea, select")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (performance.now() - going < 1500) {
    going = 0;
    const to = PAGES.find((page) => page[3] === event.key);
    if (to) {
      location.hash = to[0] === "overview" ? "#/" : `#/${to[0]}`;
      return;
    }
  }
  if (event.key === "g") going = performance.now();
  else if (event.key === "?") help();
  else if (event.key === "/") {
    const search = document.querySelector("input[type=search]");
    if (search) search.focus();
    else location.hash = "#/jobs?find";
  } else if (shell.page.loading?.() && (LIST_KEYS[event.key] || (event.key === "Enter" && pendingKeys.length)))
    pendingKeys.push(event.key);
  else if (!LIST_KEYS[event.key] || !LIST_KEYS[event.key]()) return;
  event.preventDefault();
}

const LIST_KEYS = { j: () => move(1), k: () => move(-1), x: select };
let pendingKeys = []; // pressed while the list is loading

/** Apply the keys that were pressed while the list was loading. */
function replay() {
  if (!pendingKeys.length || shell.page.loading?.()) return;
  const keys = pendingKeys;
  pendingKeys = [];
  for (const one of keys) one === "Enter" ? document.activeElement.click() : LIST_KEYS[one]();
}

function select() {
  const row = document.activeElement.closest?.("[data-row]");
  const box = row?.querySelector("input[type=checkbox]");
  if (box) box.click();
  return Boolean(box);
}

/** Rows are links: the cursor is the focus, so that Enter and screen readers use it. */
function move(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return false;
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[Math.max(0, Math.min(rows.length - 1, here < 0 ? 0 : here + by))];
  (next.querySelector("[data-open]") || next).focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

// -- start

async function start() {
  let me;
  const loadingMe = get("v1/me");
  route(); // loads the page's data in parallel; it is shown after the roles are known
  try {
    me = await loadingMe;
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) {
      if (!token.current() && (await token.ask())) return start();
      token.onReceived(() => shell.refused !== null && start());
      return showLogin(token.current() ? error.message : "");
    }
    if (error.status === 0) {
      shell.unreachable = false;
      render(root, h("main", { class: "login" }, h("p", { class: "panel" }, "The server did not respond. Retrying…")));
      return setTimeout(start, 2000);
    }
    return failed(error);
  }
  if (!me.roles.includes("read")) return showLogin("This token lacks the role read. Log in with a token that has it.");
  token.accept();
  setClock(me.now);
  shell.me = me;
  shell.refused = null;
  live?.stop();
  live = new Live(changed, streamState);
  draw();
}

document.documentElement.dataset.theme = localStorage.getItem("holdfast.theme") || "";
window.addEventListener("hashchange", () => shell.me && route());
window.addEventListener("keydown", key);
window.addEventListener("scroll", () => positions.set(location.hash, window.scrollY), { passive: true });
history.scrollRestoration = "manual";
document.addEventListener("visibilitychange", () => !document.hidden && refresh());
setInterval(tick, 250);
start();
