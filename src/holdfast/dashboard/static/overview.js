// Overview: problems first, then counts, then charts.

import { get, now } from "./api.js";
import { attention } from "./attention.js";
import { killButton } from "./demo.js";
import { h } from "./dom.js";
import { age, brief, count, line, plural, span } from "./format.js";
import { latencyTable } from "./latency.js";
import { empty, FIRST_JOB, jobsHref, loading, panel, STATES, state } from "./parts.js";
import { reasonsPanel } from "./reasons.js";
import { byStep, countsByStep, KEEP, plot, segments, timeline, total } from "./timeline.js";

const RANGES = [
  ["15 min", 900, 60],
  ["1 h", 3600, 60],
  ["6 h", 21600, 300],
  ["24 h", 86400, 1200],
  ["7 d", 604800, 7200],
];
const RANGE_KEY = "holdfast.range";
const KINDS = ["Queue", "Task"]; // of the latency table

export default function overview(context) {
  const known = {
    stats: null,
    why: null,
    paused: [],
    errors: null,
    rates: [],
    hour: [],
    depths: [],
    latency: null,
    read: 0,
  };
  let by = KINDS[0];
  let range = RANGES.findIndex(([label]) => label === sessionStorage.getItem(RANGE_KEY));
  if (range < 0) range = 1;
  let errorsLoadedAt = -Infinity;
  let endsLoadedAt = -Infinity;

  async function load(still) {
    const [, since, step] = RANGES[range];
    const asked = range;
    const same = still && performance.now() - endsLoadedAt < KEEP; // no claim has ended since
    const late = !same && performance.now() - errorsLoadedAt > 8000; // the slowest query, and changes slowly
    const waiting = late ? get("v1/errors") : null;
    if (late) waiting.catch(() => {}); // reported below
    const lastHour = { since: 3600, step: 3600 };
    const [stats, tasks, depths, hour, why, latency] = await Promise.all([
      get("v1/stats"),
      get("v1/tasks/paused"),
      get("v1/depths", { since, step }),
      same || since === lastHour.since ? null : get("v1/rates", lastHour),
      get("v1/explain"),
      same ? null : get("v1/latency", { since, step }),
    ]);
    if (asked === range) {
      Object.assign(known, { stats, why, paused: tasks.paused, depths: depths.depths, read: now() });
      if (!same) {
        const rates = outcomes(latency.steps);
        Object.assign(known, { latency, rates, hour: hour ? hour.rates : rates });
        endsLoadedAt = performance.now();
      }
    }
    if (!late) return;
    context.draw();
    known.errors = await waiting;
    errorsLoadedAt = performance.now();
  }

  function choose(index) {
    range = index;
    endsLoadedAt = -Infinity;
    sessionStorage.setItem(RANGE_KEY, RANGES[index][0]);
    context.draw();
    context.reload();
  }

  function view() {
    const { stats } = known;
    if (!stats) return loading("Overview");
    if (!jobsOf(stats) && !known.rates.length)
      return [head(), empty("No jobs yet", "Enqueue a job and start a worker:", FIRST_JOB)];
    return [
      head(),
      attention(known),
      reasonsPanel(known.why),
      numbers(stats),
      killButton(context),
      charts(),
      latencies(),
    ];
  }

  function head() {
    return h(
      "div",
      { class: "title" },
      h("h1", {}, "Overview"),
      h("p", { class: "soft" }, plural(jobsOf(known.stats), "job")),
      h("span", { class: "space" }),
      segments(
        "Time range of the charts",
        RANGES.map(([label]) => label),
        range,
        choose,
      ),
    );
  }

  function charts() {
    const [label, since, step] = RANGES[range];
    const axis = timeline(known.read, since, step);
    const ended = (...outcomes) =>
      countsByStep(
        axis,
        known.rates.filter((one) => outcomes.includes(one.outcome)),
      );
    const [done, bad, died] = [ended("succeeded"), ended("failed", "lost"), ended("dead")];
    const perMinute = (values) => values.map((value) => value / (step / 60));
    const depth = byStep(axis, known.depths, (one) => one.queued);
    depth[depth.length - 1] = known.stats.counts.queued;
    const percentiles = (part, share) => byStep(axis, known.latency.steps, (one) => one.activity[part][share]);
    const what = `last ${label}`;
    return h(
      "div",
      { class: "charts" },
      chart("Throughput", `${count(total(done))} succeeded`, {
        ...axis,
        kind: "bars",
        label: `Throughput, ${what}: ${plural(total(done), "job")} succeeded`,
        series: [{ name: "succeeded / min", color: "succeeded", values: perMinute(done) }],
      }),
      chart("Failures", `${count(total(bad))} failed · ${count(total(died))} dead`, {
        ...axis,
        kind: "bars",
        label: `Failures, ${what}: ${plural(total(bad), "attempt")} failed or lost, ${plural(total(died), "job")} dead`,
        series: [
          { name: "dead / min", color: "dead", values: perMinute(died) },
          { name: "failed or lost / min", color: "failed", values: perMinute(bad) },
        ],
      }),
      chart("Queue depth", `${count(known.stats.counts.queued)} queued now`, {
        ...axis,
        kind: "lines",
        label: `Queue depth, ${what}: ${plural(known.stats.counts.queued, "job")} queued now`,
        series: [{ name: "queued", color: "queued", values: depth, area: true }],
      }),
      chart("Latency", "p50 and p95 of wait and run", {
        ...axis,
        kind: "lines",
        least: 0.01,
        label: `Latency, ${what}: percentiles of waiting and run times`,
        format: (value) => (value ? span(value) : "0"),
        series: [
          { name: "wait p50", color: "queued", values: percentiles("wait", "p50") },
          { name: "wait p95", color: "scheduled", values: percentiles("wait", "p95") },
          { name: "run p50", color: "running", values: percentiles("run", "p50") },
          { name: "run p95", color: "failed", values: percentiles("run", "p95") },
        ],
      }),
    );
  }

  function latencies() {
    const rows = known.latency?.[by === "Queue" ? "queues" : "tasks"] || [];
    if (!rows.length) return null;
    return panel(
      "Waiting and run times",
      {
        key: "latencies",
        note: `last ${RANGES[range][0]}`,
        side: segments("Waiting and run times by", KINDS, KINDS.indexOf(by), (index) => {
          by = KINDS[index];
          context.draw();
        }),
      },
      latencyTable(by, rows),
    );
  }

  return { title: "Overview", load, view, every: 15000 };
}

function chart(title, note, spec) {
  return panel(
    title,
    { note, key: title, kind: "chart" },
    h(
      "ul",
      { class: "legend", "aria-hidden": "true" },
      spec.series.map((one) => h("li", {}, h("i", { class: `dot fill-${one.color}` }), one.name)),
    ),
    plot(spec),
  );
}

/** The outcomes of each step, as v1/rates gives them. */
const outcomes = (steps) =>
  steps.flatMap(({ at, activity }) =>
    Object.entries(activity.outcomes).map(([outcome, number]) => ({ at, outcome, count: number })),
  );

const jobsOf = ({ counts }) => total(Object.values(counts));

const tile = (href, number, label) => h("li", {}, h("a", { href }, h("b", { class: "num" }, brief(number)), label));

function numbers(stats) {
  const oldest = stats.queues
    .filter((queue) => queue.oldest)
    .map((queue) => [queue.oldest, queue.name])
    .sort()[0];
  return h(
    "div",
    { class: "numbers" },
    h(
      "ul",
      { class: "tiles", "aria-label": "Jobs by state" },
      STATES.map((name) => tile(jobsHref({ state: name }), stats.counts[name] || 0, state(name))),
    ),
    h(
      "ul",
      { class: "tiles two", "aria-label": "Workers and waiting" },
      h(
        "li",
        {},
        h(
          "a",
          { href: "#/workers" },
          h("b", { class: "num" }, count(stats.workers)),
          h("span", { class: "soft" }, stats.workers === 1 ? "worker alive" : "workers alive"),
        ),
      ),
      h(
        "li",
        {},
        h(
          "a",
          { href: oldest ? jobsHref({ state: "queued", queue: oldest[1] }) : "#/queues" },
          h("b", { class: "num" }, oldest ? span(Math.max(0, age(oldest[0]))) : "–"),
          h("span", { class: "soft" }, oldest ? `oldest, ${line(oldest[1], 24)}` : "no job waiting"),
        ),
      ),
    ),
  );
}
