// One error group: its attempts over time, first and last seen, versions, and retry in two steps.

import { get, now } from "./api.js";
import { change } from "./bulk.js";
import { h } from "./dom.js";
import { count, line, plural } from "./format.js";
import { button, empty, failed, jobHref, jobsHref, loading, panel, state, when, workerName } from "./parts.js";
import { tenFirst } from "./tenfirst.js";
import { countsByStep, plot, segments, timeline, total } from "./timeline.js";

const RANGES = [
  ["1 h", 3600, 60],
  ["24 h", 86400, 1200],
  ["7 d", 604800, 7200],
];

export default function errorGroup(context, fingerprint) {
  let known = null;
  let gone = false;
  let read = 0;
  let range = 1;

  async function load() {
    const asked = range;
    const [, since, step] = RANGES[range];
    try {
      const found = await get(`v1/errors/${encodeURIComponent(fingerprint)}`, { since, step });
      if (asked !== range) return;
      known = found;
      gone = false;
      read = now();
    } catch (error) {
      if (![404, 422].includes(error.status)) throw error;
      gone = true;
    }
  }

  function choose(index) {
    range = index;
    context.draw();
    context.reload();
  }

  async function act(start) {
    try {
      const filter = { state: ["dead"], type: known.task, error: fingerprint };
      if (await start(filter, known.pattern)) context.reload();
    } catch (error) {
      failed(error);
    }
  }

  function chart() {
    const [label, since, step] = RANGES[range];
    const axis = timeline(read, since, step);
    const values = countsByStep(axis, known.steps);
    const words = RANGES.map(([word]) => word);
    return panel(
      "Failed attempts",
      {
        key: "chart",
        kind: "chart",
        note: `${count(total(values))} in the last ${label}`,
        side: segments("Time range of the chart", words, range, choose),
      },
      plot({
        ...axis,
        kind: "bars",
        label: `Failed attempts with this error, last ${label}: ${count(total(values))}`,
        series: [{ name: "failed", color: "failed", values }],
      }),
    );
  }

  function shares(title, counts, shown) {
    const all = total(Object.values(counts));
    return panel(
      title,
      { key: title },
      h(
        "ul",
        { class: "shares" },
        Object.entries(counts).map(([name, many]) =>
          h(
            "li",
            { key: name },
            h("span", { class: "breakable", title: line(name, 200) }, shown(name)),
            h(
              "span",
              { class: "track", "aria-hidden": "true" },
              h("span", { class: "fill", style: { width: `${(100 * many) / all}%` } }),
            ),
            h("b", { class: "num" }, count(many)),
          ),
        ),
      ),
    );
  }

  function view() {
    const back = h(
      "nav",
      { class: "crumbs", "aria-label": "Breadcrumb" },
      h("a", { href: "#/errors" }, "Errors"),
      h("span", { "aria-hidden": "true" }, "/"),
      h("span", { class: "mono" }, line(fingerprint, 60)),
    );
    if (gone)
      return [
        back,
        h("div", { class: "title" }, h("h1", {}, "Error group not found")),
        empty("No attempt has this error", "Its jobs may have been deleted, or removed after their retention."),
      ];
    if (!known) return [back, ...loading("Error group")];
    const dead = known.states.dead || 0;
    return [
      back,
      h(
        "div",
        { class: "title" },
        h("h1", {}, line(known.task, 128)),
        h("span", { class: "space" }),
        h(
          "div",
          { class: "actions" },
          h(
            "a",
            { class: "button", href: jobsHref({ error: fingerprint, group: known.pattern }) },
            h("span", {}, "Show jobs"),
          ),
          dead > 0 &&
            context.may("operate") && [
              dead > 10 && button("Retry ten first", () => act(tenFirst), { icon: "retry" }),
              button("Retry all dead", () => act((filter, group) => change("retry", { filter, group })), {
                icon: "retry",
              }),
            ],
        ),
      ),
      h("p", { class: "error-text group-text", title: line(known.example, 300) }, line(known.pattern, 300)),
      h(
        "p",
        { class: "soft group-facts" },
        `${plural(known.attempts, "failed attempt")} of ${plural(known.jobs, "job")} · first seen `,
        when(known.first_seen),
        " · last seen ",
        when(known.last_seen),
        " · newest ",
        h("a", { href: jobHref(known.job) }, "job"),
        Object.entries(known.states).map(([name, many]) => [" · ", state(name, ` ${count(many)}`)]),
      ),
      chart(),
      h(
        "div",
        { class: "halves" },
        shares("Versions", known.versions, (name) => h("span", { class: "mono" }, line(name, 100))),
        shares("Workers", known.workers, workerName),
        shares("Queues", known.queues, (name) =>
          h("a", { href: jobsHref({ queue: name, error: fingerprint, group: known.pattern }) }, line(name, 80)),
        ),
      ),
      h(
        "p",
        { class: "soft window" },
        known.complete
          ? "All jobs were searched."
          : `Searched ${plural(known.looked, "job")}: the newest 2,000, and the newest 5,000 each of failed and dead.`,
      ),
    ];
  }

  return { title: () => (known ? `Error of ${line(known.task, 60)}` : "Error group"), load, view, every: 10000 };
}
