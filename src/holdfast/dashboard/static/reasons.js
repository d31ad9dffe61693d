// Why jobs wait: each reason with its count and its action, for the store or for a queue.

import { h } from "./dom.js";
import { plural } from "./format.js";
import { coded, jobsHref, panel } from "./parts.js";

export const queueHref = (name) => `#/queues/${encodeURIComponent(name)}`;

const LINKED = new Set(["queue_paused", "ready", "task_paused", "flow", "retry", "scheduled", "blocked"]);
// reasons on which this page acts itself: no command is shown

/** Where to act on a reason, and the words for it. */
function target({ kind, names, total }, queue) {
  const one = total === 1 ? names[0] : undefined;
  const jobs = (state, type) => jobsHref({ state, queue, type });
  switch (kind) {
    case "no_worker":
      return queue ? null : one ? [queueHref(one), "Show queue"] : ["#/queues?only=unserved", "Show queues"];
    case "queue_paused":
      return queue ? null : one ? [queueHref(one), "Show queue"] : ["#/queues?only=paused", "Show queues"];
    case "busy":
      return ["#/workers", "Show workers"];
    case "ready":
      return [jobsHref({ state: "queued", queue: queue || one }), "Show jobs"];
    case "task_paused":
      return ["#/queues", "Show pauses"];
    case "refused":
      return [jobs("scheduled", one), "Show jobs"];
    case "flow":
      return ["#/flows?state=blocked", "Show flows"];
    case "retry":
      return [jobs("failed"), "Show jobs"];
    case "scheduled":
      return [jobs("scheduled"), "Show jobs"];
    default:
      return [jobs("blocked"), "Show jobs"];
  }
}

/** The panel of an explanation; null if no job waits. */
export function reasonsPanel(found) {
  if (!found?.waiting) return null;
  return panel(
    "Why jobs wait",
    { key: "reasons", kind: "reasons", note: `${plural(found.waiting, "job waits", "jobs wait")}` },
    h(
      "ul",
      {},
      found.parts.map((part) => {
        const to = target(part, found.queue);
        return h(
          "li",
          { key: part.kind, class: part.kind, "data-row": true },
          h("span", { class: "text" }, coded(part.text)),
          !LINKED.has(part.kind) && h("span", { class: "soft what-to-do" }, coded(part.action)),
          to &&
            h(
              "a",
              { href: to[0], "data-open": true, class: "action" },
              to[1],
              h("span", { class: "hidden" }, `: ${part.kind.replace("_", " ")}`),
            ),
        );
      }),
    ),
  );
}
