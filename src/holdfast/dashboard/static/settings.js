// Settings in the store, which apply to all of its clients and workers: set, change and unset them. Webhooks and tokens.

import { get, put, remove } from "./api.js";
import { h } from "./dom.js";
import { form } from "./form.js";
import { line } from "./format.js";
import { button, confirm, empty, failed, loading, toast } from "./parts.js";
import { tokens } from "./tokens.js";
import { webhooks } from "./webhooks.js";

const path = (key) => `v1/config/${encodeURIComponent(key)}`;
const asValue = (text) => (text !== "" && Number.isFinite(Number(text)) ? Number(text) : text);

export default function settings(context) {
  const parts = [webhooks(context), tokens(context)];
  let known = null;

  async function load() {
    const [config] = await Promise.all([get("v1/config"), ...parts.map((part) => part.load())]);
    known = Object.entries(config.settings).sort();
  }

  async function edit(key, value) {
    const fields = [
      ...(key ? [] : [{ name: "key", label: "Setting", required: true, note: "Such as retention or max_depth." }]),
      { name: "value", label: "Value", required: true, value },
    ];
    const send = (body) => put(path(key ?? body.key), { value: asValue(body.value) });
    const kept = await form(key ? `Change ${line(key, 60)}` : "Set a setting", fields, send, {
      label: "Save",
      note: "It applies to all clients and workers of the store. Settings given in code or environment win.",
    });
    if (kept) done(`${line(kept.key, 60)} saved`);
  }

  async function unset(key) {
    const text = "The default applies again.";
    if (!(await confirm(`Unset ${line(key, 60)}?`, text, "Unset"))) return;
    try {
      await remove(path(key));
      done(`${line(key, 60)} unset`);
    } catch (error) {
      failed(error);
    }
  }

  function done(message) {
    toast(message);
    context.reload();
  }

  const row = ([key, value]) =>
    h(
      "tr",
      { key, "data-row": true },
      h("th", { scope: "row", class: "name" }, h("span", { tabindex: "-1", "data-open": true }, line(key, 60))),
      h("td", { "data-label": "Value", class: "mono" }, line(String(value), 200)),
      context.may("operate") &&
        h(
          "td",
          { class: "right act" },
          h(
            "div",
            { class: "buttons" },
            button("Change…", () => edit(key, value), { kind: "small", icon: "edit" }),
            button("Unset", () => unset(key), { kind: "small danger", icon: "delete" }),
          ),
        ),
    );

  function view() {
    if (!known) return loading("Settings");
    return [
      h(
        "div",
        { class: "title job-title" },
        h("h1", {}, "Settings"),
        h("p", { class: "soft" }, "Settings in the store, for all of its clients and workers."),
        h("span", { class: "space" }),
        context.may("operate") && button("Set…", () => edit(), { icon: "add" }),
      ),
      known.length
        ? h(
            "div",
            { class: "scroll" },
            h(
              "table",
              { class: "list" },
              h("caption", { class: "hidden" }, "Settings in the store"),
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  ["Setting", "Value"].map((label) => h("th", { scope: "col" }, label)),
                  context.may("operate") && h("th", {}, h("span", { class: "hidden" }, "Actions")),
                ),
              ),
              h("tbody", {}, known.map(row)),
            ),
          )
        : empty(
            "No settings in the store",
            "Defaults, code and environment apply.",
            "holdfast config set retention 7d",
          ),
      context.may("operate") && parts.map((part) => part.view()),
    ];
  }

  return { title: "Settings", load, view };
}
