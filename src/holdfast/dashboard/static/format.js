// Formatting of numbers, times and untrusted text.

import { now } from "./api.js";

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});
const short = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat("en", { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", year: "numeric" });

export const count = (n) => whole.format(n);
export const brief = (n) =>
  Math.abs(n) < 10000 ? (Number.isInteger(n) ? whole.format(n) : String(+n.toPrecision(2))) : compact.format(n);
export const plural = (n, word, words = `${word}s`) => `${count(n)} ${n === 1 ? word : words}`;

/** 0.012 → "12 ms"; 75 → "1 min 15 s". */
export function span(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const s = Math.max(0, seconds);
  if (s < 0.0005) return "0 ms";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return parts(s, 60, "min", 1, "s");
  if (s < 86400) return parts(s, 3600, "h", 60, "min");
  return parts(s, 86400, "d", 3600, "h");
}

function parts(s, size, unit, rest, small) {
  const big = Math.floor(s / size);
  const left = Math.floor((s - big * size) / rest);
  return left && big < 10 ? `${big} ${unit} ${left} ${small}` : `${big} ${unit}`;
}

export const seconds = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;
export const age = (at) => (now() - Date.parse(at)) / 1000;

/** "12 s ago", "in 3 min". */
export function ago(at) {
  const s = age(at);
  if (Math.abs(s) < 1.5) return "now";
  return s < 0 ? `in ${coarse(-s)}` : `${coarse(s)} ago`;
}

function coarse(s) {
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

/** The time of day, with the date if it is not today. */
export function at(text) {
  const date = new Date(text);
  const today = new Date(now()).toDateString() === date.toDateString();
  return today
    ? clock.format(date)
    : `${date.getFullYear() === new Date(now()).getFullYear() ? day.format(date) : full.format(date)}, ${clock.format(date)}`;
}

export const hour = (ms) => short.format(new Date(ms));
export const date = (ms) => day.format(new Date(ms));

export function bytes(n) {
  if (n < 1024) return `${n} B`;
  return n < 1024 * 1024 ? `${Math.round(n / 1024)} KB` : `${(n / 1024 / 1024).toFixed(1)} MB`;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: it matches control characters
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: it matches control characters
const ANSI = /\u001b\[[0-?]*[ -/]*[@-~]|\u001b\][^\u0007\u001b]{0,4096}(?:\u0007|\u001b\\)?|\u001b[@-_]/g;

/** Untrusted text: invisible and direction-changing characters become visible symbols. */
export function plain(text) {
  return String(text).replace(HIDDEN, (sign) => {
    const code = sign.charCodeAt(0);
    if (code < 32) return String.fromCharCode(0x2400 + code);
    return code === 127 ? "\u2421" : `\u27e8${code.toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
  });
}

/** Untrusted text as one line, truncated. */
export function line(text, max = 200) {
  const first = String(text).slice(0, max + 1);
  return plain((first.length > max ? `${first.slice(0, max)}…` : first).replace(/[\n\t\r]+/g, " "));
}

/** Terminal output as plain text, without ANSI sequences and overwritten lines. */
export function printed(text) {
  return plain(
    text
      .replace(ANSI, "")
      .replace(/\r+\n/g, "\n")
      .replace(/[^\n]*\r(?=[^\n])/g, "")
      .replace(/\r/g, ""),
  );
}

/** Indented JSON. */
export function json(value) {
  return plain(typeof value === "string" ? JSON.stringify(value) : (JSON.stringify(value, null, 2) ?? "null"));
}
