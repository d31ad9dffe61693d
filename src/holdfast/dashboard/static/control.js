// The dialog that controls one worker: quiet, drain, stop, restart, and the stacks of its running tasks.

import { post } from "./api.js";
import { h } from "./dom.js";
import { line, plural } from "./format.js";
import { button, dialog } from "./parts.js";

const ACTIONS = [
  ["quiet", "Quiet", "claims no more jobs; running ones continue", (state) => state === "active"],
  ["resume", "Resume", "claims jobs again", (state) => state === "quiet"],
  ["drain", "Drain", "claims no more jobs, and stops when its jobs have ended", (state) => state !== "stopping"],
  ["restart", "Restart", "stops, and its supervisor starts it again", (state) => state !== "stopping"],
  ["stop", "Stop", "stops; jobs that do not end within the grace period are released", () => true],
];

/** Ask what a worker shall do, until the user closes the dialog. */
export async function controlWorker(worker) {
  let { state } = worker;
  let said = "";
  let stacks = null;
  let asking = false;

  async function ask(action, redraw) {
    asking = true;
    said = "Waiting for the worker…";
    redraw();
    try {
      const { replies } = await post("v1/workers/control", { action, workers: [worker.id] });
      const [reply] = replies;
      if (reply.error) said = reply.error;
      else if (action === "stacks") {
        ({ stacks } = reply);
        said = plural(stacks.length, "stack");
      } else {
        ({ state } = reply);
        said = `The worker is ${state}.`;
      }
    } catch (error) {
      said = error.message;
    }
    asking = false;
    redraw();
  }

  const content = (close, redraw) =>
    h(
      "div",
      { class: "dialog-body control" },
      h("h2", {}, `Worker ${line(worker.node, 60)}, pid ${worker.pid}`),
      h("p", { role: "status" }, said || `The worker is ${line(state, 20)}.`),
      h(
        "dl",
        {},
        ACTIONS.filter(([, , , fits]) => fits(state)).map(([action, label, what]) =>
          h(
            "div",
            { key: action },
            h(
              "dt",
              {},
              button(label, () => ask(action, redraw), { kind: "small", disabled: asking }),
            ),
            h("dd", { class: "soft" }, what),
          ),
        ),
      ),
      stacks?.map((one, number) => [
        h("h3", { key: `title ${number}` }, line([one.task, one.job, one.name].filter(Boolean).join(" · "), 160)),
        h("pre", { key: `frames ${number}`, tabindex: "0" }, one.frames.map((frame) => line(frame, 300)).join("\n")),
      ]),
      h(
        "div",
        { class: "buttons" },
        button("Show stacks", () => ask("stacks", redraw), { disabled: asking }),
        button("Close", () => close(), { kind: "primary" }),
      ),
    );
  await dialog("Control a worker", content);
}
