// One flow: its graph, critical path and failed jobs; retry and cancel.

import { get, jobPath, post } from "./api.js";
import { Canvas, picture, ran, stateBar, summary } from "./canvas.js";
import { h } from "./dom.js";
import { age, count, line, plural, seconds, span } from "./format.js";
import { arrange } from "./graph.js";
import {
  button,
  coded,
  confirm,
  copy,
  ENDED,
  empty,
  failed,
  jobHref,
  loading,
  mono,
  muted,
  panel,
  STATES,
  state,
  toast,
} from "./parts.js";

const LOADED = 10000; // jobs that are loaded and drawn
const LISTED = 50; // jobs of a list
const STEPS = 15; // jobs of the critical path that are listed
const MANY = 20000; // milliseconds between reloads of a flow of several pages; the event stream updates it meanwhile

export default function flow(context, id) {
  let about = null;
  let why = null;
  let gone = false;
  let pages = []; // {start, next, nodes}
  let nodes = new Map(); // by number
  let shape = null;
  let drawn = null; // computed from the present states; null after a change
  let chosen = null; // the key of the open group
  const canvas = new Canvas(context);
  const abort = new AbortController();
  const options = { signal: abort.signal };

  async function load() {
    try {
      const explaining = get(jobPath(id, "/explain"), null, options);
      explaining.catch(() => {}); // reported by the next request, or not at all
      await loadJobs();
      why = await explaining.catch(() => null);
      gone = false;
    } catch (error) {
      if (![404, 422].includes(error.status)) throw error;
      gone = true;
    }
    page.every = pages.length > 1 ? MANY : undefined;
  }

  /** Load the pages that may have changed: those with jobs that have not ended, and the last. */
  async function loadJobs() {
    const asked = pages;
    const made = [];
    let start = 0;
    while (start !== null && start < LOADED) {
      const known = asked[made.length];
      const over = known?.next && known.nodes.every((node) => ENDED.has(node.status));
      if (over && about && !changed) made.push(known);
      else {
        const found = await get(`v1/flows/${encodeURIComponent(id)}/graph`, { start }, options);
        about = found.flow;
        made.push({ start, next: found.next, nodes: found.nodes });
      }
      start = made.at(-1).next;
      if (made.length > asked.length) use([...made]);
    }
    changed = false;
    use(made);
  }

  let changed = true; // jobs that had ended may run again

  function use(made) {
    pages = made;
    nodes = new Map(made.flatMap((one) => one.nodes).map((node) => [node.number, node]));
    drawn = null;
    shape = null;
    context.draw();
  }

  /** Apply transitions to the jobs on the page; true if the flow must be loaded again. */
  function concerns(transitions) {
    let again = false;
    for (const one of transitions) {
      if (one.id === id) again = true;
      if (!one.id.startsWith(`${id}.`)) continue;
      const node = nodes.get(Number(one.id.slice(id.length + 1)));
      if (!node || pages.length < 2 || (ENDED.has(node.status) && !ENDED.has(one.state))) {
        again = true;
        changed = true;
      } else {
        node.status = one.state;
        if (one.state === "running") Object.assign(node, { started_at: one.at, finished_at: null });
        else if (ENDED.has(one.state)) node.finished_at = one.at;
        drawn = null;
      }
    }
    if (!drawn) context.draw();
    return again;
  }

  function prepared() {
    if (drawn) return drawn;
    const all = [...nodes.values()];
    shape ||= arrange(all);
    drawn = { ...picture(all, shape), ...summary(all), all };
    return drawn;
  }

  async function act(action, of, question, detail, word) {
    if (question && !(await confirm(question, detail, word, action === "cancel" ? "danger" : "primary"))) return;
    try {
      await post(jobPath(of, `/${action}`));
      toast(
        action === "cancel"
          ? "Flow is being cancelled"
          : of === id
            ? "Flow continues"
            : "Job and those after it run again",
      );
      changed = true;
      context.reload();
    } catch (error) {
      failed(error);
    }
  }

  function actions() {
    if (!context.may("operate")) return null;
    const retries = ["dead", "cancelled"].includes(about.status);
    return [
      retries && button("Retry failed jobs", () => act("retry", id), { icon: "retry" }),
      !ENDED.has(about.status) &&
        !about.cancelling &&
        button(
          "Cancel",
          () =>
            act(
              "cancel",
              id,
              "Cancel this flow?",
              "Its waiting jobs end now. Running jobs are asked to stop.",
              "Cancel flow",
            ),
          { icon: "cancel" },
        ),
    ];
  }

  function view() {
    const back = h(
      "nav",
      { class: "crumbs", "aria-label": "Breadcrumb" },
      h("a", { href: context.lists.flows }, "Flows"),
      h("span", { "aria-hidden": "true" }, "/"),
      mono(line(id, 60)),
    );
    if (gone)
      return [
        back,
        h("div", { class: "title" }, h("h1", {}, "Flow not found")),
        empty("No flow has this id", "It may have been deleted, or removed after its retention."),
      ];
    if (!about || !nodes.size) return [back, ...loading("Flow")];
    const now = prepared();
    return [
      back,
      h(
        "div",
        { class: "title job-title" },
        h("h1", {}, line(about.name, 128) || "Flow"),
        state(about.status),
        about.cancelling && muted("being cancelled"),
        h("span", { class: "space" }),
        h(
          "div",
          { class: "actions" },
          actions(),
          button("Details", () => (location.hash = jobHref(id)), { title: "Show the flow's own job" }),
          button("Copy link", () => copy(location.href, "Link"), { icon: "copy" }),
        ),
      ),
      reason(),
      numbers(now),
      panel(
        "Graph",
        { key: "graph", kind: "graph-panel", note: note(now), side: canvas.tools(now.shape) },
        canvas.view(about, now, chosen, (key) => {
          chosen = chosen === key ? null : key;
          context.draw();
        }),
      ),
      chosenGroup(now),
      failures(now),
      criticalList(now),
    ];
  }

  function reason() {
    if (!why || about.status === "succeeded") return null;
    const text = why.reason.charAt(0).toUpperCase() + why.reason.slice(1);
    const details = why.details.filter((one) => one !== about.error);
    return h(
      "div",
      { class: `why ${about.status}`, key: "why" },
      h("p", {}, coded(about.error || text.split("; `")[0]), "."), // without the command: the progress is below
      details.length > 0 &&
        h(
          "ul",
          {},
          details.map((one) => h("li", {}, coded(one))),
        ),
    );
  }

  function numbers({ counts, ended }) {
    return h(
      "div",
      { class: "panel flow-numbers", key: "numbers" },
      h(
        "p",
        {},
        h("b", { class: "num" }, `${count(ended)} of ${plural(about.jobs, "job")}`),
        ENDED.has(about.status) ? ` ended in ${span(lastEnd())}, ` : " ended, ",
        muted(`started ${span(age(about.created_at))} ago`),
      ),
      stateBar(counts, nodes.size),
      h(
        "ul",
        { class: "legend", "aria-label": "Jobs by state" },
        STATES.filter((name) => counts[name]).map((name) =>
          h("li", { key: name }, state(name, ` ${count(counts[name])}`)),
        ),
      ),
    );
  }

  /** Seconds from the start of the flow to its last end. */
  function lastEnd() {
    let last = 0;
    for (const node of nodes.values()) if (node.finished_at) last = Math.max(last, Date.parse(node.finished_at));
    return (last - Date.parse(about.created_at)) / 1000;
  }

  function note({ shape }) {
    const some = nodes.size < about.jobs && pages.at(-1).next !== null;
    const parts = [
      some && `the first ${count(nodes.size)} jobs`,
      shape.grouped && "jobs of the same task and depth are grouped",
    ];
    return parts.filter(Boolean).join("; ");
  }

  const jobLink = (node) =>
    h("a", { href: jobHref(`${id}.${node.number}`), "data-open": true }, `${line(node.type, 80)} ${node.number}`);

  /** A table of jobs; `retry`: each can be retried. */
  function table(caption, some, retry) {
    return h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "list flow-jobs" },
        h("caption", { class: "hidden" }, caption),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("th", { scope: "col" }, "Job"),
            h("th", { scope: "col" }, "State"),
            h("th", { scope: "col", class: "right" }, "Ran"),
            h("th", { scope: "col" }, "Error"),
            retry && h("th", {}, h("span", { class: "hidden" }, "Actions")),
          ),
        ),
        h(
          "tbody",
          {},
          some.slice(0, LISTED).map((node) =>
            h(
              "tr",
              { key: node.number, "data-row": true },
              h("th", { scope: "row", class: "name" }, jobLink(node)),
              h("td", { "data-label": "State" }, state(node.status)),
              h("td", { class: "right num", "data-label": "Ran" }, ran(node) || muted("–")),
              h(
                "td",
                { class: "wrap error-text" },
                node.error && node.status !== "succeeded" ? line(node.error, 200) : "",
              ),
              retry &&
                h(
                  "td",
                  { class: "right act" },
                  button("Retry from here", () => act("retry", `${id}.${node.number}`), {
                    kind: "small",
                    icon: "retry",
                  }),
                ),
            ),
          ),
        ),
      ),
    );
  }

  const more = (some) =>
    some.length > LISTED && h("p", { class: "soft window" }, `${count(some.length - LISTED)} more are not listed.`);

  function chosenGroup({ shape, sums }) {
    const box = shape.boxes.find((one) => one.key === chosen);
    if (!box || !shape.grouped) return null;
    const order = ["dead", "failed", "running", "queued", "scheduled", "blocked", "cancelled", "succeeded"];
    const some = [...box.nodes].sort(
      (a, b) => order.indexOf(a.status) - order.indexOf(b.status) || a.number - b.number,
    );
    const { counts } = sums.get(box);
    return panel(
      `Jobs of ${line(box.task, 80)}`,
      {
        key: "group",
        note: STATES.filter((name) => counts[name])
          .map((name) => `${count(counts[name])} ${name}`)
          .join(", "),
      },
      table(`Jobs of ${line(box.task, 80)}`, some, false),
      more(some),
    );
  }

  function failures({ all }) {
    const some = all.filter((node) => node.status === "dead");
    if (!some.length) return null;
    return panel(
      "Dead jobs",
      { key: "dead", kind: "bad", note: count(some.length) },
      table("Dead jobs", some, context.may("operate")),
      more(some),
    );
  }

  /** Each job of the critical path with the seconds that it waited after the job before it, and ran. */
  function criticalSteps(path) {
    return path.map((node, at) => {
      const from = at ? path[at - 1].finished_at : about.created_at;
      const took = node.finished_at ? seconds(node.started_at, node.finished_at) : age(node.started_at);
      return { node, waited: Math.max(0, seconds(from, node.started_at)), took };
    });
  }

  function criticalList({ path }) {
    if (path.length < 2) return null;
    const steps = criticalSteps(path);
    const whole = steps.reduce((sum, { waited, took }) => sum + waited + took, 0);
    const longest = [...steps].sort((a, b) => b.waited + b.took - a.waited - a.took).slice(0, STEPS);
    const part = (seconds, kind) =>
      h("i", { class: kind, style: { width: `${Math.min(100, (seconds / (whole || 1)) * 100)}%` } });
    return panel(
      "Critical path",
      {
        key: "path",
        note: `${plural(path.length, "job")} in ${span(whole)}${path.length > STEPS ? `, the longest ${STEPS} listed` : ""}`,
      },
      h(
        "ol",
        { class: "critical-list" },
        steps
          .filter((step) => longest.includes(step))
          .map(({ node, waited, took }) =>
            h(
              "li",
              { key: node.number },
              jobLink(node),
              h("span", { class: "num" }, muted(`waited ${span(waited)}, `), `ran ${span(took)}`),
              h(
                "span",
                { class: "state-bar", "aria-hidden": "true" },
                part(waited, "fill-blocked"),
                part(took, `fill-${node.status}`),
              ),
            ),
          ),
      ),
    );
  }

  const page = {
    title: () => (about ? `${line(about.name, 60)} ${about.status}` : "Flow"),
    load,
    view,
    concerns,
    stop: () => abort.abort(),
  };
  return page;
}
