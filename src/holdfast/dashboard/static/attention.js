// What needs attention: one line per kind of problem, with its count and its action, the worst first.

import { h } from "./dom.js";
import { age, count, line, plural, span } from "./format.js";
import { jobsHref, panel } from "./parts.js";

const LATE = 300; // seconds that the oldest job waits before its queue counts as behind
const LEVELS = ["bad", "warn", "info"];
const NAMES = 3; // names that a line lists

const names = (all) =>
  all
    .slice(0, NAMES)
    .map((name) => line(name, 60))
    .join(", ") + (all.length > NAMES ? ", …" : "");
const sum = (all, value) => all.reduce((total, one) => total + value(one), 0);

/** The kinds of waiting that make a queue a problem, by name; the queue page filters by them. */
export const TROUBLES = {
  paused: (queue) => queue.paused && waiting(queue) > 0,
  unserved: (queue) => !queue.paused && waiting(queue) > 0 && !queue.listeners,
  behind: (queue) =>
    !queue.paused && waiting(queue) > 0 && queue.listeners > 0 && queue.oldest && age(queue.oldest) > LATE,
};

const waiting = (queue) => queue.counts.queued || 0;

function queueLine(stats, kind, level, word, one, many) {
  const found = stats.queues.filter(TROUBLES[kind]).sort((a, b) => waiting(b) - waiting(a));
  if (!found.length) return null;
  const jobs = sum(found, waiting);
  if (found.length === 1) {
    const [queue] = found;
    const text = `Queue ${line(queue.name, 60)}: ${one(queue)}`;
    return { level, word, count: jobs, text, href: `#/queues?only=${kind}`, action: "Show queue" };
  }
  const text = `${plural(found.length, "queue")} ${many}: ${plural(jobs, "job")} waiting in ${names(found.map((queue) => queue.name))}`;
  return { level, word, count: jobs, text, href: `#/queues?only=${kind}`, action: "Show queues" };
}

/** The lines, the worst first. */
export function problems({ stats, paused, errors, hour }) {
  const { counts, warnings, refused } = stats;
  const died = sum(hour, (one) => (one.outcome === "dead" ? one.count : 0));
  const recent = (errors ? errors.groups : []).filter((one) => age(one.last_seen) < 3600);
  const found = [
    warnings.length && {
      level: "bad",
      word: "Store",
      count: Infinity, // it may lose jobs
      number: warnings.length,
      text: warnings.map((one) => `${line(one.what, 120)}: ${line(one.advice, 300)}`).join("; "),
      href: "#/",
    },
    refused.length && {
      level: "bad",
      word: "Refused",
      count: sum(refused, (one) => one.count),
      text: `Workers refused jobs of ${names([...new Set(refused.map((one) => one.type))])}: ${line(refused[0].error, 200)}`,
      href:
        refused.length === 1
          ? jobsHref({ queue: refused[0].queue, type: refused[0].type })
          : jobsHref({ state: "scheduled" }),
      action: "Show jobs",
    },
    queueLine(
      stats,
      "unserved",
      "bad",
      "No worker",
      (queue) => `${plural(waiting(queue), "job")} waiting, no live worker serves it`,
      "without a live worker",
    ),
    counts.dead && {
      level: died ? "bad" : "warn",
      word: "Dead letters",
      count: counts.dead,
      text: died
        ? `${plural(died, "job")} became dead in the last hour, ${plural(counts.dead, "job")} in all`
        : `${plural(counts.dead, "dead job")}, none of the last hour`,
      href: "#/dead",
      action: "Retry or delete",
    },
    queueLine(stats, "paused", "warn", "Paused", (queue) => `${plural(waiting(queue), "job")} waiting`, "are paused"),
    paused.length && {
      level: "warn",
      word: "Paused",
      count: paused.length,
      text: `${plural(paused.length, "pause")} of tasks: ${names([...new Set(paused.map((one) => one.task))])}`,
      href: "#/queues",
      action: "Show pauses",
    },
    queueLine(
      stats,
      "behind",
      "warn",
      "Behind",
      (queue) => `the oldest job has waited ${span(age(queue.oldest))}`,
      "are behind",
    ),
    recent.length && {
      level: "warn",
      word: "Failing",
      count: sum(recent, (one) => one.count),
      text: h(
        "span",
        {},
        recent.length > 1 && `${plural(recent.length, "error group")} in the last hour, the largest: `,
        h("b", {}, line(recent[0].task, 60)),
        ` ${line(recent[0].pattern, 140)}`,
      ),
      href: recent.length > 1 ? "#/errors" : jobsHref({ error: recent[0].fingerprint, group: recent[0].pattern }),
      action: recent.length > 1 ? "Show errors" : "Show jobs",
    },
    counts.blocked && {
      level: "info",
      word: "Blocked",
      count: counts.blocked,
      text: "Waiting for a limit, a dependency, a signal, the end of a pause or another worker",
      href: jobsHref({ state: "blocked" }),
      action: "Show jobs",
    },
  ].filter(Boolean);
  return found.sort((a, b) => LEVELS.indexOf(a.level) - LEVELS.indexOf(b.level) || b.count - a.count);
}

export function attention(known) {
  const found = problems(known);
  if (!found.length)
    return h(
      "p",
      { class: "quiet", key: "attention" },
      h("i", { class: "dot fill-succeeded" }),
      "Nothing needs attention.",
    );
  return panel(
    "Needs attention",
    { key: "attention", kind: "attention" },
    h(
      "ul",
      {},
      found.map(({ level, word, text, href, action, count: many, number = many }) =>
        h(
          "li",
          { class: level, "data-row": true, key: `${word} ${href}` },
          h(
            "a",
            { href, "data-open": true },
            h("span", { class: "word" }, word),
            h("span", { class: "number num" }, count(number)),
            h("span", { class: "text" }, text),
            action && h("span", { class: "action" }, action),
          ),
        ),
      ),
    ),
  );
}
