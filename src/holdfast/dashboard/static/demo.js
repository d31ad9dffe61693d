// The demo's button that kills a worker with a running job.

import { post } from "./api.js";
import { h } from "./dom.js";
import { button, failed, jobHref, mono } from "./parts.js";

let last = null;

export function killButton(context) {
  if (!context.has("kill_worker")) return null;
  const kill = async () => {
    try {
      last = await post("v1/demo/kill_worker", {});
      context.draw();
      context.reload();
    } catch (error) {
      failed(error);
    }
  };
  return h(
    "div",
    { class: "demo panel", key: "demo" },
    h(
      "p",
      {},
      h("b", {}, "This is the demo. "),
      "Kill a worker while it runs a long job: another worker resumes the job after its last checkpoint.",
    ),
    button("kill -9 a worker", kill, { kind: "danger" }),
    last &&
      h(
        "p",
        { role: "status" },
        `Process ${last.pid} was killed. Another worker recovers `,
        h("a", { href: jobHref(last.job) }, `${last.type} `, mono(last.job)),
        ".",
      ),
  );
}
