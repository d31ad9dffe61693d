// The tokens of the HTTP API, as a part of the settings page: create, restrict and revoke them.

import { get, patch, post, remove } from "./api.js";
import { h } from "./dom.js";
import { form } from "./form.js";
import { line, plain } from "./format.js";
import { button, confirm, copyButton, dialog, failed, muted, panel, toast, when } from "./parts.js";

const DAY = 86400; // seconds
const path = (id) => `v1/tokens/${encodeURIComponent(id)}`;
const title = ({ id, label }) => (label ? `${line(label, 60)} (${id})` : id);
const inSeconds = ({ days, ...body }) => (days === undefined ? body : { ...body, expires_in: days * DAY });

export function tokens(context) {
  let known = null;
  let problem = "";
  let begun = false; // not before the roles are known: only an operator may read them

  async function load() {
    if (!begun) return;
    try {
      known = await get("v1/tokens");
      problem = "";
    } catch (error) {
      if (error.status !== 422) throw error;
      problem = error.message; // the store is behind another server
    }
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

  /** Show a new token, which cannot be read again. Only a button or Escape closes this. */
  const show = ({ token }) =>
    dialog(
      "Token created",
      (close) =>
        h(
          "div",
          { class: "dialog-body" },
          h("h2", {}, "Token created"),
          h("p", {}, "Copy it now: it cannot be shown again."),
          h("pre", { tabindex: "0" }, token),
          h(
            "div",
            { class: "buttons" },
            copyButton("token", token),
            button("Close", () => close(), { kind: "primary" }),
          ),
        ),
      { onlyButtons: true },
    );

  async function create() {
    const own = known.current ? " It is valid only as long as your own token." : "";
    const fields = [
      { name: "roles", label: "Roles", kind: "list", required: true, note: `Of: ${known.creatable.join(", ")}` },
      { name: "label", label: "Label", note: "Its name in the audit log." },
      { name: "days", label: "Valid for, in days", kind: "number", note: "Empty: until it is revoked." },
      { name: "queues", label: "Queues", kind: "list", note: "Empty: all. * is a wildcard." },
      { name: "tasks", label: "Tasks", kind: "list", note: "Empty: all. * is a wildcard." },
    ];
    const send = (body) => post("v1/tokens", inSeconds(body));
    const made = await form("Create a token", fields, send, {
      label: "Create",
      note: `It has at most the roles, queues and tasks of your own token.${own}`,
    });
    if (!made) return;
    context.reload();
    await show(made);
  }

  async function edit(token) {
    const fields = [
      { name: "roles", label: "Roles", kind: "list", value: token.roles, note: "Only fewer." },
      { name: "days", label: "Valid for, in days", kind: "number", note: "From now; only shorter. Empty: unchanged." },
    ];
    const send = (body) => patch(path(token.id), inSeconds(body));
    const kept = await form(`Restrict ${title(token)}`, fields, send, { label: "Save", whole: false });
    if (kept) done(`Token ${token.id} changed`);
  }

  async function drop(token) {
    const made = known.tokens.filter(({ made_with }) => made_with === token.id).length;
    const more = made ? " The tokens that were created with it are revoked, too." : "";
    const own = token.id === known.current ? " It is your own token: you are logged out." : "";
    const text = `Its clients are refused within seconds.${more}${own}`;
    if (!(await confirm(`Revoke token ${title(token)}?`, text, "Revoke"))) return;
    try {
      await remove(path(token.id));
      done(`Token ${token.id} revoked`);
    } catch (error) {
      failed(error);
    }
  }

  const row = (token) =>
    h(
      "tr",
      { key: token.id, "data-row": true },
      h(
        "th",
        { scope: "row", class: "name" },
        h("span", { tabindex: "-1", "data-open": true }, line(token.label, 100) || token.id),
        token.label && h("div", { class: "mono soft" }, token.id),
        token.id === known.current && h("span", { class: "tag" }, "yours"),
        token.expired && h("span", { class: "tag warn" }, "expired"),
      ),
      ["Roles", "Queues", "Tasks"].map((label) => {
        const part = label.toLowerCase();
        return h(
          "td",
          { "data-label": label, key: part },
          line(token[part].join(", "), 200) || (part === "roles" ? muted("none") : "all"),
        );
      }),
      h(
        "td",
        { "data-label": "Created" },
        when(token.created_at),
        token.created_by && muted(` by ${line(token.created_by, 100)}`),
      ),
      h("td", { "data-label": "Expires" }, token.expires_at ? when(token.expires_at) : "never"),
      h(
        "td",
        { class: "right act" },
        h(
          "div",
          { class: "buttons" },
          button("Restrict…", () => edit(token), { kind: "small", icon: "edit" }),
          button("Revoke", () => drop(token), { kind: "small danger", icon: "delete" }),
        ),
      ),
    );

  function content() {
    if (problem) return h("p", { class: "soft none" }, plain(problem));
    if (!known) return h("p", { class: "soft none" }, "Loading…");
    if (!known.tokens.length) return h("p", { class: "soft none" }, "No tokens yet.");
    return h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "list" },
        h("caption", { class: "hidden" }, "Tokens"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["Token", "Roles", "Queues", "Tasks", "Created", "Expires"].map((label) =>
              h("th", { scope: "col" }, label),
            ),
            h("th", {}, h("span", { class: "hidden" }, "Actions")),
          ),
        ),
        h("tbody", {}, known.tokens.map(row)),
      ),
    );
  }

  function view() {
    begin();
    const may = known?.creatable.length;
    return panel(
      "Tokens",
      {
        key: "tokens",
        note:
          known && !may
            ? "You are not logged in with a token, so create tokens with: holdfast token create"
            : undefined,
        side: may > 0 && button("Create a token…", create, { icon: "add", kind: "small" }),
      },
      content(),
    );
  }
  return { load, view };
}
