// Values as trees: objects and lists that open on demand; lists of records are tables.

import { h } from "./dom.js";
import { count, json, line, plain, plural } from "./format.js";
import { block, button, copy } from "./parts.js";

const STEP = 100; // entries shown at once; each click shows as many more
const MAX_COLUMNS = 12; // of a table
const MAX_TEXT = 500; // characters of a text until it is opened
const OPEN_ENTRIES = 30; // an object or list with no more entries is open at first, near the top

const isObject = (value) => value !== null && typeof value === "object";
const size = (value) => (Array.isArray(value) ? value.length : Object.keys(value).length);

/** The columns of a list of records; null if it is none. */
function columns(value) {
  if (!Array.isArray(value) || value.length < 2) return null;
  const names = new Set();
  for (const one of value.slice(0, STEP)) {
    if (!isObject(one) || Array.isArray(one)) return null;
    for (const name of Object.keys(one)) names.add(name);
    if (names.size > MAX_COLUMNS) return null;
  }
  return names.size ? [...names] : null;
}

/** Shows values of a page; it remembers what is open. `draw` draws the page again. */
export function trees(draw) {
  const state = new Map(); // by path: whether it is open, or how many entries are shown
  const set = (path, value) => () => {
    state.set(path, value);
    draw();
  };

  function scalar(value, path) {
    if (typeof value !== "string")
      return h("span", { class: `value ${value === null ? "null" : typeof value}` }, String(value));
    const cut = value.length > MAX_TEXT && !state.get(path);
    return [
      h("span", { class: "value string" }, `“${plain(cut ? value.slice(0, MAX_TEXT) : value)}${cut ? "…" : "”"}`),
      cut && button(`Show all ${count(value.length)} characters`, set(path, true), { kind: "small" }),
    ];
  }

  function more(path, shown, total) {
    if (shown >= total) return null;
    return button(
      `Show ${count(Math.min(STEP, total - shown))} of ${count(total - shown)} more`,
      set(`${path}#`, shown + STEP),
      {
        kind: "small",
      },
    );
  }

  function table(value, names, path) {
    const shown = state.get(`${path}#`) || STEP;
    return [
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "List of records" },
        h(
          "table",
          { class: "records" },
          h("caption", { class: "hidden" }, `${plural(value.length, "record")}`),
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("th", { scope: "col" }, "#"),
              names.map((name) => h("th", { scope: "col" }, line(name, 40))),
            ),
          ),
          h(
            "tbody",
            {},
            value.slice(0, shown).map((one, at) =>
              h(
                "tr",
                {},
                h("th", { scope: "row", class: "num" }, String(at)),
                names.map((name) => h("td", {}, cell(one, name))),
              ),
            ),
          ),
        ),
      ),
      more(path, shown, value.length),
    ];
  }

  function entries(value, path, depth) {
    const names = columns(value);
    if (names) return table(value, names, path);
    const list = Array.isArray(value);
    const keys = list ? value.keys() : Object.keys(value);
    const shown = state.get(`${path}#`) || STEP;
    return [
      h(
        "ul",
        { class: "tree" },
        [...keys]
          .slice(0, shown)
          .map((key) => h("li", {}, node(list ? String(key) : key, value[key], `${path}/${key}`, depth + 1))),
      ),
      more(path, shown, size(value)),
    ];
  }

  function node(name, value, path, depth) {
    const label = h("span", { class: "key", title: name.length > 80 ? line(name, 400) : undefined }, line(name, 80));
    if (!isObject(value)) return h("span", { class: "leaf" }, label, " ", scalar(value, path));
    const total = size(value);
    const what = Array.isArray(value) ? plural(total, "entry", "entries") : plural(total, "field");
    if (!total)
      return h(
        "span",
        { class: "leaf" },
        label,
        " ",
        h("span", { class: "soft" }, Array.isArray(value) ? "empty list" : "empty object"),
      );
    const open = state.get(path) ?? (depth < 3 && total <= OPEN_ENTRIES);
    return h(
      "details",
      {
        open,
        on: { toggle: (event) => event.target.open !== open && set(path, event.target.open)() },
      },
      h("summary", {}, label, " ", h("span", { class: "soft" }, what)),
      open && entries(value, path, depth),
    );
  }

  /** A value with its name, as a tree or, on demand, as JSON. */
  return function tree(name, value) {
    const raw = state.get(`${name}:json`);
    const text = () => (typeof value === "string" ? JSON.stringify(value) : JSON.stringify(value, null, 2)) ?? "null";
    const simple = !isObject(value) || !size(value);
    return h(
      "div",
      { class: "tree-box" },
      h(
        "div",
        { class: "tree-tools" },
        !simple && button(raw ? "Show as tree" : "Show as JSON", set(`${name}:json`, !raw), { kind: "small" }),
        button("Copy", () => copy(text(), name), { kind: "small", icon: "copy" }),
      ),
      simple || raw ? block(json(value), state.get(`${name}:all`), set(`${name}:all`, true)) : entries(value, name, 0),
    );
  };
}

/** One field of a record in one line; a nested value is its JSON. */
function cell(record, name) {
  if (!Object.hasOwn(record, name)) return "";
  const value = record[name];
  return h(
    "span",
    { class: `value ${value === null ? "null" : typeof value}` },
    line(isObject(value) ? JSON.stringify(value) : String(value), 120),
  );
}
