// Values over time: the steps of an axis, and a chart of which a span opens as an incident.

import { Chart } from "./chart.js";
import { h } from "./dom.js";
import { brief } from "./format.js";

const MINUTE = 60000;
export const KEEP = 120000; // milliseconds for which statistics of ended claims are kept while none ends

/** The address of the page of a span, in milliseconds. */
export const incidentHref = (from, to) =>
  `#/incident?${new URLSearchParams({ start: new Date(from).toISOString(), end: new Date(to).toISOString() })}`;

const openIncident = (from, to) => {
  location.hash = incidentHref(from, Math.max(to, from + MINUTE));
};

/** The axis of a range of `since` seconds, in steps of `step` seconds; the last is the current one. */
export function timeline(read, since, step) {
  const wide = step * 1000;
  const to = Math.floor(read / wide) * wide + wide;
  return { from: to - since * 1000, to, step: wide };
}

/** A value for each step of an axis, from rows with a time; `value(row, before)`. */
export function byStep({ from, to, step }, rows, value, none = null) {
  const values = new Array(Math.round((to - from) / step)).fill(none);
  for (const one of rows) {
    const place = Math.floor((Date.parse(one.at) - from) / step);
    if (place >= 0 && place < values.length) values[place] = value(one, values[place]);
  }
  return values;
}

/** The counts of the rows, added up by step. */
export const countsByStep = (axis, rows) => byStep(axis, rows, (one, before) => before + one.count, 0);

export const total = (values) => values.reduce((a, b) => a + b, 0);

/** A chart; `spec` as in Chart. */
export const plot = (spec) =>
  h("div", {
    class: "canvas",
    mount: (element) => {
      element.chart = new Chart(element);
      return () => element.chart.stop();
    },
    update: (element) => element.chart.show({ format: brief, ...spec, select: openIncident }),
  });

/** A row of buttons of which one is pressed. */
export const segments = (label, words, pressed, choose) =>
  h(
    "div",
    { class: "segments", role: "group", "aria-label": label },
    words.map((word, index) =>
      h(
        "button",
        { type: "button", "aria-pressed": String(index === pressed), on: { click: () => choose(index) } },
        word,
      ),
    ),
  );
