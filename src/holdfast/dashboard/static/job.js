// One job: timeline, arguments, result, output and actions.

import { get, jobPath, post, remove } from "./api.js";
import { h } from "./dom.js";
import { flowHref } from "./flows.js";
import { age, ago, at, line, plain, span } from "./format.js";
import { cloneJob, editJob } from "./jobforms.js";
import { logs, stream } from "./logs.js";
import {
  bar,
  block,
  button,
  coded,
  confirm,
  copy,
  copyButton,
  ENDED,
  empty,
  exact,
  failed,
  jobName,
  jobsHref,
  lasted,
  loading,
  mono,
  muted,
  panel,
  state,
  toast,
  when,
  workerName,
} from "./parts.js";
import { trees } from "./tree.js";

export default function job(context, id) {
  let job = null;
  let why = null;
  let flow = null;
  let worker = null;
  let gone = false;
  const opened = new Set();
  const abort = new AbortController();
  const output = logs(context, id, abort.signal);
  const emitted = stream(context, id, abort.signal);
  const tree = trees(context.draw);

  async function load() {
    try {
      job = await get(jobPath(id), null, { signal: abort.signal });
      gone = false;
    } catch (error) {
      if (![404, 422].includes(error.status)) throw error;
      gone = true;
      return;
    }
    const [reason, whole, workers] = await Promise.all([
      get(jobPath(id, "/explain"), null, { signal: abort.signal }).catch(() => null),
      job.type === "flow"
        ? get(`v1/flows/${encodeURIComponent(id)}`, null, { signal: abort.signal }).catch(() => null)
        : null,
      job.status === "running" ? get("v1/workers", null, { signal: abort.signal }) : null,
    ]);
    why = reason;
    flow = whole;
    worker = workers ? workers.workers.find((one) => one.id === job.worker) || null : null;
    page.busy = job.status === "running"; // its output and progress are no transitions
    page.every = job.status === "running" ? 1000 : ENDED.has(job.status) ? 30000 : 3000;
    await Promise.all([output.load(job.status === "running"), job.fence && emitted.load()]);
  }

  async function act(action, word, question, detail) {
    if (question && !(await confirm(question, detail, word))) return;
    try {
      if (action === "delete") {
        await remove(jobPath(id));
        toast("Job deleted");
        location.hash = context.lists.jobs;
        return;
      }
      const answer = await post(jobPath(id, `/${action}`), undefined);
      if (action === "cancel")
        toast(
          answer.job.status === "running"
            ? "Cancellation requested"
            : answer.cancelled
              ? "Job cancelled"
              : "Job had already ended",
        );
      else toast("Job queued again");
      context.reload();
    } catch (error) {
      failed(error);
    }
  }

  function actions() {
    const { status } = job;
    const operate = context.may("operate");
    const done = (job.flow || job.type === "flow") && status === "succeeded"; // only failed parts of a flow can be retried
    const editable = job.type !== "flow" && !job.type.startsWith("holdfast.");
    return h(
      "div",
      { class: "actions" },
      operate &&
        !done &&
        !Object.keys(job.damage || {}).length &&
        !["running", "blocked", "queued"].includes(status) &&
        button(ENDED.has(status) ? "Retry" : "Run now", () => act("retry"), { icon: "retry" }),
      operate &&
        !ENDED.has(status) &&
        !job.cancel_requested &&
        button(
          "Cancel",
          () =>
            act(
              "cancel",
              "Cancel job",
              "Cancel this job?",
              status === "running" ? "The job is asked to stop. It may still succeed." : "The job ends now.",
            ),
          { icon: "cancel" },
        ),
      operate &&
        editable &&
        status !== "running" &&
        !ENDED.has(status) &&
        button("Edit…", async () => (await editJob(job)) && context.reload(), { icon: "edit" }),
      operate && editable && button("Clone…", () => cloneJob(job), { icon: "copy" }),
      operate &&
        status !== "running" &&
        button(
          "Delete",
          () => act("delete", "Delete job", "Delete this job?", "It is deleted permanently, with result and output."),
          { icon: "delete", kind: "danger" },
        ),
      button("Copy link", () => copy(location.href, "Link"), { icon: "copy" }),
    );
  }

  function view() {
    const back = h(
      "nav",
      { class: "crumbs", "aria-label": "Breadcrumb" },
      h("a", { href: context.lists.jobs }, "Jobs"),
      h("span", { "aria-hidden": "true" }, "/"),
      mono(line(id, 60)),
    );
    if (gone)
      return [
        back,
        h("div", { class: "title" }, h("h1", {}, "Job not found")),
        empty("No job has this id", "It may have been deleted, or removed after its retention."),
      ];
    if (!job) return [back, ...loading("Job")];
    const open = (name) => () => {
      opened.add(name);
      context.draw();
    };
    const shown = (name, text, props) => block(text, opened.has(name), open(name), props);
    return [
      back,
      h(
        "div",
        { class: "title job-title" },
        h("h1", {}, jobName(job, 128)),
        state(job.status),
        job.cancel_requested && muted("cancel requested"),
        Object.keys(job.damage || {}).length > 0 && muted("damaged"),
        h("span", { class: "space" }),
        actions(),
      ),
      explained(),
      job.progress &&
        panel(
          "Progress",
          { key: "progress" },
          h(
            "div",
            { class: "wide-progress" },
            bar(
              job.progress.done,
              job.progress.total,
              job.progress.total
                ? `${job.progress.done} of ${job.progress.total}${job.progress.note ? ` · ${job.progress.note}` : ""}`
                : job.progress.note,
            ),
          ),
        ),
      h(
        "div",
        { class: "columns" },
        h(
          "div",
          { class: "wide" },
          job.error &&
            job.status !== "cancelled" &&
            panel(
              job.status === "dead" ? "Error" : "Last error",
              {
                key: "error",
                kind: "bad",
                side: h(
                  "span",
                  { class: "buttons" },
                  copyButton("error", job.error),
                  job.traceback && copyButton("traceback", job.traceback),
                ),
              },
              shown("error", plain(job.error), { class: "wrap error-text" }),
              job.traceback &&
                h(
                  "details",
                  { open: opened.has("traceback") || job.traceback.length < 6000 },
                  h("summary", {}, "Traceback"),
                  shown("traceback", plain(job.traceback)),
                ),
            ),
          (output.any() || job.type === "shell") && output.view(job.status === "running"),
          emitted.any() && emitted.view(job.status === "running"),
          flow &&
            panel(
              "Jobs of this flow",
              {
                key: "flow",
                note: `${flow.jobs}`,
                side: h("a", { class: "button small", href: flowHref(id) }, "Show graph"),
              },
              h(
                "p",
                {},
                `From ${job.id}.0: `,
                Object.entries(flow.counts).map(([word, count]) => [state(word), ` ${count} `]),
              ),
            ),
          panel("Arguments", { key: "arguments" }, tree("Arguments", job.payload)),
          (job.result !== null || job.status === "succeeded") &&
            panel("Result", { key: "result" }, tree("Result", job.result)),
          job.steps.length > 0 &&
            panel(
              "Steps",
              { key: "steps", note: `${job.steps.length}, not repeated by later attempts` },
              tree("Steps", job.steps),
            ),
          job.checkpoint !== null &&
            panel(
              "Checkpoint",
              { key: "checkpoint", note: "the next attempt continues here" },
              tree("Checkpoint", job.checkpoint),
            ),
          Object.keys(job.meta).length > 0 && panel("Meta", { key: "meta" }, tree("Meta", job.meta)),
        ),
        h("div", { class: "narrow" }, timeline(), facts()),
      ),
    ];
  }

  function explained() {
    if (!why || job.status === "succeeded") return null;
    const reason = why.reason.charAt(0).toUpperCase() + why.reason.slice(1);
    const details = why.details.filter((one) => one !== job.error);
    return h(
      "div",
      { class: `why ${job.status}`, key: "why" },
      h("p", {}, coded(reason), reason.endsWith(".") ? "" : "."),
      details.length > 0 &&
        h(
          "ul",
          {},
          details.map((one) => h("li", {}, coded(one))),
        ),
    );
  }

  function facts() {
    const rows = [
      ["Id", [h("span", { class: "mono breakable" }, line(job.id, 512)), " ", copyButton("id", job.id)]],
      ["Queue", h("a", { href: jobsHref({ queue: job.queue }) }, line(job.queue, 128))],
      [
        "Attempt",
        `${job.attempts} of ${job.max_attempts || "unlimited"}${job.reset_count ? `, reset ${times(job.reset_count)}` : ""}`,
      ],
      ["Priority", job.priority ? String(job.priority) : null],
      ["Flow", job.flow ? h("a", { href: flowHref(job.flow), class: "mono breakable" }, line(job.flow, 160)) : null],
      [
        "Limits",
        job.limits.length
          ? h("span", { class: "mono breakable" }, line(job.limits.map(limitText).join(", "), 160))
          : null,
      ],
      ["Time limit", job.timeout === null ? null : span(job.timeout)],
      ["Enqueued", when(job.created_at)],
      ["Due", ["scheduled", "failed"].includes(job.status) ? when(job.run_at) : null],
      ["Waited", job.started_at ? span(waited()) : null],
      [
        job.status === "running" ? "Running for" : "Ran",
        job.started_at && (job.finished_at || job.status === "running")
          ? lasted(job.started_at, job.finished_at)
          : null,
      ],
      [
        "Worker",
        job.worker ? h("a", { href: "#/workers", title: line(job.worker, 200) }, workerName(job.worker)) : null,
      ],
      ["Process", job.pid ? String(job.pid) : null],
      ["Heartbeat", worker ? `${span(worker.last_heartbeat)} ago, lease ${span(worker.lease)}` : null],
      ["Fence", String(job.fence)],
      ["Key", job.key ? h("span", { class: "mono breakable" }, line(job.key, 512)) : null],
      [
        "Tags",
        job.tags.length
          ? job.tags.map((tag) => h("a", { class: "tag", href: jobsHref({ tag }) }, line(tag, 60)))
          : null,
      ],
    ];
    return panel(
      "Details",
      { key: "facts" },
      h(
        "dl",
        { class: "facts" },
        rows
          .filter(([, value]) => value !== null)
          .map(([name, value]) => [h("dt", { key: `${name} term` }, name), h("dd", { key: name }, value)]),
      ),
    );
  }

  /** Seconds before the last start, from when it was due or the previous attempt ended. */
  function waited() {
    const before = job.history.filter((one) => one.fence < job.fence).map((one) => Date.parse(one.ended_at));
    return Math.max(0, (Date.parse(job.started_at) - Math.max(Date.parse(job.run_at), ...before)) / 1000);
  }

  function timeline() {
    const events = [["queued", "Enqueued", job.created_at, null]];
    if (Date.parse(job.run_at) - Date.parse(job.created_at) > 1500 && !job.history.length && !job.started_at)
      events.push(["scheduled", age(job.run_at) < 0 ? "Due" : "Was due", job.run_at, null]);
    let resets = 0;
    for (const one of job.history) {
      if (one.reset_count > resets)
        events.push(["queued", "Reset", null, `attempts restart at 0; reset ${one.reset_count}`]);
      resets = Math.max(resets, one.reset_count);
      events.push([
        outcome(one.outcome),
        `Attempt ${one.number}: ${one.outcome}`,
        one.started_at || one.ended_at,
        h(
          "div",
          {},
          one.worker &&
            h(
              "div",
              { class: "soft", title: line(one.worker, 200) },
              `on ${workerName(one.worker)}`,
              one.started_at && ` · ran ${lasted(one.started_at, one.ended_at)}`,
            ),
          one.error && h("div", { class: "error-text" }, line(one.error, 300)),
        ),
      ]);
    }
    if (job.reset_count > resets)
      events.push(["queued", "Reset", null, `attempts restart at 0; reset ${job.reset_count}`]);
    if (job.status === "running")
      events.push([
        "running",
        `Attempt ${job.attempts}: running`,
        job.started_at,
        h(
          "div",
          { class: "soft" },
          `on ${workerName(job.worker)} · for ${lasted(job.started_at)}`,
          worker && h("div", {}, `last heartbeat ${span(worker.last_heartbeat)} ago`),
        ),
      ]);
    else if (job.status === "failed") events.push(["scheduled", "Next attempt", job.run_at, null]);
    else if (job.status === "queued" && job.history.length)
      events.push(["queued", "Waiting for a worker", job.run_at, null]);
    else if (job.status === "cancelled" && (!job.history.length || job.history.at(-1).outcome !== "cancelled"))
      events.push(["cancelled", "Cancelled", job.finished_at, job.error && muted(line(job.error, 200))]);
    return panel(
      "Timeline",
      { key: "timeline", note: job.history.length >= 50 ? "the last 50 attempts" : "" },
      h(
        "ol",
        { class: "timeline" },
        events.map(([kind, title, time, detail]) =>
          h(
            "li",
            { class: kind },
            h(
              "div",
              { class: "head" },
              h("b", {}, title),
              time &&
                h("time", { class: "soft", datetime: time, title: exact(time) }, age(time) < -1 ? ago(time) : at(time)),
            ),
            detail,
          ),
        ),
      ),
    );
  }

  const page = {
    title: () => (job ? `${jobName(job, 60)} ${job.status}` : "Job"),
    load,
    view,
    every: 3000,
    concerns: (transitions) => transitions.some((one) => one.id === id),
    stop: () => abort.abort(),
  };
  return page;
}

const outcome = (word) =>
  ({ succeeded: "succeeded", failed: "failed", lost: "dead", dead: "dead", cancelled: "cancelled" })[word] || "queued";
const times = (n) => (n === 1 ? "once" : `${n} times`);
const limitText = (limit) => (limit.key === null ? limit.name : `${limit.name}: ${limit.key}`);
