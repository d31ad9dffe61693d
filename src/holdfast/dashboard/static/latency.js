// Tables of ended claims by queue or task: outcomes, and percentiles of waiting and run times.

import { h } from "./dom.js";
import { brief, count, line, span } from "./format.js";
import { jobsHref } from "./parts.js";

export const BAD = ["failed", "lost", "dead"];
const PARTS = [
  ["wait", "Wait"],
  ["run", "Run"],
];
const SHARES = ["p50", "p95", "p99"];
const MUCH = 2; // a percentile or number is marked if it is more than so many times what it was before
const FEW = 5; // seconds, or attempts, below which nothing is marked

export const failures = (activity) => BAD.reduce((sum, name) => sum + (activity.outcomes[name] || 0), 0);

/** Whether a value is much more than before. */
export const worse = (value, before, least = FEW) => value !== null && value >= least && value > MUCH * (before || 0);

const cells = (activity, before) =>
  PARTS.flatMap(([part, word]) =>
    SHARES.map((share) =>
      h(
        "td",
        {
          class: `right num ${before && worse(activity[part][share], before[part][share], 0.1) ? "worse" : ""}`,
          "data-label": `${word} ${share}`,
          title: before ? `before: ${span(before[part][share])}` : undefined,
        },
        span(activity[part][share]),
      ),
    ),
  );

const heads = (kind, more) =>
  h(
    "thead",
    {},
    h(
      "tr",
      {},
      h("th", { scope: "col" }, kind),
      more.map((label) => h("th", { scope: "col", class: "right" }, label)),
      PARTS.flatMap(([, word]) => SHARES.map((share) => h("th", { scope: "col", class: "right" }, `${word} ${share}`))),
    ),
  );

const name = (kind, text) =>
  h(
    "th",
    { scope: "row", class: "name" },
    h("a", { href: jobsHref(kind === "Queue" ? { queue: text } : { type: text }), "data-open": true }, line(text, 80)),
  );

/** One period. `kind`: Queue or Task. */
export function latencyTable(kind, rows) {
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "list latency" },
      h("caption", { class: "hidden" }, `Waiting and run times by ${kind.toLowerCase()}`),
      heads(kind, ["Ended", "Failed"]),
      h(
        "tbody",
        {},
        rows.map(({ name: text, activity }) =>
          h(
            "tr",
            { key: text, "data-row": true },
            name(kind, text),
            h("td", { class: "right num", "data-label": "Ended" }, brief(activity.count)),
            h("td", { class: "right num", "data-label": "Failed" }, brief(failures(activity))),
            cells(activity),
          ),
        ),
      ),
    ),
  );
}

/** Three numbers: before, within and after. */
export const three = (before, within, after, mark = false) =>
  h(
    "span",
    { class: "three num", title: `before ${count(before)}, within ${count(within)}, after ${count(after)}` },
    h("span", { class: "soft" }, brief(before)),
    h("span", { class: "soft", "aria-hidden": "true" }, " → "),
    h("b", { class: mark && worse(within, before) ? "worse" : "" }, brief(within)),
    h("span", { class: "soft", "aria-hidden": "true" }, " → "),
    h("span", { class: "soft" }, brief(after)),
  );

/** Before, within and after a span; the percentiles are those within it. */
export function comparedTable(kind, rows) {
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "list latency" },
      h("caption", { class: "hidden" }, `${kind}s before, within and after the span`),
      heads(kind, ["Ended", "Failed"]),
      h(
        "tbody",
        {},
        rows.map((one) =>
          h(
            "tr",
            { key: one.name, "data-row": true },
            name(kind, one.name),
            h(
              "td",
              { class: "right", "data-label": "Ended" },
              three(one.before.count, one.within.count, one.after.count),
            ),
            h(
              "td",
              { class: "right", "data-label": "Failed" },
              three(failures(one.before), failures(one.within), failures(one.after), true),
            ),
            cells(one.within, one.before),
          ),
        ),
      ),
    ),
  );
}
