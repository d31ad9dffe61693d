// Jobs: filters, search as you type, cursor pages, and actions on selected or all matching jobs.

import { get, now } from "./api.js";
import { change, countAll } from "./bulk.js";
import { h } from "./dom.js";
import { at, count, line, plural } from "./format.js";
import { enqueueJob } from "./jobforms.js";
import {
  bar,
  button,
  cursorsOf,
  ENDED,
  empty,
  exact,
  FIRST_JOB,
  failed,
  jobHref,
  jobName,
  jobsHref,
  lasted,
  muted,
  STATES,
  shortId,
  state,
  when,
  workerName,
} from "./parts.js";
import { savedFilters, saveFilter } from "./saved.js";

const TIMES = [
  ["", "Any time"],
  ["900", "Last 15 min"],
  ["3600", "Last hour"],
  ["86400", "Last 24 h"],
  ["604800", "Last 7 days"],
];
const ROWS = 50;
const TYPING_PAUSE = 160; // milliseconds after the last key until the search starts

export default function jobs(context, search) {
  let filters = read(search);
  let shown = null; // the filters of the rows on the page
  let cursors = cursorsOf(search);
  let found = null;
  let further = null; // the search that continues in the background: {stopped}
  let long = false; // the rows are of such a search, which live updates do not repeat
  let stats = null;
  let chosen = new Set();
  let all = false; // all matching jobs are selected, not only those of the page
  let matching = null;
  let timer = 0;
  let abort = null;
  const tasks = new Set();
  let focus = search.has("find");

  function read(params) {
    return {
      text: params.get("text") || "",
      state: params.getAll("state").filter((one) => STATES.includes(one)),
      queue: params.get("queue") || "",
      type: params.get("type") || "",
      tag: params.get("tag") || "",
      since: params.get("since") || "",
      error: params.get("error") || "",
      group: params.get("group") || "", // the name of the error group
    };
  }

  /** The filter in the form of the API. */
  function apiFilter() {
    const { since, group: _, ...rest } = filters;
    const made = {};
    for (const [name, value] of Object.entries(rest)) {
      const given = ["type", "tag"].includes(name) ? value.trim() : value;
      if (given.length) made[name] = given;
    }
    if (since) made.since = new Date(now() - Number(since) * 1000).toISOString();
    return made;
  }

  async function load() {
    if (long && shown === filters) {
      stats = await get("v1/stats");
      return;
    }
    if (abort) abort.abort();
    abort = new AbortController();
    const cursor = cursors.at(-1);
    const asked = filters;
    const counting = get("v1/stats", null, { signal: abort.signal });
    counting.catch(() => {}); // reported below
    try {
      found = await get("v1/search", { ...apiFilter(), limit: ROWS, cursor }, { signal: abort.signal });
    } catch (error) {
      if (error.name !== "AbortError") shown = asked;
      throw error;
    }
    shown = asked;
    for (const job of found.jobs) if (tasks.size < 200) tasks.add(job.type);
    context.draw();
    stats = await counting;
    goOn(asked);
  }

  /**
   * Search the jobs behind those that were searched, until a page is full, all were searched, or Stop is pressed. A text
   * that is an id, key or worker has found what it names.
   */
  async function goOn(asked) {
    const mine = { stopped: false };
    const { signal } = abort;
    further = mine;
    const wanted = () => further === mine && !mine.stopped && shown === asked && !signal.aborted;
    try {
      while (wanted() && found.cursor && found.jobs.length < ROWS && !found.exact) {
        long = true;
        const limit = ROWS - found.jobs.length;
        const more = await get("v1/search", { ...apiFilter(), limit, cursor: found.cursor }, { signal });
        if (!wanted()) break;
        const known = new Set(found.jobs.map((job) => job.id));
        found = {
          jobs: [...found.jobs, ...more.jobs.filter((job) => !known.has(job.id))],
          cursor: more.cursor,
          looked: found.looked + more.looked,
          back_to: more.back_to || found.back_to,
        };
        context.draw();
      }
    } catch (error) {
      if (error.name !== "AbortError") failed(error);
    }
    if (further === mine) further = null;
    context.draw();
  }

  function stopSearch() {
    if (further) further.stopped = true;
    further = null;
    context.draw();
  }

  function set(changes, typed = false) {
    filters = { ...filters, ...changes };
    further = null;
    long = false;
    cursors = [null];
    chosen = new Set();
    all = false;
    context.replace(jobsHref(filters));
    context.draw();
    clearTimeout(timer);
    if (typed) timer = setTimeout(context.reload, TYPING_PAUSE);
    else context.reload();
  }

  function changePage(by) {
    further = null;
    long = false;
    cursors = by > 0 ? [...cursors, found.cursor] : cursors.slice(0, -1);
    context.push(jobsHref({ ...filters, cursor: cursors.at(-1) }), { cursors });
    shown = null;
    chosen = new Set();
    all = false;
    context.reload().then(() => window.scrollTo(0, 0));
  }

  function clear() {
    chosen = new Set();
    all = false;
    context.draw();
  }

  async function selectAll() {
    all = true;
    matching = null;
    context.draw();
    try {
      matching = await countAll(apiFilter(), (number) => {
        matching = { count: number, exact: false };
        context.draw();
        return all;
      });
    } catch (error) {
      failed(error);
    }
    context.draw();
  }

  async function act(action) {
    try {
      if (await change(action, all ? { filter: apiFilter(), group: filters.group } : { ids: [...chosen] })) {
        chosen = new Set();
        all = false;
        long = false;
        cursors = [null];
        context.replace(jobsHref(filters));
        context.reload();
      }
    } catch (error) {
      failed(error);
    }
  }

  function pick(id, on) {
    all = false;
    if (on) chosen.add(id);
    else chosen.delete(id);
    context.draw();
  }

  function view() {
    return [
      h(
        "div",
        { class: "title job-title" },
        h("h1", {}, "Jobs"),
        h("span", { class: "space" }),
        context.may("submit") && button("Enqueue…", () => enqueueJob(), { icon: "add" }),
      ),
      toolbar(),
      found ? listing() : h("p", { class: "loading" }, "Loading…"),
    ];
  }

  function toolbar() {
    const counts = stats ? stats.counts : {};
    const queues = stats ? stats.queues.map((one) => one.name) : [];
    if (filters.queue && !queues.includes(filters.queue)) queues.unshift(filters.queue);
    const input = (name, label, more) =>
      h(
        "div",
        { class: "field" },
        h("input", {
          type: "text",
          "aria-label": label,
          placeholder: label,
          value: filters[name],
          spellcheck: "false",
          autocomplete: "off",
          on: { input: (event) => set({ [name]: event.target.value }, true) },
          ...more,
        }),
      );
    return h(
      "div",
      { class: "filters" },
      h(
        "div",
        { class: "row" },
        h(
          "div",
          { class: "field search" },
          h("input", {
            type: "search",
            "aria-label": "Search",
            placeholder: "Search ids, keys, workers, errors, arguments (args.name:value)",
            value: filters.text,
            maxlength: "200",
            spellcheck: "false",
            autocomplete: "off",
            "aria-keyshortcuts": "/",
            on: { input: (event) => set({ text: event.target.value }, true) },
            mount: (element) => {
              if (focus) queueMicrotask(() => element.focus());
              focus = false;
            },
          }),
          h("kbd", { "aria-hidden": "true" }, "/"),
        ),
        h(
          "div",
          { class: "field" },
          h(
            "select",
            {
              "aria-label": "Queue",
              value: filters.queue,
              on: { change: (event) => set({ queue: event.target.value }) },
            },
            h("option", { value: "", key: "any" }, "All queues"),
            queues.map((name) => h("option", { value: name, key: `queue ${name}` }, line(name, 40))),
          ),
        ),
        input("type", "Task", { list: "tasks" }),
        h(
          "datalist",
          { id: "tasks" },
          [...tasks].sort().map((name) => h("option", { value: name, key: name })),
        ),
        input("tag", "Tag"),
        h(
          "div",
          { class: "field" },
          h(
            "select",
            {
              "aria-label": "Enqueued",
              value: filters.since,
              on: { change: (event) => set({ since: event.target.value }) },
            },
            TIMES.map(([value, label]) => h("option", { value, key: `time ${value}` }, label)),
          ),
        ),
      ),
      h(
        "div",
        { class: "chips", role: "group", "aria-label": "States" },
        STATES.map((name) => {
          const on = filters.state.includes(name);
          const next = on ? filters.state.filter((one) => one !== name) : [...filters.state, name];
          return h(
            "button",
            { type: "button", class: "chip", "aria-pressed": String(on), on: { click: () => set({ state: next }) } },
            state(name),
            h("span", { class: "soft num" }, stats ? count(counts[name] || 0) : "…"),
          );
        }),
        filters.error &&
          h(
            "button",
            {
              type: "button",
              class: "chip",
              "aria-pressed": "true",
              on: { click: () => set({ error: "", group: "" }) },
            },
            filters.group ? line(filters.group, 80) : "one error group",
            h("span", { "aria-hidden": "true" }, "×"),
          ),
        Object.values(filters).some((one) => one.length) && [
          h(
            "button",
            { type: "button", class: "link", on: { click: () => set(read(new URLSearchParams())) } },
            "Clear filters",
          ),
          h("button", { type: "button", class: "link", on: { click: save } }, "Save filter"),
        ],
      ),
      savedList(),
    );
  }

  const save = () => saveFilter(jobsHref(filters)).then(context.draw);

  function savedList() {
    const saved = savedFilters();
    if (!saved.length) return null;
    return h(
      "ul",
      { class: "chips saved", "aria-label": "Saved filters" },
      saved.map(({ name, hash }) =>
        h(
          "li",
          { key: name },
          h(
            "a",
            { class: "chip", href: hash, "aria-current": hash === jobsHref(filters) ? "true" : undefined },
            line(name, 60),
          ),
        ),
      ),
    );
  }

  function listing() {
    const { jobs } = found;
    const total = stats ? Object.values(stats.counts).reduce((a, b) => a + b, 0) : 1;
    if (!total && !jobs.length) return empty("No jobs yet", "Enqueue a job and start a worker:", FIRST_JOB);
    return [
      selection(),
      jobs.length
        ? h(
            "table",
            { class: "list jobs" },
            h("caption", { class: "hidden" }, "Jobs, newest first"),
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                context.may("operate") && h("th", { class: "tick" }, everyBox(jobs)),
                h("th", { scope: "col" }, "State"),
                h("th", { scope: "col" }, "Task and arguments"),
                h("th", { scope: "col" }, "Queue"),
                h("th", { scope: "col", class: "right" }, "Attempt"),
                h("th", { scope: "col" }, "When"),
                h("th", { scope: "col", class: "right" }, "Ran"),
              ),
            ),
            h("tbody", {}, jobs.map(row)),
          )
        : empty(
            found.cursor ? (further ? "Searching…" : "No match yet") : "No job matches",
            found.cursor ? null : "Use fewer filters or another search text.",
          ),
      pages(),
    ];
  }

  function everyBox(jobs) {
    const on = jobs.length > 0 && jobs.every((job) => chosen.has(job.id));
    const click = (event) => {
      all = false;
      chosen = new Set(event.target.checked ? jobs.map((job) => job.id) : []);
      context.draw();
    };
    return h("input", {
      type: "checkbox",
      "aria-label": "Select all on this page",
      checked: on || all,
      indeterminate: !on && chosen.size > 0,
      on: { click },
    });
  }

  function row(job) {
    const name = jobName(job, 80);
    return h(
      "tr",
      { key: job.id, "data-row": true, class: chosen.has(job.id) || all ? "chosen" : undefined },
      context.may("operate") &&
        h(
          "td",
          { class: "tick" },
          h("input", {
            type: "checkbox",
            "aria-label": `Select ${name} ${shortId(job.id)}`,
            checked: chosen.has(job.id) || all,
            on: { click: (event) => pick(job.id, event.target.checked) },
          }),
        ),
      h("td", { class: "state-cell" }, state(job.status), job.cancel_requested && muted(" cancelling")),
      h(
        "td",
        { class: "what" },
        h("a", { href: jobHref(job.id), "data-open": true, title: line(job.id, 200) }, name),
        job.tags.map((tag) => h("span", { class: "tag" }, line(tag, 30))),
        h("div", { class: "args mono soft", title: line(job.payload, 200) }, line(job.payload, 160)),
        job.error &&
          !["succeeded", "cancelled"].includes(job.status) &&
          h("div", { class: "error", title: line(job.error, 200) }, line(job.error, 160)),
        job.status === "running" && job.progress && bar(job.progress.done, job.progress.total, job.progress.note),
      ),
      h("td", { class: "queue-cell" }, line(job.queue, 40)),
      h(
        "td",
        { class: "right num attempt-cell" },
        h("span", { class: "only-phone soft" }, "attempt "),
        `${job.attempts}`,
        muted(job.max_attempts ? ` / ${job.max_attempts}` : ""),
      ),
      h("td", { class: "when-cell" }, stateTime(job)),
      h(
        "td",
        { class: "right num ran-cell" },
        job.started_at && (ENDED.has(job.status) || job.status === "running")
          ? lasted(job.started_at, job.finished_at)
          : muted("–"),
      ),
    );
  }

  /** The time that matters for the job's state. */
  function stateTime(job) {
    if (ENDED.has(job.status)) return when(job.finished_at || job.created_at);
    if (job.status === "running")
      return h(
        "span",
        { title: `${workerName(job.worker)}, since ${exact(job.started_at)}` },
        "since ",
        at(job.started_at),
      );
    if (job.status === "scheduled" || job.status === "failed") return when(job.run_at, "due");
    return when(job.created_at);
  }

  function selection() {
    if (!chosen.size && !all) return null;
    const shown = found.jobs.length;
    const many = all
      ? matching
        ? `${matching.exact ? "All" : "At least"} ${plural(matching.count, "matching job")}`
        : "All matching jobs"
      : plural(chosen.size, "job");
    return h(
      "div",
      { class: "selection", role: "region", "aria-label": "Selected jobs" },
      h("span", { role: "status" }, `${many} selected`),
      !all &&
        chosen.size === shown &&
        (found.cursor || cursors.length > 1) &&
        h("button", { type: "button", class: "link", on: { click: selectAll } }, "Select all matching jobs"),
      h("span", { class: "space" }),
      button("Retry", () => act("retry"), { icon: "retry" }),
      button("Cancel", () => act("cancel"), { icon: "cancel" }),
      button("Delete", () => act("delete"), { icon: "delete", kind: "danger" }),
      h("button", { type: "button", class: "link", on: { click: clear } }, "Clear"),
    );
  }

  function pages() {
    const ended = found.cursor && found.jobs.length < ROWS;
    const searched = filters.text || filters.error || filters.since;
    return h(
      "div",
      { class: "pages" },
      h(
        "span",
        { class: "soft", role: "status" },
        searched
          ? `${further ? "Searching: " : "Searched "}${plural(found.looked, "job")}${found.back_to ? `, enqueued since ${at(found.back_to)}` : ""}.`
          : cursors.length > 1
            ? `Page ${cursors.length}`
            : "",
      ),
      h("span", { class: "space" }),
      further && searched && button("Stop", stopSearch, { kind: "small" }),
      button("Newer", () => changePage(-1), { disabled: cursors.length === 1 }),
      button(ended ? "Search further" : "Older", () => changePage(1), { disabled: !found.cursor }),
    );
  }

  return {
    title: "Jobs",
    load,
    view,
    loading: () => shown !== filters,
    query: (params) => {
      if (params.has("find")) return;
      filters = read(params);
      further = null;
      long = false;
      cursors = cursorsOf(params);
      shown = null;
      chosen = new Set();
      all = false;
    },
    stop: () => {
      further = null;
      clearTimeout(timer);
      abort?.abort();
    },
  };
}
