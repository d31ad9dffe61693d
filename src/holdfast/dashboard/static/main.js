// The frame around the pages: who is logged in, where one is, what the keys do, and whether the line is up.

import { get, hasToken, Stream, setClock, useToken } from "./api.js";
import dead from "./dead.js";
import { h, render } from "./dom.js";
import errors from "./errors.js";
import { plain } from "./format.js";
import job from "./job.js";
import jobs from "./jobs.js";
import overview from "./overview.js";
import { button, dialog, failed, icon } from "./parts.js";
import queues from "./queues.js";
import schedules from "./schedules.js";
import workers from "./workers.js";

const PAGES = [
  ["overview", "Overview", overview, "o"],
  ["jobs", "Jobs", jobs, "b"],
  ["queues", "Queues", queues, "q"],
  ["schedules", "Schedules", schedules, "s"],
  ["workers", "Workers", workers, "w"],
  ["dead", "Dead letters", dead, "d"],
  ["errors", "Errors", errors, "e"],
];
const KEYS = [
  ["/", "search"],
  ["j, k", "next, previous row"],
  ["Enter", "open the row"],
  ["x", "select the row"],
  ["g then o, b, q, s, w, d, e", "go to overview, jobs, queues, schedules, workers, dead letters, errors"],
  ["?", "this list"],
];
const EVERY = 5000; // milliseconds after which a page is read again even where nothing moved
const SOONEST = 900; // milliseconds between two readings, however much moves

const root = document.getElementById("app");
const shell = {
  me: null, // {roles, version, store, extras}
  refused: null, // why the login did not work
  page: null,
  name: "",
  line: { live: true, wait: 0 }, // of the stream of events
  unread: false, // the last reading failed for want of an answer
  readAt: 0,
  took: 0,
  reading: false,
  dirty: false,
  problem: null,
};
let stream = null;
let drawing = 0;

/** What a page is given: who asks, and how it is drawn and read again. */
const context = {
  may: (role) => shell.me?.roles.includes(role) ?? false,
  has: (extra) => shell.me?.extras.includes(extra) ?? false,
  draw,
  reload: () => read(true),
  replace(hash) {
    history.replaceState(null, "", hash);
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
  const { title } = shell.page;
  const heading = typeof title === "function" ? title.call(shell.page) : title;
  document.title = `${heading} · Holdfast`;
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
  replay();
}

function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function sidebar() {
  const { me, name } = shell;
  const live = up();
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
      h("p", { class: `line ${live ? "live" : "lost"}` }, live ? "Live" : "Connection lost"),
      h("p", { class: "soft where" }, `${me.store} · ${me.version}${context.may("operate") ? "" : " · read-only"}`),
      h(
        "div",
        { class: "tools" },
        tool("sun", "Light, dark or as the system", switchTheme),
        tool("help", "Keys", help),
        hasToken() && tool("leave", "Log out", logOut),
      ),
    ),
  );
}

const tool = (name, label, click) =>
  h("button", { type: "button", class: "tool", title: label, "aria-label": label, on: { click } }, icon(name));

function logOut() {
  useToken("");
  location.reload();
}

function tryNow() {
  stream.retry();
  read(true);
}

function banner() {
  const { line, problem } = shell;
  if (!up()) {
    const wait = line.wait === null ? "" : " Trying again in a moment; what you see may be old.";
    return h(
      "div",
      { class: "banner bad", role: "alert", key: "lost" },
      h("span", {}, `Connection lost.${wait}`),
      button("Try now", tryNow, { kind: "small" }),
    );
  }
  if (problem)
    return h(
      "div",
      { class: "banner bad", role: "alert", key: "problem" },
      h("span", {}, plain(problem.message)),
      button("Try again", () => read(true), { kind: "small" }),
    );
  return null;
}

// -- reading

/** Read the page's data again: now, or as soon as is decent. */
async function read(now = false) {
  const { page } = shell;
  if (!page || (shell.refused !== null && !now)) return;
  if (shell.reading && !now) {
    shell.dirty = true;
    return;
  }
  shell.reading = true;
  shell.dirty = false;
  const began = performance.now();
  try {
    await page.load();
    if (page === shell.page) shell.problem = null;
    shell.unread = false;
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) return ask(hasToken() ? error.message : "");
    if (page === shell.page && error.status !== 0) shell.problem = error;
    if (error.status === 0) shell.unread = true;
  } finally {
    shell.readAt = performance.now();
    shell.took = shell.readAt - began;
    shell.reading = false;
    if (page === shell.page) draw();
  }
}

const up = () => shell.line.live && !shell.unread;

/** Four times a second: is it time to read again? And once a second the ages go on. */
let ticks = 0;
function tick() {
  if (document.hidden || !shell.page) return;
  const since = performance.now() - shell.readAt;
  const soonest = Math.max(SOONEST, shell.took * 4);
  if (
    !shell.reading &&
    ((shell.dirty && since > soonest) || since > Math.max(shell.page.every || EVERY, shell.took * 4))
  )
    read();
  ticks += 1;
  if (ticks % 4 === 0) draw();
}

function changed(transitions, missed) {
  const { page } = shell;
  if (page?.concerns && !missed) {
    if (page.concerns(transitions)) shell.dirty = true;
  } else shell.dirty = true;
}

function lineState(live, wait, error) {
  if (error && error.status === 401) return ask("This token is no longer known here.");
  const back = live && !shell.line.live;
  shell.line = { live, wait };
  if (back) read(true);
  draw();
}

// -- where one is

function route() {
  const hash = location.hash.replace(/^#\/?/, "");
  const [path, search = ""] = hash.split("?");
  const [name = "overview", id] = path === "" ? ["overview"] : path.split("/");
  const known = PAGES.find(([key]) => key === name) || PAGES[0];
  const where = id === undefined ? known[0] : hash;
  if (where === shell.where && shell.page.query) {
    shell.page.query(new URLSearchParams(search));
    return read(true);
  }
  if (shell.page?.stop) shell.page.stop();
  let decoded = id;
  try {
    decoded = id === undefined ? undefined : decodeURIComponent(id);
  } catch {
    // an address that somebody mistyped is taken as it stands
  }
  shell.name = known[0];
  shell.where = where;
  shell.problem = null;
  shell.page = known[0] === "jobs" && decoded ? job(context, decoded) : known[2](context, new URLSearchParams(search));
  shell.reading = false;
  held = [];
  window.scrollTo(0, 0);
  draw();
  read(true);
}

// -- login

function ask(why) {
  if (stream) stream.stop();
  stream = null;
  shell.me = null;
  shell.refused = why;
  draw();
}

function login() {
  const submit = (event) => {
    event.preventDefault();
    useToken(new FormData(event.target).get("token").trim());
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
      h("p", { class: "soft" }, "It is kept in this tab alone. To make one:"),
      h("pre", {}, "holdfast token create --role read --role operate"),
    ),
  );
}

// -- keys and looks

function switchTheme() {
  const order = ["", "light", "dark"];
  const next = order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % 3];
  localStorage.setItem("holdfast.theme", next);
  document.documentElement.dataset.theme = next;
}

function help() {
  if (document.querySelector("dialog")) return;
  dialog("Keys", (close) =>
    h(
      "div",
      { class: "ask" },
      h("h2", {}, "Keys"),
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

let going = 0; // when g was pressed

function key(event) {
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
  } else if (shell.page.loading?.() && (LIST_KEYS[event.key] || (event.key === "Enter" && held.length)))
    held.push(event.key);
  else if (!LIST_KEYS[event.key] || !LIST_KEYS[event.key]()) return;
  event.preventDefault();
}

const LIST_KEYS = { j: () => move(1), k: () => move(-1), x: select };
let held = []; // keys for a list that is still being read

/** Keys that were pressed while the list was read are meant for the list that came. */
function replay() {
  if (!held.length || shell.page.loading?.()) return;
  const keys = held;
  held = [];
  for (const one of keys) one === "Enter" ? document.activeElement.click() : LIST_KEYS[one]();
}

function select() {
  const row = document.activeElement.closest?.("[data-row]");
  const box = row?.querySelector("input[type=checkbox]");
  if (box) box.click();
  return Boolean(box);
}

/** Rows are links: the focus is the cursor, so that Enter and screen readers know it too. */
function move(by) {
  const rows = [...document.querySelectorAll("[data-row]")];
  if (!rows.length) return false;
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[Math.max(0, Math.min(rows.length - 1, here < 0 ? 0 : here + by))];
  (next.querySelector("[data-open]") || next).focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

// -- begin

async function start() {
  let me;
  const asking = get("v1/me");
  route(); // its data are read meanwhile, and shown once it is known who asks
  try {
    me = await asking;
  } catch (error) {
    if (error.name === "AbortError") return;
    if (error.status === 401) return ask(hasToken() ? error.message : "");
    if (error.status === 0) {
      shell.unread = false;
      render(
        root,
        h("main", { class: "login" }, h("p", { class: "panel" }, "The server does not answer. Trying again…")),
      );
      return setTimeout(start, 2000);
    }
    return failed(error);
  }
  if (!me.roles.includes("read")) return ask("This token may not look: it lacks the role read.");
  setClock(me.now);
  shell.me = me;
  shell.refused = null;
  if (stream) stream.stop();
  stream = new Stream(changed, lineState);
  draw();
}

document.documentElement.dataset.theme = localStorage.getItem("holdfast.theme") || "";
window.addEventListener("hashchange", () => shell.me && route());
window.addEventListener("keydown", key);
document.addEventListener("visibilitychange", () => !document.hidden && read());
setInterval(tick, 250);
start();
