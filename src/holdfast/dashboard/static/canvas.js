// Draws the graph of a flow: boxes are links or buttons, edges are SVG. It is zoomed, scrolled and dragged.

import { h } from "./dom.js";
import { count, line, seconds, span } from "./format.js";
import { criticalPath } from "./graph.js";
import { button, ENDED, jobHref, lasted, STATES } from "./parts.js";

const WIDE = 190;
const HIGH = 50;
const ACROSS = 64; // between columns
const DOWN = 14; // between rows
const EDGE = 16; // around all boxes
const STEP = 1.25; // of one zoom
const [LEAST, MOST] = [0.15, 2];

const left = (box) => EDGE + box.column * (WIDE + ACROSS);
const top = (box) => EDGE + box.row * (HIGH + DOWN);

/** How long a job ran, or has run; "" before its start. */
export function ran(node) {
  if (!node.started_at || !(node.finished_at || node.status === "running")) return "";
  return lasted(node.started_at, node.finished_at);
}

export class Canvas {
  constructor(context) {
    this.context = context;
    this.zoom = null; // chosen when it is first shown: the width of the graph fits, within bounds
    this.element = null;
    this.scroll = null; // where to scroll after the next drawing
    this.dragged = null;
  }

  /** `picture` of picture(), `chosen`: the key of the open group. */
  view(flow, { shape, critical, sums }, chosen, choose) {
    const [wide, high] = this.size(shape);
    return h(
      "div",
      {
        class: "graph scroll",
        role: "region",
        tabindex: "0",
        "aria-label": "Graph of the flow. Plus and minus zoom, arrows scroll.",
        on: {
          keydown: (event) => this.key(event, shape),
          wheel: (event) => this.wheel(event),
          pointerdown: (event) => this.grab(event),
          pointermove: (event) => this.drag(event),
          pointerup: () => (this.dragged = null),
          pointercancel: () => (this.dragged = null),
        },
        update: (element) => this.drawn(element, wide),
      },
      h(
        "div",
        { class: "sheet", style: { width: `calc(${wide}px * var(--zoom))`, height: `calc(${high}px * var(--zoom))` } },
        h(
          "div",
          { class: "boxes", style: { width: `${wide}px`, height: `${high}px`, transform: "scale(var(--zoom))" } },
          h(
            "svg",
            { class: "edges", width: wide, height: high, "aria-hidden": "true", focusable: "false" },
            shape.edges.map((edge) => drawnEdge(edge, critical.has(edge.key))),
          ),
          shape.boxes.map((box) =>
            box.nodes.length > 1
              ? group(box, sums.get(box), critical.has(box.key), chosen === box.key, () => choose(box.key))
              : job(flow, box, critical.has(box.key)),
          ),
        ),
      ),
    );
  }

  tools(shape) {
    return [
      button("−", () => this.by(1 / STEP), { kind: "small", title: "Zoom out" }),
      button("+", () => this.by(STEP), { kind: "small", title: "Zoom in" }),
      button("Fit", () => this.fit(shape), { kind: "small", title: "Show the whole graph" }),
    ];
  }

  size(shape) {
    return [
      2 * EDGE + shape.columns * (WIDE + ACROSS) - ACROSS,
      2 * EDGE + Math.max(1, shape.rows) * (HIGH + DOWN) - DOWN,
    ];
  }

  drawn(element, wide) {
    this.element = element;
    if (element.isConnected) this.show(wide);
    else queueMicrotask(() => this.show(wide)); // it has no width yet
  }

  show(wide) {
    this.zoom ??= Math.max(0.6, Math.min(1, this.element.clientWidth / wide));
    this.element.style.setProperty("--zoom", this.zoom);
    if (this.scroll) {
      this.element.scrollTo(...this.scroll);
      this.scroll = null;
    }
  }

  /** Zoom by a factor; the point (x, y) of the window of the graph keeps its place. */
  by(factor, x = this.element.clientWidth / 2, y = this.element.clientHeight / 2) {
    const before = this.zoom;
    this.zoom = Math.min(MOST, Math.max(LEAST, before * factor));
    const grown = this.zoom / before;
    this.scroll = [(this.element.scrollLeft + x) * grown - x, (this.element.scrollTop + y) * grown - y];
    this.context.draw();
  }

  fit(shape) {
    const [wide, high] = this.size(shape);
    const { clientWidth, clientHeight } = this.element;
    this.zoom = Math.min(1, Math.max(LEAST, Math.min(clientWidth / wide, clientHeight / high)));
    this.scroll = [0, 0];
    this.context.draw();
  }

  key(event, shape) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") this.by(STEP);
    else if (event.key === "-") this.by(1 / STEP);
    else if (event.key === "0") this.fit(shape);
    else return;
    event.preventDefault();
  }

  wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return; // scrolls
    event.preventDefault();
    const { left, top } = this.element.getBoundingClientRect();
    this.by(Math.exp(-Math.max(-50, Math.min(50, event.deltaY)) / 200), event.clientX - left, event.clientY - top);
  }

  grab(event) {
    if (event.pointerType !== "mouse" || event.button || event.target.closest("a, button")) return;
    const { scrollLeft, scrollTop } = this.element;
    this.dragged = [event.clientX + scrollLeft, event.clientY + scrollTop];
    this.element.setPointerCapture(event.pointerId);
  }

  drag(event) {
    if (this.dragged) this.element.scrollTo(this.dragged[0] - event.clientX, this.dragged[1] - event.clientY);
  }
}

/** What is drawn of the jobs, computed once for each change: shape, path, keys of boxes and edges on it, and sums. */
export function picture(nodes, shape) {
  const path = criticalPath(nodes);
  const critical = new Set();
  for (const [number, node] of path.entries()) {
    const box = shape.boxOf[node.number];
    critical.add(box.key);
    if (number) critical.add(`${shape.boxOf[path[number - 1].number].key}>${box.key}`);
  }
  return { shape, path, critical, sums: new Map(shape.boxes.map((box) => [box, summary(box.nodes)])) };
}

function drawnEdge({ key, from, to }, critical) {
  const [x1, y1] = [left(from) + WIDE, top(from) + HIGH / 2];
  const same = from.column === to.column;
  const [x2, y2] = [left(to) + (same ? WIDE : 0), top(to) + HIGH / 2];
  const bend = same ? 36 : Math.max(24, (x2 - x1) / 2);
  const d = `M${x1} ${y1}C${x1 + bend} ${y1} ${same ? x2 + bend : x2 - bend} ${y2} ${x2} ${y2}`;
  return h("path", { key, d, class: critical ? "edge critical" : "edge" });
}

const at = (box) => ({ left: `${left(box)}px`, top: `${top(box)}px`, width: `${WIDE}px`, height: `${HIGH}px` });
const PATH = " On the critical path.";

function job(flow, box, path) {
  const [node] = box.nodes;
  return h(
    "a",
    {
      key: box.key,
      class: `box ${node.status}${path ? " critical" : ""}`,
      href: jobHref(`${flow.id}.${node.number}`),
      style: at(box),
      title: `${line(node.type, 128)}, job ${node.number}${node.error ? `: ${line(node.error, 200)}` : ""}`,
      "data-row": true,
      "data-open": true,
    },
    h("b", {}, line(node.type, 60)),
    h(
      "span",
      { class: `state ${node.status}` },
      node.status,
      h("span", { class: "num soft" }, ran(node)),
      path && h("span", { class: "hidden" }, PATH),
    ),
  );
}

/** The number of jobs by state, how many have ended, and the mean time of those that ran. */
export function summary(nodes) {
  const counts = {};
  let [total, many, ended] = [0, 0, 0];
  for (const node of nodes) {
    if (ENDED.has(node.status)) ended += 1;
    counts[node.status] = (counts[node.status] || 0) + 1;
    if (node.started_at && node.finished_at) {
      total += seconds(node.started_at, node.finished_at);
      many += 1;
    }
  }
  return { counts, ended, mean: many ? total / many : null };
}

/** States as parts of a bar. */
export const stateBar = (counts, total) =>
  h(
    "span",
    { class: "state-bar", "aria-hidden": "true" },
    STATES.filter((name) => counts[name]).map((name) =>
      h("i", { key: name, class: `fill-${name}`, style: { width: `${(counts[name] / total) * 100}%` } }),
    ),
  );

function group(box, { counts, ended, mean }, path, open, click) {
  return h(
    "button",
    {
      type: "button",
      key: box.key,
      class: `box group-box${path ? " critical" : ""}`,
      style: at(box),
      title: line(box.task, 128),
      "aria-expanded": String(open),
      "data-row": true,
      "data-open": true,
      on: { click },
    },
    h("b", {}, line(box.task, 60)),
    h(
      "span",
      { class: "num soft" },
      `${count(ended)} / ${count(box.nodes.length)}${mean === null ? "" : ` · ${span(mean)}`}`,
    ),
    stateBar(counts, box.nodes.length),
    path && h("span", { class: "hidden" }, PATH),
  );
}
