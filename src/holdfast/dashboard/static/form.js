// One form for everything that is created or edited: fields, checks, errors at the field, and a single submission.

import { h } from "./dom.js";
import { plain } from "./format.js";
import { button, dialog } from "./parts.js";

let opened = 0; // for unique ids

/** JSON that is read and written unchanged: an object, without numbers that JavaScript rounds. */
export const exactJson = (value) =>
  typeof value === "number"
    ? Number.isSafeInteger(value) || !Number.isInteger(value)
    : value === null || typeof value !== "object" || Object.values(value).every(exactJson);

const parsed = {
  text: (text) => text.trim(),
  number: (text) => {
    const number = Number(text);
    if (Number.isNaN(number)) throw new Error("This is not a number.");
    return number;
  },
  time: (text) => new Date(text).toISOString(),
  list: (text) =>
    text
      .split(",")
      .map((one) => one.trim())
      .filter(Boolean),
  choice: (text) => text,
  json: (text) => {
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      throw new Error(`This is not JSON: ${error.message}`);
    }
    if (value === null || typeof value !== "object" || Array.isArray(value))
      throw new Error('Give an object, such as {"order": 42}.');
    if (!exactJson(value)) throw new Error("A number is too large for a browser; use the command line.");
    return value;
  },
};

const shown = {
  json: (value) => JSON.stringify(value, null, 2),
  list: (value) => value.join(", "),
  time: (value) => {
    const date = new Date(value);
    return new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, 16);
  },
};

/**
 * Ask for values, and send them. `fields`: [{name, label, kind, value, note, required, disabled, options}]; `kind` is
 * text, number, time, list, choice or json. `send` gets the values that were changed, or all that are not empty with
 * `whole`. An error that it throws is shown in the form. Resolves with what `send` returned; undefined: closed.
 */
export function form(title, fields, send, { label, note, whole = true } = {}) {
  opened += 1;
  const prefix = `form-${opened}-`;
  const first = {};
  for (const { name, kind = "text", value } of fields)
    first[name] = value === undefined || value === null ? "" : String((shown[kind] || String)(value));
  const texts = { ...first };
  const errors = {};
  let problem = "";
  let sending = false;

  /** The values to send; notes the errors of fields. */
  function values() {
    const found = {};
    for (const { name, kind = "text", required, disabled } of fields) {
      if (disabled) continue;
      const text = texts[name];
      if (!text.trim()) {
        if (required) errors[name] = "This field is required.";
        continue;
      }
      if (!whole && text === first[name]) continue;
      try {
        found[name] = parsed[kind](text);
      } catch (error) {
        errors[name] = error.message;
      }
    }
    return found;
  }

  /** Show an error of the server at the field that it names, else above all fields. */
  function place(message) {
    const named = fields.find(({ name }) => new RegExp(`(\\$\\.|\`|^|["'\\s])${name}\\b`).test(message));
    if (named && !named.disabled) errors[named.name] = plain(message);
    else problem = plain(message);
  }

  async function submit(event, close, redraw) {
    event.preventDefault();
    if (sending) return;
    problem = "";
    for (const name of Object.keys(errors)) delete errors[name];
    const body = values();
    if (!Object.keys(errors).length && !Object.keys(body).length) problem = "Nothing was changed.";
    if (!problem && !Object.keys(errors).length) {
      sending = true;
      redraw();
      try {
        return close(await send(body));
      } catch (error) {
        place(error.message);
      }
      sending = false;
    }
    redraw();
    event.target.querySelector("[aria-invalid], .form-problem")?.focus();
  }

  function control(field) {
    const { name, kind = "text", required, disabled, options, suggestions } = field;
    const id = prefix + name;
    const about = [field.note && `${id}-note`, errors[name] && `${id}-error`].filter(Boolean).join(" ");
    const props = {
      id,
      name,
      disabled,
      "aria-required": required ? "true" : undefined,
      "aria-invalid": errors[name] ? "true" : undefined,
      "aria-describedby": about || undefined,
      value: texts[name],
      on: { input: (event) => (texts[name] = event.target.value) },
    };
    if (kind === "choice")
      return h(
        "select",
        props,
        options.map((one) => h("option", { value: one, key: one }, one || "–")),
      );
    if (kind === "json") return h("textarea", { ...props, class: "mono", rows: "5", spellcheck: "false" });
    const plainly = { autocomplete: "off", spellcheck: "false" };
    const type = kind === "time" ? "datetime-local" : "text";
    if (!suggestions)
      return h("input", { ...props, ...plainly, type, inputmode: kind === "number" ? "decimal" : null });
    return [
      h("input", { ...props, ...plainly, type, list: `${id}-list` }),
      h(
        "datalist",
        { id: `${id}-list` },
        suggestions.map((one) => h("option", { value: one })),
      ),
    ];
  }

  const row = (field) => {
    const { name } = field;
    return h(
      "div",
      { class: `form-row ${field.kind === "json" ? "wide" : ""}`, key: name },
      h("label", { for: prefix + name }, field.label, field.required && h("span", { class: "soft" }, " (required)")),
      control(field),
      field.note && h("p", { class: "soft", id: `${prefix + name}-note` }, field.note),
      errors[name] && h("p", { class: "error-text", id: `${prefix + name}-error` }, errors[name]),
    );
  };

  const content = (close, redraw) =>
    h(
      "form",
      { class: "dialog-body form", novalidate: true, on: { submit: (event) => submit(event, close, redraw) } },
      h("h2", {}, title),
      note && h("p", {}, note),
      problem && h("p", { class: "form-problem error-text", role: "alert", tabindex: "-1" }, problem),
      h("div", { class: "form-rows" }, fields.map(row)),
      h(
        "div",
        { class: "buttons" },
        button("Go back", () => close()),
        h(
          "button",
          { type: "submit", class: "button primary", disabled: sending },
          sending ? "Sending…" : label || title,
        ),
      ),
    );
  return dialog(title, content);
}
