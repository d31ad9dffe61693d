// The command palette (Ctrl-K): finds pages, jobs by id, queues, tasks, saved filters and actions.

import { get, post } from "./api.js";
import { h } from "./dom.js";
import { flowHref } from "./flows.js";
import { line } from "./format.js";
import { dialog, failed, jobHref, jobName, jobsHref, STATES, toast } from "./parts.js";
import { pauseQueue } from "./queues.js";
import { queueHref } from "./reasons.js";
import { removeFilter, savedFilters, saveFilter } from "./saved.js";

const SHOWN = 14; // results
const ID = /^[^\s]{12,512}$/; // what may be a pasted id or key
const TYPING_PAUSE = 200; // milliseconds after the last key until jobs are looked up

const go = (hash) => () => (location.hash = hash);

/** The commands that do not depend on the store: [{kind, label, run}]. */
function fixed(context, pages, tools) {
  const filters = savedFilters();
  return [
    ...pages.map(([key, label]) => ({ kind: "Page", label, run: go(key === "overview" ? "#/" : `#/${key}`) })),
    ...filters.map(({ name, hash }) => ({ kind: "Filter", label: name, run: go(hash) })),
    ...STATES.map((name) => ({ kind: "Jobs", label: `Jobs: ${name}`, run: go(jobsHref({ state: name })) })),
    ...tools.map(([label, run]) => ({ kind: "Action", label, run })),
    location.hash.startsWith("#/jobs?") && {
      kind: "Action",
      label: "Save this filter",
      run: () => saveFilter(location.hash).then(context.draw),
    },
    ...filters.map(({ name }) => ({ kind: "Action", label: `Remove filter ${name}`, run: () => removeFilter(name) })),
  ].filter(Boolean);
}

/** The commands of the store's queues, tasks and pauses. */
async function stored(context) {
  const [stats, workers, paused] = await Promise.all([get("v1/stats"), get("v1/workers"), get("v1/tasks/paused")]);
  const tasks = new Set([...workers.workers.flatMap((one) => one.tasks), ...paused.paused.map((one) => one.task)]);
  const operate = context.may("operate");
  const resume = async ({ task, where }) => {
    try {
      await post(`v1/tasks/${encodeURIComponent(task)}/resume`, { where });
      toast(`Task ${line(task, 80)} resumed`);
      context.reload();
    } catch (error) {
      failed(error);
    }
  };
  return [
    ...stats.queues.map(({ name }) => ({ kind: "Queue", label: name, run: go(queueHref(name)) })),
    ...[...tasks].sort().map((task) => ({ kind: "Task", label: task, run: go(jobsHref({ type: task })) })),
    ...(operate ? stats.queues : []).map((queue) => ({
      kind: "Action",
      label: `${queue.paused ? "Resume" : "Pause"} queue ${queue.name}`,
      run: () => pauseQueue(queue, context.reload),
    })),
    ...(operate ? paused.paused : []).map((one) => ({
      kind: "Action",
      label: `Resume task ${one.task}`,
      run: () => resume(one),
    })),
  ];
}

/** Jobs, flows and keys that match a pasted id. */
async function jobsOf(text, signal) {
  const { jobs } = await get("v1/search", { text, limit: 5 }, { signal });
  return jobs.map((job) => {
    const flow = job.type === "flow";
    const label = `${flow ? "flow" : jobName(job, 60)} ${job.id}`;
    return { kind: flow ? "Flow" : "Job", label, note: job.status, run: go(flow ? flowHref(job.id) : jobHref(job.id)) };
  });
}

/** The commands that contain all words, those that begin with the text first. */
function matching(commands, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = commands.filter(({ label, kind }) => {
    const name = `${kind} ${label}`.toLowerCase();
    return words.every((word) => name.includes(word));
  });
  const begins = ({ label }) => (label.toLowerCase().startsWith(text.toLowerCase()) ? 0 : 1);
  return text ? found.sort((a, b) => begins(a) - begins(b)) : found;
}

/** Open the palette. `tools`: [[label, run]] of the shell. */
export function openPalette(context, pages, tools) {
  let commands = fixed(context, pages, tools);
  let text = "";
  let jobs = [];
  let at = 0;
  let timer = 0;
  let abort = null;
  let update = () => {};
  let loaded = false;

  function results() {
    const found = [...jobs, ...matching(commands, text)].slice(0, text ? SHOWN - 2 : SHOWN);
    if (!text) return found;
    const open = { kind: "Job", label: `Open job ${text}`, run: go(jobHref(text)) };
    const search = { kind: "Jobs", label: `Search jobs for ${text}`, run: go(jobsHref({ text: text.slice(0, 200) })) };
    return [...found, search, ...(/\s/.test(text) ? [] : [open])];
  }

  function type(event) {
    text = event.target.value.trim();
    at = 0;
    jobs = [];
    clearTimeout(timer);
    abort?.abort();
    if (ID.test(text)) timer = setTimeout(look, TYPING_PAUSE);
    update();
  }

  async function look() {
    abort = new AbortController();
    try {
      jobs = await jobsOf(text, abort.signal);
      update();
    } catch (error) {
      failed(error);
    }
  }

  function key(event, close) {
    const found = results();
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) at = (at + by + found.length) % found.length;
    else if (event.key === "Enter" && found[at]) close(found[at].run);
    else return;
    event.preventDefault();
    update();
  }

  function content(close, redraw) {
    update = redraw;
    if (!loaded) {
      loaded = true;
      stored(context)
        .then((more) => {
          commands = [...commands, ...more];
          redraw();
        })
        .catch(failed);
    }
    const found = results();
    return h(
      "div",
      { class: "palette" },
      h("input", {
        type: "text",
        role: "combobox",
        "aria-label": "Find a page, job id, queue, task or action",
        placeholder: "Find a page, job id, queue, task or action",
        "aria-expanded": "true",
        "aria-controls": "palette-results",
        "aria-autocomplete": "list",
        "aria-activedescendant": found.length ? `palette-${at}` : undefined,
        autocomplete: "off",
        spellcheck: "false",
        maxlength: "512",
        on: { input: type, keydown: (event) => key(event, close) },
        mount: (element) => queueMicrotask(() => element.focus()),
      }),
      h(
        "ul",
        { id: "palette-results", role: "listbox", "aria-label": "Results" },
        found.map(({ kind, label, note, run }, number) =>
          h(
            "li",
            {
              id: `palette-${number}`,
              key: `${number} ${kind} ${label}`,
              role: "option",
              "aria-selected": String(number === at),
              on: { click: () => close(run) },
              update: (element) => number === at && element.scrollIntoView({ block: "nearest" }),
            },
            h("span", { class: "kind soft" }, kind),
            h("span", { class: "label" }, line(label, 160)),
            note && h("span", { class: "soft" }, note),
          ),
        ),
      ),
    );
  }

  return dialog("Commands", content).then((run) => {
    clearTimeout(timer);
    abort?.abort();
    run?.();
  });
}
