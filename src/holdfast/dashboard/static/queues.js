// Queues: depth, rates and latency; pause and resume; and paused tasks.

import { get, now, post } from "./api.js";
import { TROUBLES } from "./attention.js";
import { sparkline } from "./chart.js";
import { h } from "./dom.js";
import { age, brief, count, line, plural, span } from "./format.js";
import { button, confirm, empty, FIRST_JOB, failed, jobsHref, loading, muted, toast, when } from "./parts.js";

const SPAN = 900; // seconds over which rates and latencies are computed
const MINUTES = 60; // of the depth curves
const ONLY = { paused: "paused, with waiting jobs", unserved: "without a live worker", behind: "behind" };

/** The depth of a queue for each of the last minutes, and now; null if it was not recorded. */
function depthsOf(queue, depths) {
  const minute = (time) => Math.floor(time / 60000);
  const values = new Array(MINUTES).fill(null);
  const first = minute(now()) - MINUTES + 1;
  for (const { at, queued, queues } of depths) {
    const slot = minute(Date.parse(at)) - first;
    if (slot < 0 || slot >= MINUTES) continue;
    const recorded = Object.values(queues).reduce((a, b) => a + b, 0);
    if (Object.hasOwn(queues, queue.name)) values[slot] = queues[queue.name];
    else if (recorded === queued) values[slot] = 0; // all queues with jobs were recorded
  }
  return [...values, queue.counts.queued || 0];
}

export default function queues(context, search) {
  let known = null;
  let only = search.get("only");

  async function load() {
    const [stats, rates, depths, tasks] = await Promise.all([
      get("v1/stats"),
      get("v1/rates", { since: SPAN, step: SPAN, queues: true }),
      get("v1/depths", { since: 3600, step: 60 }),
      get("v1/tasks/paused"),
    ]);
    known = { queues: stats.queues, rates: rates.rates, depths: depths.depths, tasks: tasks.paused };
  }

  async function pause(queue) {
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
      context.reload();
    } catch (error) {
      failed(error);
    }
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

  function row(queue) {
    const ended = known.rates.filter((one) => one.queue === queue.name);
    const sum = (name) => ended.reduce((total, one) => total + one[name], 0);
    const done = sum("count");
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
        queue.paused && h("span", { class: "tag warn" }, "paused"),
        !serving && (counts.queued || 0) > 0 && !queue.paused && h("span", { class: "tag bad" }, "no worker"),
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
      cell("Ended", (counts.succeeded || 0) + (counts.cancelled || 0), ["succeeded", "cancelled"]),
      h("td", { class: "right num", "data-label": "Per minute" }, done ? brief(done / (SPAN / 60)) : muted("0")),
      h("td", { class: "right num", "data-label": "Mean wait" }, done ? span(sum("waited") / done) : muted("–")),
      h("td", { class: "right num", "data-label": "Mean run" }, done ? span(sum("ran") / done) : muted("–")),
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
          button(queue.paused ? "Resume" : "Pause", () => pause(queue), {
            kind: "small",
            icon: queue.paused ? "resume" : "pause",
          }),
        ),
    );
  }

  function view() {
    if (!known) return loading("Queues");
    const shown = Object.hasOwn(ONLY, only) ? known.queues.filter(TROUBLES[only]) : known.queues;
    return [
      h(
        "div",
        { class: "title" },
        h("h1", {}, "Queues"),
        h("p", { class: "soft" }, "Rates and times are over the last 15 minutes."),
      ),
      shown !== known.queues &&
        h(
          "p",
          { class: "chips" },
          h(
            "a",
            { class: "chip", href: "#/queues", title: "Show all queues" },
            `${shown.length} of ${plural(known.queues.length, "queue")}: ${ONLY[only]}`,
            h("span", { "aria-hidden": "true" }, "×"),
          ),
        ),
      known.queues.length
        ? h(
            "div",
            { class: "scroll" },
            h(
              "table",
              { class: "list queues" },
              h("caption", { class: "hidden" }, "Queues"),
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  ["Queue", "Depth, 1 h"].map((label) => h("th", { scope: "col" }, label)),
                  [
                    "Queued",
                    "Running",
                    "Scheduled",
                    "Blocked",
                    "Failed",
                    "Dead",
                    "Ended",
                    "Per min",
                    "Wait",
                    "Run",
                    "Oldest",
                    "Workers",
                  ].map((label) => h("th", { scope: "col", class: "right" }, label)),
                  context.may("operate") && h("th", {}, h("span", { class: "hidden" }, "Actions")),
                ),
              ),
              h("tbody", {}, shown.map(row)),
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

  const query = (params) => (only = params.get("only"));
  return { title: "Queues", load, view, query };
}
