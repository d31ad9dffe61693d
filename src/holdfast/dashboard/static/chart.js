// SVG charts: stacked bars or lines over time, with the values at the pointer or arrow-key position.

import { date, hour } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 54;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;
const HOW_TO_SELECT = "Select a span with the pointer, or with Shift and the arrow keys, then Enter.";

function make(tag, attributes, parent, text) {
  const element = document.createElementNS(SVG, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  if (text !== undefined) element.textContent = text;
  if (parent) parent.appendChild(element);
  return element;
}

/** The next round number: 1, 2, 5, 10, … */
function nice(value) {
  const size = 10 ** Math.floor(Math.log10(value));
  const rest = value / size;
  return (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10) * size;
}

/**
 * A chart in an element. `spec`: {label, kind: "bars"|"lines", from, to, step (milliseconds), series: [{name, color,
 * values, area}], format, least (lowest top of the scale; without it, ticks are integers), select, band: [from, to]}.
 * A null value is a gap. `select(from, to)` is called with a span that was dragged, or chosen with Shift, the arrow keys
 * and Enter; `band` is a span that is shown as chosen. All times are in milliseconds.
 */
export class Chart {
  constructor(element, height = 148) {
    this.element = element;
    this.height = height;
    this.at = null;
    this.svg = make("svg", { class: "plot", role: "img", tabindex: "0" });
    this.reading = document.createElement("div");
    this.reading.className = "reading";
    this.reading.setAttribute("aria-live", "polite");
    element.append(this.svg, this.reading);
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("pointerup", () => this.release());
    this.svg.addEventListener("pointercancel", () => this.choose(null));
    this.svg.addEventListener("pointerleave", () => this.pressed === undefined && this.read(null));
    this.svg.addEventListener("blur", () => this.read(null));
    this.svg.addEventListener("keydown", (event) => this.step(event));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(element);
  }

  stop() {
    this.observer.disconnect();
  }

  show(spec) {
    const drawn = JSON.stringify(spec);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    this.spec = spec;
    this.draw();
  }

  get steps() {
    return this.spec.series[0].values.length;
  }

  draw() {
    const { svg, spec, height } = this;
    const width = Math.floor(this.element.clientWidth);
    if (!spec || width < 80) return;
    svg.replaceChildren();
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-label", spec.select ? `${spec.label}. ${HOW_TO_SELECT}` : spec.label);
    svg.classList.toggle("selects", Boolean(spec.select));
    const stacked = spec.kind === "bars";
    let most = 0;
    for (let i = 0; i < this.steps; i += 1) {
      const values = spec.series.map((one) => one.values[i] || 0);
      most = Math.max(most, stacked ? values.reduce((a, b) => a + b, 0) : Math.max(...values));
    }
    const tick = spec.least ? nice(Math.max(most, spec.least) / 3) : Math.max(1, nice(Math.max(most, 1) / 3));
    const top = Math.max(tick, Math.ceil(most / tick) * tick);
    const inner = width - LEFT - RIGHT;
    this.x = (i) => LEFT + ((i + 0.5) / this.steps) * inner;
    this.y = (value) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
    for (let value = 0; value <= top + tick / 2; value += tick) {
      const y = Math.round(this.y(value)) + 0.5;
      make("line", { class: value ? "grid" : "base", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }, svg);
      make("text", { class: "axis", x: LEFT - 7, y: y + 3.5, "text-anchor": "end" }, svg, spec.format(value));
    }
    this.times(svg, width, inner);
    if (stacked) this.bars(svg, inner);
    else for (const one of spec.series) this.path(svg, one);
    this.band = make("rect", { class: "band", y: TOP, height: height - TOP - BOTTOM, visibility: "hidden" }, svg);
    this.choose(this.chosen || null);
    this.cross = make("line", { class: "cross", y1: TOP, y2: height - BOTTOM, visibility: "hidden" }, svg);
    if (this.at !== null) this.read(Math.min(this.at, this.steps - 1));
  }

  times(svg, width, inner) {
    const { from, to } = this.spec;
    const wide = to - from;
    const most = Math.max(2, Math.floor(inner / 76));
    const sizes = [60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400].map((s) => s * 1000);
    const size = sizes.find((one) => wide / one <= most) || 86400000;
    const zone = new Date(from).getTimezoneOffset() * 60000;
    for (let time = Math.ceil((from - zone) / size) * size + zone; time < to; time += size) {
      const x = LEFT + ((time - from) / wide) * inner;
      if (x < LEFT + 14 || x > width - 22) continue;
      const midnight = (time - zone) % 86400000 === 0;
      const label = size >= 86400000 || midnight ? date(time) : hour(time);
      make("text", { class: "axis", x, y: this.height - 6, "text-anchor": "middle" }, svg, label);
    }
  }

  bars(svg, inner) {
    const gap = inner / this.steps;
    const width = Math.max(1, gap > 4 ? gap - Math.min(3, gap * 0.25) : gap - 0.4);
    const floors = new Array(this.steps).fill(0);
    for (const { values, color } of this.spec.series) {
      let path = "";
      values.forEach((value, i) => {
        if (!value) return;
        const y0 = this.y(floors[i]);
        floors[i] += value;
        const y1 = this.y(floors[i]);
        path += `M${(this.x(i) - width / 2).toFixed(2)} ${y0.toFixed(2)}h${width.toFixed(2)}V${y1.toFixed(2)}h${(-width).toFixed(2)}z`;
      });
      if (path) make("path", { class: `fill-${color}`, d: path }, svg);
    }
  }

  path(svg, { values, color, area }) {
    for (const points of runs(values, this.x, this.y)) {
      const d = drawnPath(points);
      if (area && points.length > 1)
        make(
          "path",
          {
            class: `area-${color}`,
            d: `${d}L${points.at(-1)[0].toFixed(1)} ${this.y(0)}L${points[0][0].toFixed(1)} ${this.y(0)}z`,
          },
          svg,
        );
      if (points.length === 1)
        make("circle", { class: `fill-${color}`, cx: points[0][0], cy: points[0][1], r: 2 }, svg);
      else make("path", { class: `line-${color}`, d }, svg);
    }
  }

  point(event) {
    if (!this.spec) return;
    const box = this.svg.getBoundingClientRect();
    let share = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    if (this.pressed !== undefined) share = Math.min(1, Math.max(0, share));
    this.read(share < 0 || share > 1 ? null : Math.min(this.steps - 1, Math.floor(share * this.steps)));
    if (this.pressed !== undefined && (this.chosen || this.at !== this.pressed)) this.choose([this.pressed, this.at]);
  }

  step(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!this.spec) return;
    if (event.key === "Enter" && this.at !== null) this.release(this.chosen || [this.at, this.at]);
    if (event.key === "Escape") this.choose(null);
    if (!by) return;
    event.preventDefault();
    const from = this.at === null ? this.steps - 1 : this.at;
    this.read(Math.min(this.steps - 1, Math.max(0, this.at === null ? from : from + by)));
    if (this.spec.select) this.choose(event.shiftKey ? [this.chosen ? this.chosen[0] : from, this.at] : null);
  }

  press(event) {
    if (!this.spec?.select || event.button || this.at === null) return;
    this.svg.setPointerCapture(event.pointerId);
    this.pressed = this.at;
  }

  /** Open the chosen steps: of a pointer, if it was moved. */
  release(chosen = this.pressed === undefined ? null : this.chosen) {
    this.pressed = undefined;
    if (!chosen || !this.spec.select) return;
    const { from, step, select } = this.spec;
    const [first, last] = [Math.min(...chosen), Math.max(...chosen)];
    this.choose(null);
    select(from + first * step, from + (last + 1) * step);
  }

  /** Show steps as chosen; null: the band of the spec. */
  choose(steps) {
    this.chosen = steps;
    if (!this.band) return;
    const { from, step, band } = this.spec;
    const gap = this.x(1) - this.x(0);
    const shown = steps ? [Math.min(...steps), Math.max(...steps) + 1] : band?.map((time) => (time - from) / step);
    this.band.setAttribute("visibility", shown ? "visible" : "hidden");
    if (!shown) return;
    this.band.setAttribute("x", this.x(shown[0]) - gap / 2);
    this.band.setAttribute("width", Math.max(2, (shown[1] - shown[0]) * gap));
  }

  read(at) {
    this.at = at;
    if (!this.cross) return;
    this.cross.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at === null) {
      this.reading.replaceChildren();
      return;
    }
    const { from, step, series, format } = this.spec;
    const x = this.x(at);
    this.cross.setAttribute("x1", x);
    this.cross.setAttribute("x2", x);
    const time = from + at * step;
    const head = document.createElement("b");
    head.textContent = step >= 86400000 || Date.now() - time > 86400000 ? `${date(time)}, ${hour(time)}` : hour(time);
    const rows = series.map((one) => {
      const row = document.createElement("div");
      const dot = document.createElement("i");
      dot.className = `dot fill-${one.color}`;
      const value = one.values[at];
      row.append(dot, `${one.name}  ${value === null || value === undefined ? "no data" : format(value)}`);
      return row;
    });
    this.reading.replaceChildren(head, ...rows);
    const room = this.element.clientWidth - this.reading.offsetWidth;
    this.reading.style.left = `${Math.max(0, Math.min(room, x + 12 > room ? x - this.reading.offsetWidth - 12 : x + 12))}px`;
  }
}

/** A line without axes, for a table row; a null value is a gap. */
export function sparkline(element, values, label) {
  const drawn = values.join();
  if (element.drawn === drawn) return;
  element.drawn = drawn;
  const width = 66;
  const height = 22;
  const svg = make("svg", {
    class: "spark",
    role: "img",
    "aria-label": label,
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
  });
  const top = Math.max(1, ...values);
  const x = (i) => (i / Math.max(1, values.length - 1)) * (width - 2) + 1;
  const y = (value) => height - 2 - (value / top) * (height - 4);
  const known = values.filter((value) => value !== null).length;
  for (const points of known > 1 ? runs(values, x, y) : []) {
    const d = drawnPath(points);
    const [from, to] = [points[0][0], points.at(-1)[0]].map((at) => at.toFixed(1));
    if (points.length === 1) make("circle", { class: "fill-accent", cx: from, cy: points[0][1], r: 1 }, svg);
    else {
      make("path", { class: "area-accent", d: `${d}L${to} ${height - 1}L${from} ${height - 1}z` }, svg);
      make("path", { class: "line-accent", d }, svg);
    }
  }
  element.replaceChildren(svg);
}

/** The points of each run of values without a gap. */
function runs(values, x, y) {
  const found = [[]];
  values.forEach((value, i) => {
    if (value === null) found.push([]);
    else found.at(-1).push([x(i), y(value)]);
  });
  return found.filter((points) => points.length);
}

const drawnPath = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
