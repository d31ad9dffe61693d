// Bulk operations: count the jobs, ask for confirmation, then run in steps until done or stopped.

import { get, post } from "./api.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { button, dialog, toast } from "./parts.js";

const ACTIONS = {
  cancel: ["Cancel", "cancelled", "Waiting jobs are cancelled now. Running jobs are asked to stop.", "danger"],
  retry: [
    "Retry",
    "retried",
    "Ended jobs restart at attempt 0 and keep their history. Waiting jobs become due now.",
    "primary",
  ],
  delete: [
    "Delete",
    "deleted",
    "The jobs are deleted permanently, with results and output. Running jobs are skipped.",
    "danger",
  ],
};

const REASONS = {
  state: "in a state that does not allow this",
  moved: "changed concurrently",
  not_found: "not found",
  flow: "needed by a flow, or a flow with nothing to retry",
  key: "with the key of another unfinished job",
  damaged: "damaged",
  follow_up: "with a follow-up that cannot be stored",
  refused: "refused",
  scope: "outside the token's scope",
};

const reasonText = (reasons) =>
  Object.entries(reasons)
    .map(([name, number]) => `${count(number)} ${REASONS[name] || name}`)
    .join(", ");

/** Change the jobs of {ids} or all that match {filter}. Resolves with true if the operation was started. */
export async function change(action, which) {
  const [verb, done, what, kind] = ACTIONS[action];
  let counted = { count: (which.ids || []).length, exact: true };
  if (which.filter) counted = await get("v1/count", which.filter);
  const number = `${counted.exact ? "" : "at least "}${plural(counted.count, "job")}`;
  if (!counted.count) {
    toast("No job matches.");
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
    const all = which.filter ? !Object.keys(which.filter).length : undefined; // confirmed in the dialog
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
    const summary = `${plural(sum.changed, "job")} ${done}${sum.skipped ? `, ${count(sum.skipped)} skipped: ${reasonText(reasons)}` : ""}`;
    if (problem) toast(`${summary}. Stopped by an error: ${problem.message}`, "bad");
    else toast(stopped ? `Stopped. ${summary}` : summary);
    close(true);
  }

  const title = `${verb} ${number}?`;
  const answer = await dialog(title, (close, redraw) =>
    h(
      "div",
      { class: "dialog-body" },
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
        h("p", { class: "soft" }, "Includes all jobs that match now, not jobs enqueued later."),
      h(
        "div",
        { class: "buttons" },
        running ? button("Stop", () => (stopped = true)) : button("Go back", () => close(false)),
        !running && button(`${verb} ${number}`, () => run(close, redraw), { kind }),
      ),
    ),
  );
  if (running && answer === undefined) stopped = true;
  return running || Boolean(answer);
}
