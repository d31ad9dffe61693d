// One queue: why its jobs wait, its counts, and pause or resume.

import { get } from "./api.js";
import { h } from "./dom.js";
import { age, brief, line, plural, span } from "./format.js";
import { button, empty, jobsHref, loading, mono, STATES, state } from "./parts.js";
import { pauseQueue } from "./queues.js";
import { reasonsPanel } from "./reasons.js";

export default function queue(context, name) {
  let known = null;
  let why = null;

  async function load() {
    const stats = await get("v1/stats");
    known = stats.queues.find((one) => one.name === name) || false;
    why = known ? await get(`v1/queues/${encodeURIComponent(name)}/explain`) : null;
  }

  function view() {
    const back = h(
      "nav",
      { class: "crumbs", "aria-label": "Breadcrumb" },
      h("a", { href: context.lists.queues }, "Queues"),
      h("span", { "aria-hidden": "true" }, "/"),
      mono(line(name, 60)),
    );
    if (known === null) return [back, ...loading("Queue")];
    if (!known)
      return [
        back,
        h("div", { class: "title" }, h("h1", {}, "Queue not found")),
        empty("No such queue", "A queue exists while it has jobs or workers, or is paused."),
      ];
    const { counts, paused, oldest, listeners } = known;
    return [
      back,
      h(
        "div",
        { class: "title job-title" },
        h("h1", {}, line(name, 128)),
        paused && h("span", { class: "tag warn" }, "paused"),
        h(
          "p",
          { class: "soft" },
          `${plural(listeners, "live worker")}${oldest ? `, the oldest job has waited ${span(Math.max(0, age(oldest)))}` : ""}`,
        ),
        h("span", { class: "space" }),
        context.may("operate") &&
          button(paused ? "Resume" : "Pause", () => pauseQueue(known, context.reload), {
            icon: paused ? "resume" : "pause",
          }),
      ),
      reasonsPanel(why) ||
        h("p", { class: "quiet" }, h("i", { class: "dot fill-succeeded" }), "No job of this queue waits."),
      h(
        "ul",
        { class: "tiles queue-tiles", "aria-label": "Jobs by state" },
        STATES.map((one) =>
          h(
            "li",
            {},
            h(
              "a",
              { href: jobsHref({ state: one, queue: name }) },
              h("b", { class: "num" }, brief(counts[one] || 0)),
              state(one),
            ),
          ),
        ),
      ),
    ];
  }

  return { title: () => `Queue ${line(name, 60)}`, load, view };
}
