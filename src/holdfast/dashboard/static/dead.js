// Dead letters by task and error; retry and delete per group.

import { get } from "./api.js";
import { change } from "./bulk.js";
import { h } from "./dom.js";
import { group } from "./errors.js";
import { at, line, plural } from "./format.js";
import { button, empty, failed, jobsHref, loading } from "./parts.js";

export default function dead(context) {
  let known = null;
  let total = 0;

  async function load() {
    const counting = get("v1/stats");
    counting.catch(() => {}); // reported below
    known = await get("v1/errors", { dead: true });
    context.draw();
    total = (await counting).counts.dead;
  }

  async function act(action, filter) {
    try {
      if (await change(action, { filter })) context.reload();
    } catch (error) {
      failed(error);
    }
  }

  function view() {
    if (!known) return loading("Dead letters");
    const all = { state: ["dead"] };
    return [
      h(
        "div",
        { class: "title" },
        h("h1", {}, "Dead letters"),
        h("p", { class: "soft" }, total ? plural(total, "job") : ""),
        h("span", { class: "space" }),
        total > 0 &&
          context.may("operate") &&
          h(
            "div",
            { class: "actions" },
            button("Retry all", () => act("retry", all), { icon: "retry" }),
            button("Delete all", () => act("delete", all), { icon: "delete", kind: "danger" }),
          ),
      ),
      known.groups.length
        ? h(
            "div",
            { class: "groups" },
            known.groups.map((one) =>
              group(
                one,
                { href: jobsHref({ state: "dead", error: one.fingerprint }), dead: true },
                context.may("operate") && [
                  button("Retry", () => act("retry", { ...all, type: one.task, error: one.fingerprint }), {
                    kind: "small",
                    icon: "retry",
                  }),
                  button("Delete", () => act("delete", { ...all, type: one.task, error: one.fingerprint }), {
                    kind: "small danger",
                    icon: "delete",
                  }),
                ],
              ),
            ),
          )
        : empty("No dead letters", "A job that fails permanently stays here until you retry or delete it."),
      known.groups.length > 0 &&
        h(
          "p",
          { class: "soft window" },
          known.complete
            ? `All ${plural(known.looked, "dead letter")} are shown.`
            : `The newest ${plural(known.looked, "dead letter")}, enqueued since ${line(at(known.back_to))}.`,
        ),
    ];
  }

  return { title: "Dead letters", load, view };
}
