// The audit log: who did what, when, and with which outcome, newest first; and the undo of an action.

import { get, post } from "./api.js";
import { h } from "./dom.js";
import { count, line, plural } from "./format.js";
import { button, confirm, empty, failed, jobHref, loading, mono, muted, toast, when } from "./parts.js";

const PAUSE = 200; // milliseconds after the last key until the list is read
const FIELDS = [
  ["actor", "Actor"],
  ["action", "Action"],
  ["about", "Target or job id"],
];
const EXCLUDED = {
  running: "were running, and were asked to stop",
  flow: "belong to flows",
  result: "had succeeded, and their results were dropped",
  woken: "slept or waited for a signal, and were woken",
  unlisted: "are not listed in the entry",
};
const BAD = new Set(["failed", "interrupted", "unknown"]);

export default function audit(context, search) {
  const asked = Object.fromEntries(FIELDS.map(([name]) => [name, search.get(name) || ""]));
  let known = null;
  let more = false; // older entries were added, which live updates would drop
  let timer = 0;

  const filters = () => Object.fromEntries(Object.entries(asked).filter(([, text]) => text.trim()));

  async function load() {
    if (more) return;
    known = await get("v1/audit", filters());
  }

  async function older() {
    try {
      const page = await get("v1/audit", { ...filters(), cursor: known.cursor });
      more = true;
      known = { entries: [...known.entries, ...page.entries], cursor: page.cursor };
      context.draw();
    } catch (error) {
      failed(error);
    }
  }

  function set(name, text) {
    asked[name] = text;
    more = false;
    history.replaceState(history.state, "", `#/audit?${new URLSearchParams(filters())}`);
    clearTimeout(timer);
    timer = setTimeout(context.reload, PAUSE);
  }

  /** Which part of an action can be undone, and which cannot. */
  function undoText({ action, undo }) {
    if (action === "pause") return "It is resumed, if this pause is still in force.";
    const rest = Object.entries(undo.excluded).map(([why, number]) => `${count(number)} ${EXCLUDED[why]}`);
    const cannot = rest.length ? ` Cannot be undone: ${rest.join("; ")}.` : "";
    return `${plural(undo.count, "job")}, unless started or changed since.${cannot}`;
  }

  async function undo(entry) {
    if (!(await confirm(`Undo ${entry.action}?`, undoText(entry), "Undo", "primary"))) return;
    try {
      const { changed, skipped, why } = await post(`v1/audit/${encodeURIComponent(entry.id)}/undo`);
      toast(`Undone: ${count(changed)}. Not undone: ${count(skipped)}${why.length ? ` (${why.join("; ")})` : ""}.`);
      more = false;
      context.reload();
    } catch (error) {
      failed(error);
    }
  }

  /** What an action was about: `queue mail`, `id 01a1…`, with a link to a job. */
  function target(entry) {
    const parts = Object.entries(entry.target);
    if (!parts.length) return muted("–");
    return parts.map(([name, value], place) => [
      place > 0 && ", ",
      muted(`${line(name, 40)} `),
      name === "id" && typeof value === "string" && !entry.action.startsWith("token.")
        ? h("a", { class: "mono", href: jobHref(value) }, line(value, 60))
        : mono(line(typeof value === "string" ? value : JSON.stringify(value), 120)),
    ]);
  }

  function row(entry) {
    return h(
      "tr",
      { key: entry.id, "data-row": true },
      h(
        "th",
        { scope: "row", class: "name" },
        h("span", { tabindex: "-1", "data-open": true }, line(entry.action, 60)),
      ),
      h("td", { class: "wrap", "data-label": "Target" }, target(entry)),
      h("td", { "data-label": "Actor" }, line(entry.actor, 80), muted(` ${line(entry.surface, 20)}`)),
      h("td", { "data-label": "When" }, when(entry.at)),
      h("td", { class: "right num", "data-label": "Jobs" }, entry.count === null ? muted("–") : count(entry.count)),
      h(
        "td",
        { "data-label": "Outcome" },
        h("span", { class: BAD.has(entry.status) ? "late" : undefined }, line(entry.status, 20)),
        entry.error && h("div", { class: "error", title: line(entry.error, 300) }, line(entry.error, 160)),
      ),
      h(
        "td",
        { class: "right act" },
        entry.undo &&
          (entry.undo.count > 0
            ? button("Undo…", () => undo(entry), { kind: "small", icon: "undo", title: undoText(entry) })
            : h("span", { class: "soft", title: undoText(entry) }, "cannot be undone")),
      ),
    );
  }

  function view() {
    if (!known) return loading("Audit log");
    return [
      h(
        "div",
        { class: "title" },
        h("h1", {}, "Audit log"),
        h(
          "p",
          { class: "soft" },
          "Operator actions from every command, program and page. Interrupted: no outcome was recorded.",
        ),
      ),
      h(
        "div",
        { class: "filters" },
        h(
          "div",
          { class: "row" },
          FIELDS.map(([name, label]) =>
            h(
              "div",
              { class: "field", key: name },
              h("input", {
                type: "search",
                "aria-label": label,
                placeholder: label,
                value: asked[name],
                maxlength: "200",
                spellcheck: "false",
                autocomplete: "off",
                on: { input: (event) => set(name, event.target.value) },
              }),
            ),
          ),
        ),
      ),
      known.entries.length
        ? h(
            "div",
            { class: "scroll", tabindex: "0", role: "region", "aria-label": "Operator actions" },
            h(
              "table",
              { class: "list audit" },
              h("caption", { class: "hidden" }, "Operator actions, newest first"),
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  ["Action", "Target", "Actor", "When", "Jobs", "Outcome"].map((label) =>
                    h("th", { scope: "col", class: label === "Jobs" ? "right" : undefined }, label),
                  ),
                  h("th", {}, h("span", { class: "hidden" }, "Undo")),
                ),
              ),
              h("tbody", {}, known.entries.map(row)),
            ),
          )
        : empty("No action is recorded", Object.keys(filters()).length ? "Use fewer filters." : null),
      h("div", { class: "pages" }, h("span", { class: "space" }), button("Older", older, { disabled: !known.cursor })),
    ];
  }

  const stop = () => clearTimeout(timer);
  return { title: "Audit log", load, view, stop };
}
