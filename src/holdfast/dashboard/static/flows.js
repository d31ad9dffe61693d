// Flows: their progress, newest first.

import { get } from "./api.js";
import { h } from "./dom.js";
import { count, line } from "./format.js";
import { bar, button, cursorsOf, empty, loading, muted, shortId, state, when } from "./parts.js";

const STATES = ["blocked", "succeeded", "dead", "cancelled"];
const LABELS = { blocked: "not ended" };
const ROWS = 50;

export const flowHref = (id) => `#/flows/${encodeURIComponent(id)}`;

export default function flows(context, search) {
  let known = null;
  let states = read(search);
  let cursors = cursorsOf(search);

  function read(params) {
    return params.getAll("state").filter((one) => STATES.includes(one));
  }

  async function load() {
    known = await get("v1/flows", { state: states, limit: ROWS, cursor: cursors.at(-1), progress: true });
  }

  function address(some, cursor) {
    const params = new URLSearchParams(some.map((one) => ["state", one]));
    if (cursor) params.set("cursor", cursor);
    return `#/flows${params.size ? `?${params}` : ""}`;
  }

  function choose(name) {
    location.hash = address(states.includes(name) ? states.filter((one) => one !== name) : [...states, name]);
  }

  function turn(by) {
    cursors = by > 0 ? [...cursors, known.cursor] : cursors.slice(0, -1);
    context.push(address(states, cursors.at(-1)), { cursors });
    context.reload().then(() => window.scrollTo(0, 0));
  }

  function row(flow) {
    const ended = flow.jobs_ended ?? 0;
    const dead = flow.counts.dead || 0;
    return h(
      "tr",
      { key: flow.id, "data-row": true },
      h(
        "th",
        { scope: "row", class: "name" },
        h("a", { href: flowHref(flow.id), "data-open": true }, line(flow.name, 128) || "flow"),
        h("div", { class: "mono soft", title: line(flow.id, 512) }, shortId(flow.id)),
      ),
      h("td", { "data-label": "State" }, state(flow.status), flow.cancelling && muted(" cancelling")),
      h(
        "td",
        { "data-label": "Progress" },
        flow.status === "blocked" && flow.jobs_ended !== null
          ? bar(ended, flow.jobs, `${flow.exact ? "" : "about "}${count(ended)} of ${count(flow.jobs)}`)
          : `${count(flow.jobs)} jobs`,
        dead > 0 && h("span", { class: "tag bad" }, `${count(dead)} dead`),
      ),
      h("td", { "data-label": "Started" }, when(flow.created_at)),
      h("td", { class: "wrap error-text" }, flow.error && flow.status !== "succeeded" ? line(flow.error, 160) : ""),
    );
  }

  function view() {
    if (!known) return loading("Flows");
    const any = known.flows.length || states.length || cursors.length > 1;
    return [
      h("div", { class: "title" }, h("h1", {}, "Flows")),
      any &&
        h(
          "div",
          { class: "chips", role: "group", "aria-label": "States" },
          STATES.map((name) =>
            h(
              "button",
              {
                type: "button",
                class: "chip",
                "aria-pressed": String(states.includes(name)),
                on: { click: () => choose(name) },
              },
              state(name, LABELS[name] && ` (${LABELS[name]})`),
            ),
          ),
        ),
      known.flows.length
        ? table()
        : empty(
            any ? "No flow matches" : "No flows yet",
            any ? null : "A flow is a graph of jobs: app.enqueue_flow(flow) stores and starts one.",
          ),
      (known.cursor || cursors.length > 1) &&
        h(
          "div",
          { class: "pages" },
          h("span", { class: "soft", role: "status" }, cursors.length > 1 ? `Page ${cursors.length}` : ""),
          h("span", { class: "space" }),
          button("Newer", () => turn(-1), { disabled: cursors.length === 1 }),
          button("Older", () => turn(1), { disabled: !known.cursor }),
        ),
    ];
  }

  function table() {
    return h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "list flows-list" },
        h("caption", { class: "hidden" }, "Flows, newest first"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Flow", "State", "Progress", "Started", "Error"].map((label) => h("th", { scope: "col" }, label)),
          ),
        ),
        h("tbody", {}, known.flows.map(row)),
      ),
    );
  }

  const query = (params) => {
    states = read(params);
    cursors = cursorsOf(params);
  };
  return { title: "Flows", load, view, query };
}
