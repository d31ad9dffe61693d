// The forms of jobs: enqueue one, edit one that waits, clone one with edits; and pause a task.

import { get, jobPath, patch, post } from "./api.js";
import { exactJson, form } from "./form.js";
import { line } from "./format.js";
import { jobHref, shortId, toast } from "./parts.js";

const QUEUE = { name: "queue", label: "Queue" };
const PRIORITY = { name: "priority", label: "Priority", kind: "number", note: "A lower number starts first." };
const AT = { name: "run_at", label: "Not before", kind: "time", note: "In your time zone; empty: now." };
const ATTEMPTS = { name: "max_attempts", label: "Maximum attempts", kind: "number" };
const TIMEOUT = { name: "timeout", label: "Time limit in seconds", kind: "number" };
const TAGS = { name: "tags", label: "Tags", kind: "list", note: "Separated by commas." };
const ARGUMENTS = {
  name: "payload",
  label: "Arguments",
  kind: "json",
  required: true,
  note: "A JSON object: by name.",
};

/** The arguments of a job, which cannot be edited here if the browser has rounded a number or has no JSON of them. */
function argumentsOf({ payload }) {
  const editable = payload !== null && typeof payload === "object" && !Array.isArray(payload) && exactJson(payload);
  if (editable) return { ...ARGUMENTS, value: payload };
  return {
    ...ARGUMENTS,
    required: false,
    disabled: true,
    note: "They cannot be edited in a browser; use the command line.",
  };
}

/** A key for one form: however often it is sent, one job is made. (`randomUUID` needs a secure context.) */
const newKey = () =>
  `dashboard-${Array.from(crypto.getRandomValues(new Uint32Array(4)), (n) => n.toString(36)).join("")}`;

/** The tasks of live workers, to choose from. */
export const knownTasks = () =>
  get("v1/workers")
    .then(({ workers }) => [...new Set(workers.flatMap((one) => one.tasks))].sort())
    .catch(() => []);

const open = (id) => (location.hash = jobHref(id));

/** Enqueue a new job; then its page is shown. The key lets a repeated request make no second job. */
export async function enqueueJob() {
  const key = newKey();
  const job = await form(
    "Enqueue a job",
    [
      { name: "type", label: "Task", required: true, suggestions: await knownTasks() },
      { ...ARGUMENTS, value: {} },
      QUEUE,
      PRIORITY,
      AT,
      ATTEMPTS,
      TIMEOUT,
      TAGS,
    ],
    (body) => post("v1/jobs", body, { "Idempotency-Key": key }),
    { label: "Enqueue", note: "Empty fields get the defaults of the task and the store." },
  );
  if (job) {
    toast(`Job ${shortId(job.id)} enqueued`);
    open(job.id);
  }
}

/** Edit a waiting job. Resolves with whether it was. */
export async function editJob(job) {
  const fields = [
    argumentsOf(job),
    { ...QUEUE, value: job.queue },
    { ...PRIORITY, value: job.priority },
    { ...AT, value: job.status === "queued" ? null : job.run_at, note: "In your time zone." },
  ];
  const note = "Only a job that has not started is changed.";
  const done = await form("Edit this job", fields, (body) => patch(jobPath(job.id), body), {
    label: "Save",
    note,
    whole: false,
  });
  if (done) toast("Job edited");
  return Boolean(done);
}

/** Enqueue a new job like this one, with edits; then its page is shown. */
export async function cloneJob(job) {
  const key = newKey();
  const fields = [
    argumentsOf(job),
    { ...QUEUE, value: job.queue },
    { ...PRIORITY, value: job.priority },
    AT,
    { ...ATTEMPTS, value: job.max_attempts || null },
    { ...TIMEOUT, value: job.timeout },
    { ...TAGS, value: job.tags },
  ];
  const send = (body) => post(jobPath(job.id, "/clone"), { ...body, key: key });
  const note = `A new job of task ${line(job.type, 80)}, with the arguments and options below.`;
  const made = await form("Clone this job", fields, send, { label: "Enqueue clone", note });
  if (made) {
    toast(`Job ${shortId(made.id)} enqueued`);
    open(made.id);
  }
}

/** Pause a task, or its jobs with certain arguments. */
export async function pauseTask(done) {
  const paused = await form(
    "Pause a task",
    [
      { name: "task", label: "Task", required: true, suggestions: await knownTasks() },
      {
        name: "where",
        label: "Only jobs with these arguments",
        kind: "json",
        note: 'Such as {"customer": 42}; empty: all.',
      },
    ],
    ({ task, where }) => post(`v1/tasks/${encodeURIComponent(task)}/pause`, where ? { where } : {}).then(() => task),
    { label: "Pause task", note: "No jobs of it start until it is resumed; running ones continue." },
  );
  if (paused) {
    toast(`Task ${line(paused, 80)} paused`);
    done();
  }
}
