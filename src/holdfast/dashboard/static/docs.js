// The page of the HTTP API, drawn from the OpenAPI document of this server.

import { h, render } from "./dom.js";

const root = document.getElementById("docs");
const state = { api: null, problem: null, wanted: "" };

const short = (ref) => ref.split("/").pop();

/** The words for the type of a value: "integer, 1 to 25", "list of string", "one of a, b". */
function typeOf(schema) {
  if (schema.$ref) return short(schema.$ref);
  if (schema.anyOf) return [...new Set(schema.anyOf.map(typeOf))].filter((word) => word !== "null").join(" or ");
  if (schema.enum) return `one of ${schema.enum.join(", ")}`;
  if (schema.type === "array") return `list of ${typeOf(schema.items || {})}`;
  const bounds = [
    ["from", schema.minimum],
    ["above", schema.exclusiveMinimum],
    ["to", schema.maximum],
    ["below", schema.exclusiveMaximum],
    ["up to", schema.maxLength && `${schema.maxLength} characters`],
  ];
  const limits = bounds.filter(([, limit]) => limit !== undefined).map(([word, limit]) => `${word} ${limit}`);
  return [schema.format || schema.type || "any value", ...limits].join(", ");
}

const about = (schema) => schema.description || (schema.anyOf || []).map((one) => one.description).find(Boolean) || "";

function table(caption, rows) {
  if (!rows.length) return null;
  return [
    h(
      "table",
      {},
      h("caption", {}, caption),
      h(
        "tbody",
        {},
        rows.map(([name, needed, schema, text]) =>
          h(
            "tr",
            { key: name },
            h(
              "th",
              { scope: "row" },
              h("span", { class: "mono" }, name),
              needed && h("span", { class: "soft" }, " required"),
            ),
            h("td", {}, typeOf(schema)),
            h("td", { class: "soft" }, text || about(schema)),
          ),
        ),
      ),
    ),
  ];
}

/** The fields of an object; those of a referenced schema too. */
function fields(schema) {
  const found = schema?.$ref ? state.api.components.schemas[short(schema.$ref)] : schema;
  const required = new Set(found?.required || []);
  return Object.entries(found?.properties || {}).map(([name, one]) => [name, required.has(name), one]);
}

/** Sentences about fields that exclude each other. */
function exclusive(schema) {
  const found = schema?.$ref ? state.api.components.schemas[short(schema.$ref)] : schema;
  return (found?.allOf || []).filter((one) => one.not?.required).map((one) => one.not.required.join(" or "));
}

function operation(method, path, one) {
  const body = one.requestBody?.content["application/json"];
  const answers = Object.entries(one.responses);
  const done = answers.filter(([status]) => status < "300");
  const sent = done.map(([, answer]) => answer.content?.["application/json"]?.schema).find(Boolean);
  const rules = exclusive(body?.schema);
  return h(
    "details",
    { key: one.operationId, id: one.operationId },
    h(
      "summary",
      {},
      h("b", {}, method.toUpperCase()),
      h("span", { class: "mono" }, path),
      h("span", { class: "soft" }, one.summary),
    ),
    h(
      "div",
      { class: "operation" },
      h("p", {}, one.description ? one.description.replaceAll("`", "") : "Needs no token."),
      table(
        "Parameters",
        one.parameters.map((each) => [`${each.name} (${each.in})`, each.required, each.schema, each.description]),
      ),
      table("Body", fields(body?.schema)),
      rules.length > 0 && h("p", { class: "soft" }, `Give at most one of: ${rules.join("; ")}.`),
      body?.example && [h("h3", {}, "Example"), h("pre", { tabindex: "0" }, JSON.stringify(body.example, null, 2))],
      table("Answer", fields(sent)),
      h("h3", {}, "Status"),
      h(
        "ul",
        {},
        answers.map(([status, answer]) =>
          h("li", { key: status }, h("b", { class: "mono" }, status), ` ${answer.description}`),
        ),
      ),
    ),
  );
}

function view() {
  if (state.problem) return h("p", { role: "alert" }, state.problem);
  if (!state.api) return h("p", { class: "soft" }, "Loading…");
  const groups = new Map();
  for (const [path, methods] of Object.entries(state.api.paths))
    for (const [method, one] of Object.entries(methods)) {
      const text = `${method} ${path} ${one.summary}`.toLowerCase();
      if (!text.includes(state.wanted)) continue;
      const group = one.tags[0].replace(/\W/g, "") || "server";
      groups.set(group, [...(groups.get(group) || []), operation(method, path, one)]);
    }
  return [
    h("h1", {}, `HTTP API ${state.api.info.version}`),
    h("p", { class: "soft" }, "Made from openapi.json of this server. Send the token as Authorization: Bearer TOKEN."),
    h("input", {
      type: "search",
      placeholder: "Find a route",
      "aria-label": "Find a route",
      on: { input: search },
    }),
    h(
      "nav",
      { "aria-label": "Groups of routes" },
      [...groups.keys()].map((name) => h("a", { key: name, href: `#group-${name}` }, name)),
    ),
    [...groups].map(([name, operations]) =>
      h("section", { key: name }, h("h2", { id: `group-${name}` }, name), operations),
    ),
    groups.size === 0 && h("p", { class: "soft" }, "No route has these words."),
  ];
}

function search(event) {
  state.wanted = event.target.value.trim().toLowerCase();
  render(root, view());
}

document.documentElement.dataset.theme = localStorage.getItem("holdfast.theme") || "";
render(root, view());
try {
  const answer = await fetch("openapi.json");
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  state.api = await answer.json();
} catch (error) {
  state.problem = `The description of the API could not be loaded: ${error.message}. Reload the page.`;
}
render(root, view());
