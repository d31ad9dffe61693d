// Queues: depth, rates and latency; pause and resume; and paused tasks.

import { get, post } from "./api.js";
import { sparkline } from "./chart.js";
import { h } from "./dom.js";
import { age, brief, count, line, span } from "./format.js";
import { button, confirm, empty, FIRST_JOB, failed, jobsHref, loading, muted, toast, when } from "./parts.js";

const SPAN = 900; // seconds over which rates and latencies are computed

export default function queues(context) {
  let known = null;

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
    const cell = (label, value, name) =>
      h(
        "td",
        { class: "right num", "data-label": label },
        value ? h("a", { href: jobsHref({ state: name, queue: queue.name }) }, count(value)) : muted("0"),
      );
    const depths = known.depths.map((one) => (Object.hasOwn(one.queues, queue.name) ? one.queues[queue.name] : 0));
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
            sparkline(element, [...depths, counts.queued || 0], `Depth of ${line(queue.name, 60)} over the last hour`),
        }),
      ),
      cell("Queued", counts.queued, "queued"),
      cell("Running", counts.running, "running"),
      cell("Scheduled", counts.scheduled, "scheduled"),
      cell("Failed", counts.failed, "failed"),
      cell("Dead", counts.dead, "dead"),
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
    return [
      h(
        "div",
        { class: "title" },
        h("h1", {}, "Queues"),
        h("p", { class: "soft" }, "Rates and times are over the last 15 minutes."),
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
                    "Failed",
                    "Dead",
                    "Per min",
                    "Wait",
                    "Run",
                    "Oldest",
                    "Workers",
                  ].map((label) => h("th", { scope: "col", class: "right" }, label)),
                  context.may("operate") && h("th", {}, h("span", { class: "hidden" }, "Actions")),
                ),
              ),
              h("tbody", {}, known.queues.map(row)),
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

  return { title: "Queues", load, view };
}
