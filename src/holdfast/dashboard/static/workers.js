// Workers by host and version: their jobs, CPU and memory; and those that have ended within the last hour.

import { get } from "./api.js";
import { controlWorker } from "./control.js";
import { h } from "./dom.js";
import { bytes, count, line, plural, span } from "./format.js";
import { button, empty, jobHref, lasted, loading, mono, muted, panel, shortId, when } from "./parts.js";

const MAX_JOBS = 12; // jobs listed per worker

const cores = (cpu) => (cpu ? `${Math.round(cpu * 100)} %` : "0 %");
const memory = (size) => (size ? bytes(size) : "–");

/** What a worker runs: the release of its application, or the version of Holdfast. */
const versionOf = (worker) => worker.release || `Holdfast ${worker.version}`;

/** The workers of each host and version, in order. */
function grouped(workers) {
  const groups = new Map();
  for (const one of workers) {
    const key = JSON.stringify([one.node, versionOf(one)]);
    if (!groups.has(key)) groups.set(key, { key, node: one.node, version: versionOf(one), workers: [] });
    groups.get(key).workers.push(one);
  }
  return [...groups.values()];
}

export default function workers(context) {
  let known = null;

  async function load() {
    known = await get("v1/workers");
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
        h("span", { tabindex: "-1", "data-open": true, title: line(worker.id, 200) }, `pid ${worker.pid}`),
        worker.kind !== "worker" &&
          h("span", { class: "tag" }, worker.kind === "manual" ? "manual claims" : line(worker.kind, 20)),
        worker.state !== "active" && h("span", { class: "tag" }, line(worker.state, 20)),
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
      h("td", { class: "right num", "data-label": "CPU" }, cores(worker.cpu)),
      h("td", { class: "right num", "data-label": "Memory" }, memory(worker.memory)),
      h(
        "td",
        { class: `num ${late ? "late" : ""}`, "data-label": "Heartbeat" },
        `${span(worker.last_heartbeat)} ago`,
        muted(` / ${span(worker.lease)}`),
      ),
      h("td", { class: "num", "data-label": "Age", title: line(worker.started_at, 40) }, lasted(worker.started_at)),
      context.may("operate") &&
        h(
          "td",
          { class: "right act" },
          worker.kind === "worker" &&
            button("Control…", () => controlWorker(worker).then(context.reload), { kind: "small" }),
        ),
    );
  }

  function group({ key, node, version, workers: own }) {
    const sum = (name) => own.reduce((total, one) => total + one[name], 0);
    const held = own.reduce((total, one) => total + one.jobs.length, 0);
    const facts = [
      plural(own.length, "worker"),
      `${count(held)} of ${plural(sum("slots"), "slot")} in use`,
      `CPU ${cores(sum("cpu"))}`,
      `memory ${memory(sum("memory"))}`,
    ];
    return panel(
      h("span", { class: "host" }, line(node, 60), " ", mono(line(version, 60))),
      { key, note: facts.join(" · ") },
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          { class: "list workers" },
          h("caption", { class: "hidden" }, `Live workers of ${line(node, 60)}, ${line(version, 60)}`),
          heads(
            ["Worker", "Slots in use", "Runs", "Queues", "CPU", "Memory", "Heartbeat / lease", "Age"],
            context.may("operate"),
          ),
          h("tbody", {}, own.map(row)),
        ),
      ),
    );
  }

  const heads = (labels, actions = false) =>
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        labels.map((label) =>
          h("th", { scope: "col", class: ["CPU", "Memory"].includes(label) ? "right" : undefined }, label),
        ),
        actions && h("th", {}, h("span", { class: "hidden" }, "Actions")),
      ),
    );

  function ended() {
    if (!known.ended.length) return null;
    return panel(
      "Ended within the last hour",
      { key: "ended", note: plural(known.ended.length, "worker") },
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          { class: "list workers" },
          h("caption", { class: "hidden" }, "Workers that ended within the last hour"),
          heads(["Worker", "Version", "Ended", "Lived", "How"]),
          h(
            "tbody",
            {},
            known.ended.map((one) =>
              h(
                "tr",
                { key: one.id, "data-row": true },
                h(
                  "th",
                  { scope: "row", class: "name" },
                  h("span", { tabindex: "-1", "data-open": true, title: line(one.id, 200) }, line(one.node, 60)),
                  muted(` pid ${one.pid}`),
                ),
                h("td", { "data-label": "Version" }, mono(line(versionOf(one), 60))),
                h("td", { "data-label": "Ended" }, when(one.ended_at)),
                h("td", { class: "num", "data-label": "Lived" }, lasted(one.started_at, one.ended_at)),
                h(
                  "td",
                  { "data-label": "How" },
                  one.lost ? h("span", { class: "late" }, "its lease expired") : muted("gone"),
                ),
              ),
            ),
          ),
        ),
      ),
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
      known.workers.length
        ? grouped(known.workers).map(group)
        : empty(
            "No worker is alive",
            "Jobs wait until a worker is started:",
            "holdfast worker start --foreground\nholdfast worker start -A your_module:app --count 2",
          ),
      ended(),
    ];
  }

  return { title: "Workers", load, view };
}
