// A span of time: what ended and what failed within it, and as long before and after it.

import { get, now } from "./api.js";
import { h } from "./dom.js";
import { at, count, line, plural, span } from "./format.js";
import { comparedTable, failures, three, worse } from "./latency.js";
import { empty, loading, panel, workerName } from "./parts.js";
import { countsByStep, incidentHref, plot } from "./timeline.js";

const KEPT = 604800; // seconds for which statistics are kept
const MINUTE = 60000;
const STEPS = 120; // bars of the chart, about

export default function incident(_context, params) {
  let start = NaN;
  let end = NaN;
  let known = null;
  let rates = [];

  function query(given) {
    start = Math.floor(Date.parse(given.get("start") || "") / MINUTE) * MINUTE;
    end = Math.ceil(Date.parse(given.get("end") || "") / MINUTE) * MINUTE;
    known = null;
  }
  query(params);

  const valid = () => end > start && end - start <= 86400000;

  /** The steps of the chart: in whole minutes, from before the span until after it. */
  function axis() {
    const step = Math.max(1, Math.ceil((3 * (end - start)) / MINUTE / STEPS)) * MINUTE;
    const from = Math.floor((2 * start - end) / step) * step;
    return { from, to: Math.ceil((2 * end - start) / step) * step, step };
  }

  async function load() {
    if (!valid()) return;
    const { from, step } = axis();
    const since = Math.min(KEPT, Math.max(60, Math.ceil((now() - from) / 1000) + 60));
    const asked = start;
    const [found, over] = await Promise.all([
      get("v1/incident", { start: new Date(start).toISOString(), end: new Date(end).toISOString() }),
      get("v1/rates", { since, step: step / 1000 }),
    ]);
    if (asked !== start) return;
    known = found;
    rates = over.rates;
  }

  function chart() {
    const shown = axis();
    const series = [
      ["succeeded", "succeeded", ["succeeded"]],
      ["dead", "dead", ["dead"]],
      ["failed", "failed or lost", ["failed", "lost"]],
    ].map(([color, name, outcomes]) => {
      const rows = rates.filter((one) => outcomes.includes(one.outcome));
      return { name, color, values: countsByStep(shown, rows) };
    });
    return panel(
      "Ended",
      { key: "chart", kind: "chart", note: `per ${span(shown.step / 1000)}; drag to select another span` },
      plot({
        ...shown,
        kind: "bars",
        label: "Ended claims before, within and after the span",
        series,
        band: [start, end],
      }),
    );
  }

  function summary({ total }) {
    const parts = [
      ["Before", total.before],
      ["Within", total.within],
      ["After", total.after],
    ];
    return h(
      "div",
      { class: "scroll panel" },
      h(
        "table",
        { class: "list summary" },
        h("caption", { class: "hidden" }, "Before, within and after the span"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["", "Ended", "Failed", "Wait p50", "Wait p95", "Wait p99", "Run p50", "Run p95", "Run p99"].map(
              (label, place) =>
                h(
                  "th",
                  { scope: "col", class: place ? "right" : "" },
                  label || h("span", { class: "hidden" }, "Period"),
                ),
            ),
          ),
        ),
        h(
          "tbody",
          {},
          parts.map(([label, one]) =>
            h(
              "tr",
              { key: label },
              h("th", { scope: "row" }, label),
              h("td", { class: "right num", "data-label": "Ended" }, count(one.count)),
              h(
                "td",
                {
                  class: `right num ${label === "Within" && worse(failures(one), failures(total.before)) ? "worse" : ""}`,
                  "data-label": "Failed",
                },
                count(failures(one)),
              ),
              ["wait", "run"].flatMap((part) =>
                ["p50", "p95", "p99"].map((share) =>
                  h(
                    "td",
                    { class: "right num", "data-label": `${part === "wait" ? "Wait" : "Run"} ${share}` },
                    span(one[part][share]),
                  ),
                ),
              ),
            ),
          ),
        ),
      ),
    );
  }

  function errors({ groups, looked, complete }) {
    return panel(
      "Error groups",
      {
        key: "errors",
        note: `failed attempts; ${complete ? "all jobs" : `${plural(looked, "job")}, the newest,`} were read`,
      },
      groups.length
        ? counted("Error group", groups, (one) => [
            h("a", { href: `#/errors/${encodeURIComponent(one.fingerprint)}`, "data-open": true }, line(one.task, 80)),
            h("div", { class: "error-text", title: line(one.example, 300) }, line(one.pattern, 160)),
          ])
        : h("p", { class: "soft none" }, "No stored job failed in this time."),
    );
  }

  function counted(label, rows, content) {
    return h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "list counted" },
        h("caption", { class: "hidden" }, `${label}s before, within and after the span`),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, label),
            h("th", { scope: "col", class: "right" }, "Before → within → after"),
          ),
        ),
        h(
          "tbody",
          {},
          rows.map((one) =>
            h(
              "tr",
              { key: one.fingerprint || one.name, "data-row": true },
              h("th", { scope: "row", class: "name wrap" }, content(one)),
              h("td", { class: "right", "data-label": "Failed" }, three(one.before, one.within, one.after, true)),
            ),
          ),
        ),
      ),
    );
  }

  function view() {
    const title = (text) =>
      h(
        "div",
        { class: "title" },
        h("h1", {}, "Incident"),
        text && h("p", { class: "soft" }, text),
        h("span", { class: "space" }),
        text && h("div", { class: "actions" }, wider()),
      );
    if (!valid())
      return [
        title(null),
        empty(
          "Select a span",
          "Drag over a chart of the overview, or select with Shift and the arrow keys, then Enter.",
        ),
      ];
    if (!known) return loading("Incident");
    const { stats, failures: failed } = known;
    return [
      title(`${at(start)} – ${at(end)}, ${span((end - start) / 1000)}; compared with as long before and after`),
      chart(),
      summary(stats),
      errors(failed),
      panel("Tasks", { key: "tasks", note: "percentiles within the span" }, some(stats.tasks, "Task")),
      panel("Queues", { key: "queues", note: "percentiles within the span" }, some(stats.queues, "Queue")),
      h(
        "div",
        { class: "halves" },
        panel(
          "Workers",
          { key: "workers", note: "failed attempts" },
          failed.workers.length
            ? counted("Worker", failed.workers, (one) =>
                h("span", { title: line(one.name, 200) }, workerName(one.name)),
              )
            : h("p", { class: "soft none" }, "No stored job failed in this time."),
        ),
        panel(
          "Versions",
          { key: "versions", note: "failed attempts, by release or version of the worker" },
          failed.versions.length
            ? counted("Version", failed.versions, (one) => h("span", { class: "mono" }, line(one.name, 100)))
            : h("p", { class: "soft none" }, "No stored job failed in this time."),
        ),
      ),
    ];
  }

  const some = (rows, kind) =>
    rows.length ? comparedTable(kind, rows) : h("p", { class: "soft none" }, "No claim ended.");

  function wider() {
    const half = (end - start) / 2;
    const from = start - half;
    const to = Math.min(end + half, now());
    return (
      to - from <= 86400000 && h("a", { class: "button", href: incidentHref(from, to) }, h("span", {}, "Twice as long"))
    );
  }

  return { title: "Incident", load, view, query, every: 15000 };
}
