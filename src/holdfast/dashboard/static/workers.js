// Live workers, their jobs and last heartbeats.

import { get } from "./api.js";
import { h } from "./dom.js";
import { count, line, plural, span } from "./format.js";
import { empty, jobHref, loading, mono, muted, shortId, when } from "./parts.js";

const MAX_JOBS = 12; // jobs listed per worker

export default function workers() {
  let known = null;

  async function load() {
    known = (await get("v1/workers")).workers;
  }

  function row(worker) {
    const held = worker.jobs.length;
    const late = worker.last_heartbeat > worker.lease / 2;
    return h(
      "tr",
      { key: worker.id, "data-row": true },
      h(
        "th",
        { scope: "row", class: "name" },
        h("span", { tabindex: "-1", "data-open": true, title: line(worker.id, 200) }, line(worker.node, 60)),
        muted(` pid ${worker.pid}`),
        worker.kind !== "worker" &&
          h("span", { class: "tag" }, worker.kind === "manual" ? "manual claims" : line(worker.kind, 20)),
      ),
      h(
        "td",
        { "data-label": "Slots" },
        worker.slots
          ? h(
              "span",
              { class: "progress slots" },
              h(
                "span",
                { class: "track", role: "img", "aria-label": `${held} of ${plural(worker.slots, "slot")} in use` },
                h("span", { class: "fill", style: { width: `${Math.min(100, (held / worker.slots) * 100)}%` } }),
              ),
              h("span", { class: "num" }, `${held} / ${worker.slots}`),
            )
          : h("span", { class: "num" }, count(held)),
      ),
      h(
        "td",
        { class: "held", "data-label": "Runs" },
        held
          ? [
              worker.jobs
                .slice(0, MAX_JOBS)
                .map((id) => h("a", { key: id, class: "mono", href: jobHref(id), title: line(id, 200) }, shortId(id))),
              held > MAX_JOBS && muted(`and ${count(held - MAX_JOBS)} more`),
            ]
          : muted("idle"),
      ),
      h(
        "td",
        { class: "tags", "data-label": "Queues" },
        worker.queues.slice(0, 8).map((name) => h("span", { class: "tag" }, line(name, 40))),
        worker.queues.length > 8 && muted(`+${worker.queues.length - 8}`),
      ),
      h(
        "td",
        { class: `num ${late ? "late" : ""}`, "data-label": "Heartbeat" },
        `${span(worker.last_heartbeat)} ago`,
        muted(` / ${span(worker.lease)}`),
      ),
      h("td", { "data-label": "Started" }, when(worker.started_at)),
      h("td", { "data-label": "Version" }, mono(line(worker.version, 20))),
    );
  }

  function view() {
    if (!known) return loading("Workers");
    return [
      h(
        "div",
        { class: "title" },
        h("h1", {}, "Workers"),
        h("p", { class: "soft" }, "If a worker does not renew its lease, other workers recover its jobs."),
      ),
      known.length
        ? h(
            "div",
            { class: "scroll" },
            h(
              "table",
              { class: "list workers" },
              h("caption", { class: "hidden" }, "Live workers"),
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  ["Worker", "Slots in use", "Runs", "Queues", "Heartbeat / lease", "Started", "Version"].map((label) =>
                    h("th", { scope: "col" }, label),
                  ),
                ),
              ),
              h("tbody", {}, known.map(row)),
            ),
          )
        : empty(
            "No worker is alive",
            "Jobs wait until a worker is started:",
            "holdfast worker start --foreground\nholdfast worker start -A your_module:app --count 2",
          ),
    ];
  }

  return { title: "Workers", load, view, every: 2000 };
}
