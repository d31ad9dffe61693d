// Bulk operations: count the jobs, ask for confirmation, then run step by step until done or stopped.

import { get, post } from "./api.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { button, dialog, say } from "./parts.js";

const WORDS = {
  cancel: ["Cancel", "cancelled", "Waiting jobs end at once; running ones are asked to stop.", "danger"],
  retry: [
    "Retry",
    "retried",
    "Ended jobs start again from attempt 0, their history kept; waiting ones become due now.",
    "primary",
  ],
  delete: [
    "Delete",
    "deleted",
    "They are removed for good, with their results and output. Running jobs stay.",
    "danger",
  ],
};

const REASONS = {
  state: "in a state that does not allow it",
  moved: "changed concurrently",
  not_found: "gone",
  flow: "needed by a flow, or a flow with nothing to retry",
  key: "with a key that another unfinished job has",
  damaged: "damaged",
  refused: "refused",
  scope: "outside the token's scope",
};

const why = (reasons) =>
  Object.entries(reasons)
    .map(([name, number]) => `${count(number)} ${REASONS[name] || name}`)
    .join(", ");

/** Jobs of some ids ({ids}) or all that match ({filter}). Resolves with true once something was done. */
export async function change(action, which) {
  const [verb, done, what, kind] = WORDS[action];
  let counted = { count: (which.ids || []).length, exact: true };
  if (which.filter) counted = await get("v1/count", which.filter);
  const number = `${counted.exact ? "" : "at least "}${plural(counted.count, "job")}`;
  if (!counted.count) {
    say("No job matches.");
    return false;
  }
  const sum = { changed: 0, skipped: 0, looked: 0 };
  const reasons = {};
  let stopped = false;
  let running = false;
  let problem = null;

  async function run(close, redraw) {
    running = true;
    redraw();
    let cursor = null;
    const filter = which.filter ? { ...which.filter, until: counted.until } : undefined;
    const all = which.filter ? !Object.keys(which.filter).length : undefined; // the person was asked, with the number
    try {
      do {
        const step = await post("v1/bulk", { action, ids: which.ids, filter, all, cursor });
        for (const name in sum) sum[name] += step[name];
        for (const name in step.reasons) reasons[name] = (reasons[name] || 0) + step.reasons[name];
        cursor = step.cursor;
        redraw();
      } while (cursor && !stopped);
    } catch (error) {
      problem = error;
    }
    const summary = `${plural(sum.changed, "job")} ${done}${sum.skipped ? `, ${count(sum.skipped)} skipped: ${why(reasons)}` : ""}`;
    if (problem) say(`${summary}, then: ${problem.message}`, "bad");
    else say(stopped ? `Stopped. ${summary}` : summary);
    close(true);
  }

  const title = `${verb} ${number}?`;
  const answer = await dialog(title, (close, redraw) =>
    h(
      "div",
      { class: "ask" },
      h("h2", {}, running ? `${verb}: ${count(sum.changed + sum.skipped)} of ${number}` : title),
      running
        ? h(
            "p",
            { class: "progress", role: "status" },
            h(
              "span",
              { class: "track wide" },
              h("span", {
                class: "fill",
                style: { width: `${Math.min(100, ((sum.changed + sum.skipped) / counted.count) * 100)}%` },
              }),
            ),
          )
        : h("p", {}, what),
      !running &&
        which.filter &&
        h("p", { class: "soft" }, "All that match now; jobs that are enqueued from now on are left alone."),
      h(
        "div",
        { class: "buttons" },
        running ? button("Stop", () => (stopped = true)) : button("Keep as they are", () => close(false)),
        !running && button(`${verb} ${number}`, () => run(close, redraw), { kind }),
      ),
    ),
  );
  if (running && answer === undefined) stopped = true;
  return running || Boolean(answer);
}
