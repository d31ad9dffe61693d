// Bulk operations: count the jobs, ask for confirmation, then run in steps until done or stopped.

import { get, post } from "./api.js";
import { h } from "./dom.js";
import { at, count as format, line, plural } from "./format.js";
import { button, dialog, failed, toast } from "./parts.js";

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
    .map(([name, number]) => `${format(number)} ${REASONS[name] || name}`)
    .join(", ");

/** Count the matching jobs to the last one; calls progress(count so far), which may return false to stop. */
export async function countAll(filter, progress = () => true) {
  let { until } = filter;
  let cursor = null;
  let total = 0;
  do {
    const step = await get("v1/count", { ...filter, until, cursor });
    until ??= step.until;
    total += step.count;
    cursor = step.cursor;
  } while (cursor && progress(total) !== false);
  return { count: total, exact: !cursor, until };
}

/** A filter as text. `group`: the name of its error group. */
function inWords({ state, queue, type, tag, text, error, since }, group) {
  const parts = [
    state?.length && `in state ${state.join(" or ")}`,
    queue && `in queue ${line(queue, 60)}`,
    type && `of task ${line(type, 60)}`,
    tag && `with tag ${line(tag, 60)}`,
    text && `that contain “${line(text, 60)}”`,
    error && `with the error ${line(group || error, 120)}`,
    since && `enqueued since ${at(since)}`,
  ].filter(Boolean);
  return `All jobs${parts.length ? ` ${parts.join(", ")}` : ""}. Jobs enqueued later are not included.`;
}

/** Change the jobs of {ids} or all that match {filter}. Resolves with true if the operation was started. */
export function change(action, which) {
  const [verb, done, what, kind] = ACTIONS[action];
  let counted = which.filter ? null : { count: which.ids.length };
  let soFar = 0;
  const sum = { changed: 0, skipped: 0, looked: 0 };
  const reasons = {};
  let open = true;
  let running = false;
  const number = () => plural(counted.count, "job");

  async function count(close, redraw) {
    try {
      const found = await countAll(which.filter, (many) => {
        soFar = many;
        redraw();
        return open;
      });
      if (!open) return;
      if (!found.count) {
        toast("No job matches.");
        close(false);
      }
      counted = found;
      redraw();
    } catch (error) {
      failed(error);
      close(false);
    }
  }

  async function run(close, redraw) {
    running = true;
    redraw();
    let cursor = null;
    let problem = null;
    const filter = which.filter ? { ...which.filter, until: counted.until } : undefined;
    const all = which.filter ? !Object.keys(which.filter).length : undefined; // confirmed in the dialog
    try {
      do {
        const step = await post("v1/bulk", { action, ids: which.ids, filter, all, cursor });
        for (const name in sum) sum[name] += step[name];
        for (const name in step.reasons) reasons[name] = (reasons[name] || 0) + step.reasons[name];
        cursor = step.cursor;
        redraw();
      } while (cursor && open);
    } catch (error) {
      problem = error;
    }
    const summary = `${plural(sum.changed, "job")} ${done}${sum.skipped ? `, ${format(sum.skipped)} skipped: ${reasonText(reasons)}` : ""}`;
    if (problem) toast(`${summary}. Stopped by an error: ${problem.message}`, "bad");
    else toast(open ? summary : `Stopped. ${summary}`);
    close(true);
  }

  const progress = () =>
    h(
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
    );

  function title() {
    if (!counted) return `Counting: ${plural(soFar, "job")} so far`;
    return running ? `${verb}: ${format(sum.changed + sum.skipped)} of ${number()}` : `${verb} ${number()}?`;
  }

  let counting = false;
  return dialog(`${verb} jobs`, (close, redraw) => {
    if (!counted && !counting) {
      counting = true;
      count(close, redraw);
    }
    return h(
      "div",
      { class: "dialog-body" },
      h("h2", {}, title()),
      running ? progress() : h("p", {}, what),
      !running && which.filter && h("p", { class: "soft" }, inWords(which.filter, which.group)),
      h(
        "div",
        { class: "buttons" },
        running ? button("Stop", () => (open = false)) : button("Go back", () => close(false)),
        !running &&
          button(counted ? `${verb} ${number()}` : verb, () => run(close, redraw), { kind, disabled: !counted }),
      ),
    );
  }).then((answer) => {
    open = false;
    return running || Boolean(answer);
  });
}
