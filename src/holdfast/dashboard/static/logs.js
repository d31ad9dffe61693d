// What a job printed and logged, and the chunks that it emitted: of every attempt, live, with colours, search, download.

import { classes, PLAIN, pieces } from "./ansi.js";
import { chunks, get, jobPath, output } from "./api.js";
import { h } from "./dom.js";
import { at, count, line as oneLine, plain, plural } from "./format.js";
import { button, exact, failed, panel } from "./parts.js";

const MAX_LINES = 20000; // lines kept in the page, the last ones
const MAX_SHOWN = 1000; // lines drawn at first; each click shows as many more
const MAX_TEXT = 4000; // characters of one line that are drawn
const decoder = new TextDecoder();
const DOWNLOAD_LIMIT = 256 * 1024 * 1024; // bytes

/** The lines that a job printed and logged. */
export function logs(context, id, signal) {
  return listing(context, id, {
    title: "Output",
    what: "output",
    unit: "line",
    suffix: "log",
    read: (position) => get(jobPath(id, "/logs"), { position }, { signal }),
    /** The last line, which has no end yet. */
    async tail(position) {
      const text = decoder.decode((await output(id, position, signal)).data);
      return text.includes("\n") ? "" : text;
    },
    piece: (position) => output(id, position, signal),
  });
}

/** The chunks that a job emitted. */
export function stream(context, id, signal) {
  const shown = ({ value, ...rest }) => ({
    ...rest,
    text: typeof value === "string" ? value : JSON.stringify(value),
    whole: true, // carriage returns do not hide what is before them
  });
  return listing(context, id, {
    title: "Stream",
    what: "stream",
    unit: "chunk",
    suffix: "jsonl",
    async read(position) {
      const found = await chunks(id, position, signal);
      return { lines: found.map(shown), position: found.at(-1)?.position };
    },
    async piece(position) {
      const found = await chunks(id, position, signal);
      const data = new TextEncoder().encode(found.map(({ value }) => `${JSON.stringify(value)}\n`).join(""));
      return { data, next: found.at(-1)?.position };
    },
  });
}

/** A panel of lines that a source reads piece by piece. */
function listing(context, id, source) {
  const known = { lines: [], position: 0, cut: false, styles: new Map(), tail: "", busy: false };
  const wanted = { text: "", fence: "", shown: MAX_SHOWN };
  let version = 0; // changes whenever the lines are to be drawn again

  /** Read new lines. */
  async function load(running) {
    if (known.busy) return;
    known.busy = true;
    try {
      for (;;) {
        const page = await source.read(known.position);
        if (!page.lines.length) break;
        known.position = page.position;
        for (const one of page.lines) add(one);
        known.cut ||= page.lines.some((one) => one.missed);
        if (known.lines.length > MAX_LINES) {
          known.lines.splice(0, known.lines.length - MAX_LINES);
          known.cut = true;
          version += 1;
        }
      }
      known.tail = running && source.tail ? await source.tail(known.position) : "";
    } catch (error) {
      if (error.name !== "AbortError" && ![404, 422].includes(error.status)) throw error;
    } finally {
      known.busy = false;
    }
  }

  /** Keep a line; colours of plain output continue in the next line of the same attempt. */
  function add(one) {
    const { line, style } = read(one);
    if (!one.level) known.styles.set(one.fence, style);
    known.lines.push(line);
  }

  function read(one) {
    const text = one.level || one.whole ? one.text : one.text.replace(/\r+$/, "").replace(/^.*\r/s, "");
    const { found, style } = pieces(text, one.level ? PLAIN : known.styles.get(one.fence));
    const parts = found.map(([part, looks]) => [plain(part), classes(looks)]);
    return { line: { ...one, parts, text: parts.map(([part]) => part).join("") }, style };
  }

  const tail = () =>
    known.tail && !wanted.text && !wanted.fence
      ? row(read({ fence: known.lines.at(-1)?.fence, text: known.tail, attempt: null }).line, false, "")
      : null;

  function matching() {
    const text = wanted.text.toLowerCase();
    return known.lines.filter(
      (one) =>
        (!wanted.fence || String(one.fence) === wanted.fence) && (!text || one.text.toLowerCase().includes(text)),
    );
  }

  function change(values) {
    Object.assign(wanted, { shown: MAX_SHOWN }, values);
    version += 1;
    context.draw();
  }

  async function download() {
    try {
      const parts = [];
      let position = 0;
      let size = 0;
      for (;;) {
        const piece = await source.piece(position);
        if (!piece.data.byteLength || size > DOWNLOAD_LIMIT) break;
        parts.push(piece.data);
        size += piece.data.byteLength;
        position = piece.next;
      }
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
      link.download = `${id.replace(/[^\w.-]+/g, "_").slice(0, 80)}.${source.suffix}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    } catch (error) {
      failed(error);
    }
  }

  function tools(attempts) {
    return h(
      "div",
      { class: "log-tools" },
      h("input", {
        type: "search",
        placeholder: `Find in the ${source.what}`,
        "aria-label": `Find in the ${source.what}`,
        value: wanted.text,
        maxlength: "200",
        on: { input: (event) => change({ text: event.target.value }) },
      }),
      attempts.length > 1 &&
        h(
          "select",
          {
            "aria-label": "Attempt",
            value: wanted.fence,
            on: { change: (event) => change({ fence: event.target.value }) },
          },
          h("option", { value: "" }, "All attempts"),
          attempts.map(([fence, number]) =>
            h("option", { value: String(fence) }, number === null ? `Claim ${fence}` : `Attempt ${number}`),
          ),
        ),
      h("span", { class: "space" }),
      button("Download", download, { kind: "small" }),
    );
  }

  function view(running) {
    const attempts = [...new Map(known.lines.map((one) => [one.fence, one.attempt]))];
    const found = matching();
    const shown = found.slice(-wanted.shown);
    const drawn = `${version}/${wanted.text}/${wanted.fence}/${wanted.shown}`;
    const note = [
      running && "live",
      known.cut && `the last ${plural(known.lines.length, source.unit)}`,
      (wanted.text || wanted.fence) && `${count(found.length)} of ${plural(known.lines.length, source.unit)}`,
    ];
    return panel(
      source.title,
      { key: source.what, note: note.filter(Boolean).join(" · ") },
      tools(attempts),
      found.length > shown.length &&
        button(
          `Show ${count(Math.min(MAX_SHOWN, found.length - shown.length))} earlier ${source.unit}s`,
          () => change({ ...wanted, shown: wanted.shown + MAX_SHOWN }),
          { kind: "small" },
        ),
      h("div", {
        class: "output",
        tabindex: "0",
        role: "log",
        "aria-live": "off",
        "aria-label": `${source.title} of the job`,
        mount: () => () => {},
        update: (element) => paint(element, shown, drawn, attempts.length > 1, wanted.text, tail(), source),
      }),
    );
  }

  return { load, view, any: () => known.lines.length > 0 || known.tail !== "" };
}

/** Draw the lines: only new ones, unless `drawn` has changed. Stays at the end if it was there. */
function paint(element, lines, drawn, several, text, tail, { what, unit }) {
  element.tail?.remove();
  element.tail = tail;
  const low = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
  const last = element.drawn === drawn ? element.last : undefined;
  const from = last ? lines.lastIndexOf(last) + 1 : 0;
  if (!from) element.replaceChildren();
  element.drawn = drawn;
  element.last = lines.at(-1);
  const made = document.createDocumentFragment();
  for (const one of lines.slice(from)) made.append(row(one, several, text));
  element.append(made);
  while (element.childElementCount > lines.length) element.firstElementChild.remove();
  if (!lines.length && !tail) element.textContent = text ? `No ${unit} matches.` : `No ${what}.`;
  if (tail) element.append(tail);
  if (low) element.scrollTop = element.scrollHeight;
}

function row(one, several, text) {
  const made = document.createElement("div");
  made.className = one.level ? `log-line level-${/^\w+$/.test(one.level) ? one.level : "other"}` : "log-line";
  const head = [
    several && (one.attempt === null ? "–" : `#${one.attempt}`),
    one.time && at(one.time),
    one.level && oneLine(one.level, 10),
  ]
    .filter(Boolean)
    .join(" ");
  if (head) {
    const label = document.createElement("span");
    label.className = "log-head";
    label.textContent = `${head} `;
    if (one.time) label.title = exact(one.time);
    made.append(label);
  }
  let left = MAX_TEXT;
  for (const [part, looks] of one.parts) {
    if (left <= 0) break;
    const span = document.createElement("span");
    if (looks) span.className = looks;
    span.append(...marked(part.slice(0, left), text));
    left -= part.length;
    made.append(span);
  }
  if (left < 0) made.append("… (download the output to read the rest)");
  return made;
}

/** Text with each match of the search in a mark. */
function marked(part, text) {
  if (!text) return [part];
  const found = [];
  const low = part.toLowerCase();
  const wanted = text.toLowerCase();
  let from = 0;
  for (let place = low.indexOf(wanted); place >= 0 && low.length === part.length; place = low.indexOf(wanted, from)) {
    const mark = document.createElement("mark");
    mark.textContent = part.slice(place, place + wanted.length);
    found.push(part.slice(from, place), mark);
    from = place + wanted.length;
  }
  return [...found, part.slice(from)];
}
