// Schedules with their last and next runs; create and edit, run now, pause and resume, delete.

import { get, post, put, remove } from "./api.js";
import { h } from "./dom.js";
import { exactJson, form } from "./form.js";
import { age, ago, at, line, plural } from "./format.js";
import { knownTasks } from "./jobforms.js";
import {
  button,
  confirm,
  empty,
  exact,
  failed,
  jobHref,
  jobsHref,
  loading,
  muted,
  shortId,
  toast,
  when,
} from "./parts.js";

const LATE = 60; // seconds after which a due run counts as late
const FIRST_SCHEDULE = "holdfast schedule put backup --cron '0 3 * * *' --tz Europe/Oslo -- echo saved";

export default function schedules(context) {
  let known = null;

  async function load() {
    known = (await get("v1/schedules")).schedules;
  }

  const path = (schedule, rest = "") => `v1/schedules/${encodeURIComponent(schedule.name)}${rest}`;
  const title = (schedule) => line(schedule.name, 60);

  async function act(action) {
    try {
      const message = await action();
      if (!message) return;
      toast(message);
      context.reload();
    } catch (error) {
      failed(error);
    }
  }

  /** Create a schedule, or edit one; fields that the form has not stay as they are. */
  async function edit(schedule) {
    const { name, payload = {}, ...rest } = schedule || { tz: "UTC", overlap: "allow", catch_up: 1 };
    const field = (key, label, more) => ({ name: key, label, value: rest[key], ...more });
    const fields = [
      ...(schedule ? [] : [{ name: "name", label: "Name", required: true }]),
      field("type", "Task", { required: true, suggestions: await knownTasks() }),
      field("cron", "Cron expression", { note: "Such as 0 3 * * *; or the interval." }),
      field("every", "Interval in seconds", { kind: "number" }),
      field("tz", "Time zone"),
      { name: "payload", label: "Arguments", kind: "json", value: payload, note: "A JSON object: by name." },
      field("queue", "Queue"),
      field("priority", "Priority", { kind: "number" }),
      field("overlap", "While the last run has not ended", { kind: "choice", options: ["allow", "skip"] }),
      field("catch_up", "Missed runs to enqueue late", { kind: "number" }),
      field("jitter", "Delay by up to, in seconds", { kind: "number" }),
    ];
    const asked = new Set(fields.map((one) => one.name));
    const others = Object.fromEntries(Object.entries(rest).filter(([key]) => !asked.has(key)));
    const send = ({ name: chosen, ...body }) =>
      put(`v1/schedules/${encodeURIComponent(name ?? chosen)}`, { payload: {}, ...others, ...body });
    const note = schedule?.in_code ? "It is declared in code: the next worker that starts replaces these edits." : "";
    const heading = schedule ? `Edit ${title(schedule)}` : "New schedule";
    const kept = await form(heading, fields, send, { label: "Save", note });
    return kept && `${title(kept)} saved`;
  }

  async function run(schedule) {
    const { job_id } = await post(path(schedule, "/run"));
    return `${title(schedule)} enqueued as job ${shortId(job_id)}`;
  }

  async function pause(schedule) {
    if (schedule.paused) await post(path(schedule, "/resume"));
    else {
      if (
        !(await confirm(
          `Pause ${title(schedule)}?`,
          "No jobs are enqueued until the schedule is resumed. Missed runs are not made up.",
          "Pause schedule",
          "primary",
        ))
      )
        return "";
      await post(path(schedule, "/pause"));
    }
    return `${title(schedule)} ${schedule.paused ? "resumed" : "paused"}`;
  }

  async function deleteSchedule(schedule) {
    const again = schedule.in_code ? " It is declared in code: the next worker that starts creates it again." : "";
    if (
      !(await confirm(
        `Delete ${title(schedule)}?`,
        `No more jobs are enqueued. Existing jobs stay.${again}`,
        "Delete schedule",
      ))
    )
      return "";
    await remove(path(schedule));
    return `${title(schedule)} deleted`;
  }

  function next(schedule) {
    const time = schedule.next_run;
    if (!time) return muted(schedule.paused ? "–" : "never");
    const late = age(time) > LATE;
    return h(
      "time",
      { datetime: time, title: exact(time) },
      h("span", { class: late ? "late" : undefined }, late ? `due ${ago(time)}` : ago(time)),
      " ",
      muted(at(time)),
    );
  }

  function row(schedule) {
    const { name, type } = schedule;
    const last = when(schedule.last_run);
    return h(
      "tr",
      { key: name, "data-row": true },
      h(
        "th",
        { scope: "row", class: "name" },
        h(
          "a",
          { href: jobsHref({ type, text: `schedule/${name}/` }), title: "Jobs of this schedule", "data-open": true },
          line(name, 128),
        ),
        schedule.paused && h("span", { class: "tag warn" }, "paused"),
        schedule.in_code && h("span", { class: "tag", title: "Declared in code" }, "in code"),
      ),
      h("td", { "data-label": "Task" }, h("a", { href: jobsHref({ type }) }, line(type, 128))),
      h(
        "td",
        { class: "words", "data-label": "When", title: schedule.cron ? line(schedule.cron, 200) : undefined },
        line(schedule.words, 300),
        schedule.error &&
          h("div", { class: "error-text", title: line(schedule.error, 300) }, line(schedule.error, 160)),
      ),
      h(
        "td",
        { class: "num", "data-label": "Last run" },
        schedule.last_job ? h("a", { class: "open", href: jobHref(schedule.last_job) }, last) : last,
      ),
      h("td", { class: "num next", "data-label": "Next run" }, next(schedule)),
      context.may("operate") &&
        h(
          "td",
          { class: "right act" },
          h(
            "div",
            { class: "buttons" },
            button("Run now", () => act(() => run(schedule)), { kind: "small", icon: "run" }),
            exactJson(schedule.payload) &&
              button("Edit…", () => act(() => edit(schedule)), { kind: "small", icon: "edit" }),
            button(schedule.paused ? "Resume" : "Pause", () => act(() => pause(schedule)), {
              kind: "small",
              icon: schedule.paused ? "resume" : "pause",
            }),
            button("Delete", () => act(() => deleteSchedule(schedule)), { kind: "small danger", icon: "delete" }),
          ),
        ),
    );
  }

  function view() {
    if (!known) return loading("Schedules");
    return [
      h(
        "div",
        { class: "title job-title" },
        h("h1", {}, "Schedules"),
        h(
          "p",
          { class: "soft" },
          known.length ? `${plural(known.length, "schedule")}. Any worker enqueues the due runs.` : "",
        ),
        h("span", { class: "space" }),
        context.may("operate") && button("New schedule…", () => act(() => edit(null)), { icon: "add" }),
      ),
      known.length
        ? h(
            "div",
            { class: "scroll" },
            h(
              "table",
              { class: "list schedules" },
              h("caption", { class: "hidden" }, "Schedules"),
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  ["Schedule", "Task", "When", "Last run", "Next run"].map((label) => h("th", { scope: "col" }, label)),
                  context.may("operate") && h("th", {}, h("span", { class: "hidden" }, "Actions")),
                ),
              ),
              h("tbody", {}, known.map(row)),
            ),
          )
        : empty("No schedules yet", "A schedule enqueues a task repeatedly:", FIRST_SCHEDULE),
    ];
  }

  return { title: "Schedules", load, view };
}
