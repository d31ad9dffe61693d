// Error groups: errors that differ only in numbers and quoted parts.

import { get } from "./api.js";
import { h } from "./dom.js";
import { count, line, plural } from "./format.js";
import { empty, jobHref, jobsHref, loading, muted, state, when } from "./parts.js";

/** One group of errors. */
export function group(one, { href, dead = false }, actions) {
  return h(
    "article",
    { class: "group panel", key: one.fingerprint, "data-row": true },
    h("div", { class: "many" }, h("b", { class: "num" }, count(one.count)), muted(one.count === 1 ? "job" : "jobs")),
    h(
      "div",
      { class: "about" },
      h("h2", {}, h("a", { href, "data-open": true }, line(one.task, 128))),
      h("p", { class: "error-text", title: line(one.example, 300) }, line(one.pattern, 300)),
      h(
        "p",
        { class: "soft small" },
        "last ",
        when(one.last_seen),
        one.count > 1 && [", first ", when(one.first_seen)],
        " · newest ",
        h("a", { href: jobHref(one.job) }, "job"),
        " · ",
        one.queues
          .slice(0, 5)
          .map((name) => line(name, 40))
          .join(", "),
        !dead && Object.entries(one.states).map(([name, many]) => [" · ", state(name, ` ${count(many)}`)]),
      ),
    ),
    actions && h("div", { class: "buttons" }, actions),
  );
}

export default function errors() {
  let known = null;

  async function load() {
    known = await get("v1/errors");
  }

  function view() {
    if (!known) return loading("Errors");
    return [
      h(
        "div",
        { class: "title" },
        h("h1", {}, "Errors"),
        h("p", { class: "soft" }, "The last error of each job, numbers and quoted parts masked."),
      ),
      known.groups.length
        ? h(
            "div",
            { class: "groups" },
            known.groups.map((one) =>
              group(one, { href: `#/errors/${encodeURIComponent(one.fingerprint)}` }, [
                h(
                  "a",
                  { class: "button small", href: jobsHref({ error: one.fingerprint, group: one.pattern }) },
                  h("span", {}, "Jobs"),
                ),
              ]),
            ),
          )
        : empty("No errors", "None of the newest jobs has failed."),
      h(
        "p",
        { class: "soft window" },
        known.complete
          ? "All jobs were searched."
          : `Searched ${plural(known.looked, "job")}: the newest 2,000, and the newest 5,000 each of failed and dead.`,
      ),
    ];
  }

  return { title: "Errors", load, view, every: 10000 };
}
