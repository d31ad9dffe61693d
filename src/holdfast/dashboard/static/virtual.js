// Long tables: only the rows near the visible part are in the document, with a spacer above and below them.

import { h } from "./dom.js";

const AROUND = 15; // rows beyond each edge of the window
const SHORT = 60; // tables up to this length are drawn whole

/** A window over many rows. `draw` is called when scrolling has moved it. */
export function rowWindow(draw) {
  let height = 41; // pixels of a row; measured once rows are shown
  let from = 0;
  let to = SHORT;
  let total = 0;
  let body = null;

  function measure() {
    if (!body || total <= SHORT) return;
    const rows = body.querySelectorAll("tr[data-row]");
    if (rows.length > 1) {
      const first = rows[0].getBoundingClientRect();
      const last = rows[rows.length - 1].getBoundingClientRect();
      height = Math.max(20, (last.bottom - first.top) / rows.length);
    }
    const top = body.getBoundingClientRect().top;
    const start = Math.max(0, Math.floor(-top / height) - AROUND);
    const end = Math.min(total, Math.ceil((window.innerHeight - top) / height) + AROUND);
    if (start === from && end === to) return;
    from = Math.min(start, Math.max(0, total - 1));
    to = Math.max(end, from + 1);
    draw();
  }

  const spacer = (key, rows) =>
    rows > 0 &&
    h("tr", { key, "aria-hidden": "true" }, h("td", { class: "spacer", style: { height: `${rows * height}px` } }));

  /** The body of the table, for all of its items. */
  function rows(items, row) {
    total = items.length;
    const whole = total <= SHORT;
    const start = whole ? 0 : Math.min(from, Math.max(0, total - 1));
    const end = whole ? total : Math.min(Math.max(to, start + 1), total);
    return h(
      "tbody",
      {
        update: (element) => {
          if (body !== element) requestAnimationFrame(measure); // the height of a row is known once rows are shown
          body = element;
        },
      },
      spacer("above", start),
      items.slice(start, end).map(row),
      spacer("below", total - end),
    );
  }

  const moved = () => requestAnimationFrame(measure);
  window.addEventListener("scroll", moved, { passive: true });
  window.addEventListener("resize", moved, { passive: true });
  const stop = () => {
    window.removeEventListener("scroll", moved);
    window.removeEventListener("resize", moved);
  };
  return { rows, stop, measure };
}
