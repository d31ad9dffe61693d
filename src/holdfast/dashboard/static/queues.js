// Queues: depth, rates and latency; pause and resume; and paused tasks.

import { get, now, post } from "./api.js";
import { TROUBLES } from "./attention.js";
import { sparkline } from "./chart.js";
import { h } from "./dom.js";
import { age, brief, count, line, plural, span } from "./format.js";
import { pauseTask } from "./jobforms.js";
import { button, confirm, empty, FIRST_JOB, failed, jobsHref, loading, muted, toast, when } from "./parts.js";
import { queueHref } from "./reasons.js";
import { KEEP } from "./timeline.js";
import { rowWindow } from "./virtual.js";

const SPAN = 900; // seconds over which rates and latencies are computed
const WAITING = ["queued", "blocked", "failed", "scheduled"];
const FEW = 8; // queues from which a search is offered
const MINUTES = 60; // of the depth curves
const ONLY = { paused: "paused, with waiting jobs", unserved: "without a live worker", behind: "behind" };

const COLUMNS = [
  ["name", "Queue", (queue) => queue.name],
  ["depth", "Depth, 1 h", null],
  ["queued", "Queued", (queue) => queue.counts.queued || 0],
  ["running", "Running", (queue) => queue.counts.running || 0],
  ["scheduled", "Scheduled", (queue) => queue.counts.scheduled || 0],
  ["blocked", "Blocked", (queue) => queue.counts.blocked || 0],
  ["failed", "Failed", (queue) => queue.counts.failed || 0],
  ["dead", "Dead", (queue) => queue.counts.dead || 0],
  ["ended", "Ended", (queue) => ended(queue)],
  ["rate", "Per min", (queue, rates) => rates.get(queue.name)?.count || 0],
  ["wait", "Wait", (queue, rates) => mean(rates.get(queue.name), "waited")],
  ["run", "Run", (queue, rates) => mean(rates.get(queue.name), "ran")],
  ["oldest", "Oldest", (queue) => (queue.oldest ? age(queue.oldest) : 0)],
  ["workers", "Workers", (queue) => queue.listeners],
];
const SORTED = new Map(COLUMNS.filter(([, , value]) => value).map(([key, , value]) => [key, value]));

const ended = ({ counts }) => (counts.succeeded || 0) + (counts.cancelled || 0);
const mean = (sums, name) => (sums?.count ? sums[name] / sums.count : 0);

/** The sums of the ended claims of each queue. */
function ratesByQueue(rates) {
  const found = new Map();
  for (const one of rates) {
    const sums = found.get(one.queue) || { count: 0, waited: 0, ran: 0 };
    for (const name in sums) sums[name] += one[name];
    found.set(one.queue, sums);
  }
  return found;
}

/** The recorded minutes that the curves show; `whole`: all queues with jobs were recorded. */
function minutesOf(depths) {
  const minute = (time) => Math.floor(time / 60000);
  const first = minute(now()) - MINUTES + 1;
  return depths
    .map(({ at, queued, queues }) => ({
      slot: minute(Date.parse(at)) - first,
      queues,
      whole: Object.values(queues).reduce((a, b) => a + b, 0) === queued,
    }))
    .filter(({ slot }) => slot >= 0 && slot < MINUTES);
}

/** The depth of a queue for each of the last minutes, and now; null if it was not recorded. */
function depthsOf(queue, minutes) {
  const values = new Array(MINUTES).fill(null);
  for (const { slot, queues, whole } of minutes) {
    if (Object.hasOwn(queues, queue.name)) values[slot] = queues[queue.name];
    else if (whole) values[slot] = 0;
  }
  return [...values, queue.counts.queued || 0];
}

/** Pause or resume a queue; the user confirms a pause. */
export async function pauseQueue(queue, done) {
  const path = `v1/queues/${encodeURIComponent(queue.name)}`;
  try {
    if (queue.paused) await post(`${path}/resume`);
    else {
      if (
        !(await confirm(
          `Pause ${line(queue.name, 60)}?`,
          "Its jobs wait until the queue is resumed. Running jobs continue.",
          "Pause queue",
          "primary",
        ))
      )
        return;
      await post(`${path}/pause`);
    }
    toast(`Queue ${queue.name} ${queue.paused ? "resumed" : "paused"}`);
    done();
  } catch (error) {
    failed(error);
  }
}

export default function queues(context, search) {
  let known = null;
  let ratesLoadedAt = -Infinity;
  let asked = read(search);
  const table = rowWindow(context.draw);

  function read(params) {
    const [sort, order] = (params.get("sort") || "").split(".");
    return {
      only: params.get("only"),
      text: params.get("find") || "",
      sort: SORTED.has(sort) ? sort : "name",
      down: order === "down",
    };
  }

  function set(changes) {
    asked = { ...asked, ...changes };
    const params = new URLSearchParams();
    if (asked.only) params.set("only", asked.only);
    if (asked.text) params.set("find", asked.text);
    if (asked.sort !== "name" || asked.down) params.set("sort", `${asked.sort}${asked.down ? ".down" : ""}`);
    context.replace(`#/queues${params.size ? `?${params}` : ""}`);
    context.draw();
    requestAnimationFrame(table.measure);
  }

  /** The queues that are asked for, in order. */
  function chosen() {
    const words = asked.text.trim().toLowerCase();
    const value = SORTED.get(asked.sort);
    const troubled = Object.hasOwn(ONLY, asked.only) ? TROUBLES[asked.only] : () => true;
    const found = known.queues.filter((queue) => troubled(queue) && queue.name.toLowerCase().includes(words));
    const valued = found.map((queue) => [value(queue, known.rates), queue]);
    valued.sort(([a, one], [b, other]) => (a < b ? -1 : a > b ? 1 : one.name < other.name ? -1 : 1));
    const sorted = valued.map(([, queue]) => queue);
    return asked.down ? sorted.reverse() : sorted;
  }

  async function load(still) {
    const same = still && performance.now() - ratesLoadedAt < KEEP; // no claim has ended since
    const [stats, rates, depths, tasks] = await Promise.all([
      get("v1/stats"),
      same ? null : get("v1/rates", { since: SPAN, step: SPAN, queues: true }),
      get("v1/depths", { since: 3600, step: 60 }),
      get("v1/tasks/paused"),
    ]);
    known = {
      queues: stats.queues,
      rates: same ? known.rates : ratesByQueue(rates.rates),
      depths: minutesOf(depths.depths),
      tasks: tasks.paused,
    };
    if (!same) ratesLoadedAt = performance.now();
    requestAnimationFrame(table.measure);
  }

  async function resume({ task, where }) {
    try {
      await post(`v1/tasks/${encodeURIComponent(task)}/resume`, { where });
      toast(`Task ${task} resumed`);
      context.reload();
    } catch (error) {
      failed(error);
    }
  }

  function pausedTask(one) {
    const which = Object.entries(one.where)
      .map(([name, value]) => `${name} = ${JSON.stringify(value)}`)
      .join(", ");
    return h(
      "tr",
      { key: `${one.task} ${which}`, "data-row": true },
      h(
        "th",
        { scope: "row", class: "name" },
        h("a", { href: jobsHref({ type: one.task }), "data-open": true }, line(one.task, 128)),
        h("span", { class: "tag warn" }, "paused"),
      ),
      h("td", { "data-label": "Which jobs" }, which ? line(which) : muted("all")),
      h("td", { "data-label": "Since" }, when(one.since)),
      context.may("operate") &&
        h(
          "td",
          { class: "right act" },
          button("Resume", () => resume(one), { kind: "small", icon: "resume" }),
        ),
    );
  }

  /** What keeps the jobs of a queue, as a link to the reasons. */
  function why({ name, paused, counts, listeners }) {
    if (!WAITING.some((state) => counts[state])) return paused && h("span", { class: "tag warn" }, "paused");
    const [kind, word] = paused ? ["warn", "paused"] : counts.queued && !listeners ? ["bad", "no worker"] : ["", "why"];
    const rest = `${kind && ", why"} jobs of ${line(name, 60)} wait`;
    const props = { class: `tag ask ${kind}`, href: queueHref(name), title: `Why jobs of ${line(name, 60)} wait` };
    return h("a", props, word, h("span", { class: "hidden" }, rest));
  }

  function row(queue) {
    const sums = known.rates.get(queue.name);
    const done = sums?.count || 0;
    const serving = queue.listeners;
    const { counts } = queue;
    const cell = (label, value, state) =>
      h(
        "td",
        { class: "right num", "data-label": label },
        value ? h("a", { href: jobsHref({ state, queue: queue.name }) }, count(value)) : muted("0"),
      );
    return h(
      "tr",
      { key: queue.name, "data-row": true },
      h(
        "th",
        { scope: "row", class: "name" },
        h("a", { href: jobsHref({ queue: queue.name }), "data-open": true }, line(queue.name, 128)),
        why(queue),
      ),
      h(
        "td",
        { class: "spark-cell", "data-label": "Last hour" },
        h("span", {
          mount: () => () => {},
          update: (element) =>
            sparkline(element, depthsOf(queue, known.depths), `Depth of ${line(queue.name, 60)} over the last hour`),
        }),
      ),
      cell("Queued", counts.queued, "queued"),
      cell("Running", counts.running, "running"),
      cell("Scheduled", counts.scheduled, "scheduled"),
      cell("Blocked", counts.blocked, "blocked"),
      cell("Failed", counts.failed, "failed"),
      cell("Dead", counts.dead, "dead"),
      cell("Ended", ended(queue), ["succeeded", "cancelled"]),
      h("td", { class: "right num", "data-label": "Per minute" }, done ? brief(done / (SPAN / 60)) : muted("0")),
      h("td", { class: "right num", "data-label": "Mean wait" }, done ? span(sums.waited / done) : muted("–")),
      h("td", { class: "right num", "data-label": "Mean run" }, done ? span(sums.ran / done) : muted("–")),
      h(
        "td",
        { class: "right num", "data-label": "Oldest" },
        queue.oldest ? span(Math.max(0, age(queue.oldest))) : muted("–"),
      ),
      h("td", { class: "right num", "data-label": "Workers" }, serving || muted("0")),
      context.may("operate") &&
        h(
          "td",
          { class: "right act" },
          button(queue.paused ? "Resume" : "Pause", () => pauseQueue(queue, context.reload), {
            kind: "small",
            icon: queue.paused ? "resume" : "pause",
          }),
        ),
    );
  }

  function heading([key, label, value], place) {
    const right = place > 1 ? "right" : undefined;
    if (!value) return h("th", { scope: "col", class: right, key }, label);
    const on = asked.sort === key;
    const click = () => set({ sort: key, down: on ? !asked.down : key !== "name" });
    return h(
      "th",
      { scope: "col", class: right, key, "aria-sort": on ? (asked.down ? "descending" : "ascending") : undefined },
      h("button", { type: "button", class: "sort", on: { click } }, label, on && (asked.down ? " ↓" : " ↑")),
    );
  }

  function view() {
    if (!known) return loading("Queues");
    const shown = chosen();
    return [
      h(
        "div",
        { class: "title job-title" },
        h("h1", {}, "Queues"),
        h("p", { class: "soft" }, "Rates and times are over the last 15 minutes."),
        h("span", { class: "space" }),
        context.may("operate") && button("Pause a task…", () => pauseTask(context.reload), { icon: "pause" }),
      ),
      known.queues.length > FEW &&
        h(
          "div",
          { class: "field search" },
          h("input", {
            type: "search",
            "aria-label": "Find a queue",
            placeholder: `Find among ${plural(known.queues.length, "queue")}`,
            value: asked.text,
            spellcheck: "false",
            autocomplete: "off",
            on: { input: (event) => set({ text: event.target.value }) },
          }),
        ),
      Object.hasOwn(ONLY, asked.only) &&
        h(
          "p",
          { class: "chips" },
          h(
            "a",
            { class: "chip", href: "#/queues", title: "Show all queues" },
            `${shown.length} of ${plural(known.queues.length, "queue")}: ${ONLY[asked.only]}`,
            h("span", { "aria-hidden": "true" }, "×"),
          ),
        ),
      known.queues.length
        ? h(
            "div",
            { class: "scroll" },
            h(
              "table",
              { class: "list queues", "aria-rowcount": String(shown.length + 1) },
              h("caption", { class: "hidden" }, "Queues"),
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  COLUMNS.map(heading),
                  context.may("operate") && h("th", {}, h("span", { class: "hidden" }, "Actions")),
                ),
              ),
              table.rows(shown, row),
            ),
          )
        : empty("No queues yet", "The first job of a queue creates it:", FIRST_JOB),
      known.tasks.length > 0 &&
        h(
          "div",
          { class: "scroll" },
          h(
            "table",
            { class: "list" },
            h("caption", { class: "hidden" }, "Paused tasks"),
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                ["Paused task", "Which jobs", "Since"].map((label) => h("th", { scope: "col" }, label)),
                context.may("operate") && h("th", {}, h("span", { class: "hidden" }, "Actions")),
              ),
            ),
            h("tbody", {}, known.tasks.map(pausedTask)),
          ),
        ),
    ];
  }

  const query = (params) => {
    asked = read(params);
  };
  return { title: "Queues", load, view, query, stop: table.stop };
}
