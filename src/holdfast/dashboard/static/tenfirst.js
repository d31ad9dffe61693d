// Retry in two steps: ten jobs first, their outcome, then the rest or none.

import { get, jobPath, post } from "./api.js";
import { change } from "./bulk.js";
import { h } from "./dom.js";
import { line, plural } from "./format.js";
import { button, dialog, ENDED, failed, jobHref, shortId, state } from "./parts.js";

const FIRST = 10;
const LOOK_EVERY = 1000; // milliseconds

/** Retry ten of the jobs that match, then, if wanted, all others. Resolves with true if a job was retried. */
export async function tenFirst(filter, group) {
  const found = await get("v1/search", { ...filter, limit: FIRST });
  const ids = found.jobs.map((one) => one.id);
  if (!ids.length) return false;
  const states = new Map(ids.map((id) => [id, null]));
  let started = false;
  let retried = false; // the server has retried them
  let timer = null;

  async function look(redraw) {
    for (const id of ids) {
      if (ENDED.has(states.get(id)?.status)) continue;
      try {
        states.set(id, await get(jobPath(id)));
      } catch (error) {
        if (error.status !== 404) continue; // asked again
        states.set(id, { status: "succeeded", gone: true }); // without retention
      }
    }
    redraw();
    if (timer !== null && ids.some((id) => !ENDED.has(states.get(id)?.status)))
      timer = setTimeout(look, LOOK_EVERY, redraw);
  }

  async function start(close, redraw) {
    started = true;
    redraw();
    try {
      await post("v1/bulk", { action: "retry", ids });
      retried = true;
      timer = 0;
      await look(redraw);
    } catch (error) {
      failed(error);
      close("none");
    }
  }

  const number = (status) => ids.filter((id) => states.get(id)?.status === status).length;

  function content(close, redraw) {
    const ended = ids.filter((id) => ENDED.has(states.get(id)?.status)).length;
    const title = !started
      ? `Retry ${plural(ids.length, "job")} first?`
      : !retried
        ? `Retrying ${plural(ids.length, "job")}…`
        : ended < ids.length
          ? `Retried: ${ended} of ${plural(ids.length, "job")} ended`
          : `${number("succeeded")} of ${plural(ids.length, "job")} succeeded, ${number("dead")} dead`;
    return h(
      "div",
      { class: "dialog-body" },
      h("h2", { role: "status" }, title),
      h(
        "p",
        {},
        started
          ? "Holdfast may retry a job that fails; the job has ended when it succeeds or is dead."
          : "See how they end before you retry the rest.",
      ),
      started &&
        h(
          "ul",
          { class: "ten" },
          ids.map((id) => {
            const one = states.get(id);
            return h(
              "li",
              { key: id },
              h("a", { class: "mono", href: jobHref(id), title: line(id, 200) }, shortId(id)),
              state(one?.status || "queued"),
              one?.error && one.status !== "succeeded" && h("span", { class: "error-text" }, line(one.error, 80)),
            );
          }),
        ),
      h(
        "div",
        { class: "buttons" },
        button(started ? "Leave the rest" : "Go back", () => close("none")),
        started
          ? button("Retry the rest…", () => close("rest"), {
              kind: ended < ids.length || number("dead") ? "" : "primary",
            })
          : button(`Retry ${plural(ids.length, "job")}`, () => start(close, redraw), { kind: "primary" }),
      ),
    );
  }

  const answer = await dialog("Retry ten jobs first", content);
  clearTimeout(timer);
  timer = null;
  return answer === "rest" ? (await change("retry", { filter, group })) || true : started;
}
