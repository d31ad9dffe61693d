// The webhooks of the store, as a part of the settings page: add, change and remove them.

import { get, put, remove } from "./api.js";
import { h } from "./dom.js";
import { form } from "./form.js";
import { line } from "./format.js";
import { button, confirm, failed, panel, toast } from "./parts.js";

const EVENTS = "job_succeeded, job_failed, job_dead, job_cancelled, job_expired";
const path = (name) => `v1/webhooks/${encodeURIComponent(name)}`;

export function webhooks(context) {
  let known = null;
  let begun = false; // not before the roles are known: only an operator may read them

  async function load() {
    if (begun) known = (await get("v1/webhooks")).webhooks;
  }

  function begin() {
    if (begun) return;
    begun = true;
    load().then(context.draw, failed);
  }

  function done(message) {
    toast(message);
    context.reload();
  }

  async function edit(hook) {
    const hidden = hook?.url.includes("***");
    const fields = [
      ...(hook ? [] : [{ name: "name", label: "Name", required: true }]),
      {
        name: "url",
        label: "URL",
        required: true,
        value: hidden ? "" : hook?.url,
        note: hidden ? "It contains a secret: give it again." : undefined,
      },
      { name: "events", label: "Events", kind: "list", value: hook?.events, note: `Empty: all. ${EVENTS}` },
      { name: "queues", label: "Queues", kind: "list", value: hook?.queues, note: "Empty: all." },
      { name: "tasks", label: "Tasks", kind: "list", value: hook?.tasks, note: "Empty: all." },
    ];
    const send = ({ name, ...body }) => put(path(hook?.name ?? name), body);
    const kept = await form(hook ? `Change ${line(hook.name, 60)}` : "Add a webhook", fields, send, {
      label: "Save",
      note: "A signed POST when a job ends. The key to verify it: app.webhooks.key(name) in Python.",
    });
    if (kept) done(`Webhook ${line(kept.name, 60)} saved`);
  }

  async function drop({ name }) {
    const text = "Pending deliveries are discarded.";
    if (!(await confirm(`Remove webhook ${line(name, 60)}?`, text, "Remove"))) return;
    try {
      await remove(path(name));
      done(`Webhook ${line(name, 60)} removed`);
    } catch (error) {
      failed(error);
    }
  }

  const row = (hook) =>
    h(
      "tr",
      { key: hook.name, "data-row": true },
      h("th", { scope: "row", class: "name" }, h("span", { tabindex: "-1", "data-open": true }, line(hook.name, 60))),
      h("td", { "data-label": "URL", class: "mono" }, line(hook.url, 200)),
      ["events", "queues", "tasks"].map((part) =>
        h("td", { "data-label": part, key: part }, line(hook[part].join(", "), 200) || "all"),
      ),
      h(
        "td",
        { class: "right act" },
        h(
          "div",
          { class: "buttons" },
          button("Change…", () => edit(hook), { kind: "small", icon: "edit" }),
          button("Remove", () => drop(hook), { kind: "small danger", icon: "delete" }),
        ),
      ),
    );

  function view() {
    begin();
    return panel(
      "Webhooks",
      { key: "webhooks", side: button("Add a webhook…", () => edit(), { icon: "add", kind: "small" }) },
      known?.length
        ? h(
            "div",
            { class: "scroll" },
            h(
              "table",
              { class: "list" },
              h("caption", { class: "hidden" }, "Webhooks"),
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  ["Webhook", "URL", "Events", "Queues", "Tasks"].map((label) => h("th", { scope: "col" }, label)),
                  h("th", {}, h("span", { class: "hidden" }, "Actions")),
                ),
              ),
              h("tbody", {}, known.map(row)),
            ),
          )
        : h("p", { class: "soft none" }, known ? "No webhooks yet." : "Loading…"),
    );
  }
  return { load, view };
}
