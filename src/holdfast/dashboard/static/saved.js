// Saved filters: names for addresses of the job list, kept in this browser.

import { h } from "./dom.js";
import { line } from "./format.js";
import { button, dialog, toast } from "./parts.js";

const KEY = "holdfast.filters";
const MOST = 50; // filters
const LONGEST = 60; // characters of a name

const valid = (one) => typeof one?.name === "string" && typeof one.hash === "string" && one.hash.startsWith("#/jobs?");

/** The saved filters: [{name, hash}]. */
export function savedFilters() {
  try {
    return JSON.parse(localStorage.getItem(KEY) || "[]")
      .filter(valid)
      .slice(0, MOST);
  } catch {
    return []; // not written by this page
  }
}

const write = (filters) => localStorage.setItem(KEY, JSON.stringify(filters.slice(0, MOST)));

export function removeFilter(name) {
  write(savedFilters().filter((one) => one.name !== name));
  toast(`Filter ${line(name, LONGEST)} removed`);
}

/** Ask for a name and save this address under it; resolves with whether it was saved. */
export async function saveFilter(hash) {
  const name = await dialog("Save filter", (close) =>
    h(
      "form",
      {
        class: "dialog-body",
        on: {
          submit: (event) => {
            event.preventDefault();
            close(new FormData(event.target).get("name").trim());
          },
        },
      },
      h("h2", {}, "Save filter"),
      h("label", { for: "filter-name" }, "Name"),
      h("input", {
        id: "filter-name",
        name: "name",
        type: "text",
        required: true,
        maxlength: String(LONGEST),
        autocomplete: "off",
        mount: (element) => queueMicrotask(() => element.focus()),
      }),
      h("p", { class: "soft" }, "It is kept in this browser. To share a filter, share the address of the page."),
      h(
        "div",
        { class: "buttons" },
        button("Go back", () => close("")),
        h("button", { type: "submit", class: "button primary" }, "Save"),
      ),
    ),
  );
  if (!name) return false;
  write([{ name, hash }, ...savedFilters().filter((one) => one.name !== name)]);
  toast(`Filter ${line(name, LONGEST)} saved`);
  return true;
}
