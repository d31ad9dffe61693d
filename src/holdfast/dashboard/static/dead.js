// Dead letters by task and error, over all dead jobs; retry and delete per group.

import { get } from "./api.js";
import { change } from "./bulk.js";
import { h } from "./dom.js";
import { group } from "./errors.js";
import { at, count, line, plural } from "./format.js";
import { button, empty, failed, jobsHref, loading } from "./parts.js";
import { tenFirst } from "./tenfirst.js";

const READ_AGAIN = 60000; // milliseconds after which the groups are read again if the number of dead jobs is the same

/** The groups of two parts of the dead jobs. */
function merged(one, other) {
  const groups = new Map(one.groups.map((group) => [group.fingerprint, group]));
  for (const group of other.groups) {
    const known = groups.get(group.fingerprint);
    if (!known) groups.set(group.fingerprint, group);
    else
      groups.set(group.fingerprint, {
        ...(known.last_seen < group.last_seen ? group : known),
        count: known.count + group.count,
        queues: [...new Set([...known.queues, ...group.queues])].sort(),
        first_seen: known.first_seen < group.first_seen ? known.first_seen : group.first_seen,
      });
  }
  const sorted = [...groups.values()].sort((a, b) => b.count - a.count);
  return { ...other, groups: sorted, looked: one.looked + other.looked };
}

export default function dead(context) {
  let known = null;
  let total = 0;
  let readTotal = -1;
  let readAt = -Infinity;
  const abort = new AbortController();

  async function load(still) {
    total = (await get("v1/stats", null, { signal: abort.signal })).counts.dead;
    if (total === readTotal && (still || performance.now() - readAt < READ_AGAIN)) return;
    const asked = total;
    let found = { groups: [], looked: 0 };
    do {
      const next = await get("v1/errors", { dead: true, cursor: found.cursor }, { signal: abort.signal });
      found = merged(found, next);
      if (!known?.complete || found.complete) known = found;
      context.draw();
    } while (found.cursor);
    readTotal = asked;
    readAt = performance.now();
  }

  async function act(action, filter, group) {
    try {
      if (!(await change(action, { filter, group }))) return;
      readTotal = -1;
      context.reload();
    } catch (error) {
      failed(error);
    }
  }

  async function first(filter, group) {
    try {
      if (!(await tenFirst(filter, group))) return;
      readTotal = -1;
      context.reload();
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
                { href: jobsHref({ state: "dead", error: one.fingerprint, group: one.pattern }), dead: true },
                context.may("operate") && [
                  one.count > 10 &&
                    button(
                      "Retry ten first",
                      () => first({ ...all, type: one.task, error: one.fingerprint }, one.pattern),
                      {
                        kind: "small",
                      },
                    ),
                  button("Retry", () => act("retry", { ...all, type: one.task, error: one.fingerprint }, one.pattern), {
                    kind: "small",
                    icon: "retry",
                  }),
                  button(
                    "Delete",
                    () => act("delete", { ...all, type: one.task, error: one.fingerprint }, one.pattern),
                    {
                      kind: "small danger",
                      icon: "delete",
                    },
                  ),
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
            : `Reading: ${count(known.looked)} of ${plural(total, "dead letter")}, enqueued since ${line(at(known.back_to))}.`,
        ),
    ];
  }

  return { title: "Dead letters", load, view, stop: () => abort.abort() };
}
