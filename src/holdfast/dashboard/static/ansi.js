// Terminal colours: splits text at ANSI sequences into styled pieces, without any markup.

// biome-ignore lint/suspicious/noControlCharactersInRegex: it matches control characters
const SEQUENCE = /\u001b\[([0-?]*)[ -/]*([@-~])|\u001b\][^\u0007\u001b]{0,4096}(?:\u0007|\u001b\\)?|\u001b[@-_]/g;
const CUBE = [0, 95, 135, 175, 215, 255];
const MAX_CODES = 64; // codes of one sequence that are read

/** A style: colours 0 to 15 or null, and flags. */
export const PLAIN = { fg: null, bg: null, bold: false, dim: false, italic: false, under: false };

/** The pieces [text, style] of a text that begins with this style, and the style at its end. */
export function pieces(text, style = PLAIN) {
  const found = [];
  let from = 0;
  let current = style;
  for (const match of text.matchAll(SEQUENCE)) {
    if (match.index > from) found.push([text.slice(from, match.index), current]);
    from = match.index + match[0].length;
    if (match[2] === "m") current = styled(match[1], current);
  }
  if (from < text.length) found.push([text.slice(from), current]);
  return { found, style: current };
}

/** The classes of a style; "" for plain text. */
export function classes({ fg, bg, bold, dim, italic, under }) {
  return [
    fg !== null && `ansi-${bold && fg < 8 ? fg + 8 : fg}`,
    bg !== null && `ansi-on-${bg}`,
    bold && "ansi-bold",
    dim && "ansi-dim",
    italic && "ansi-italic",
    under && "ansi-under",
  ]
    .filter(Boolean)
    .join(" ");
}

function styled(codes, before) {
  const numbers = codes.split(/[;:]/).slice(0, MAX_CODES).map(Number);
  let style = { ...before };
  for (let at = 0; at < numbers.length; at += 1) {
    const code = numbers[at];
    if (code === 0) style = { ...PLAIN };
    else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.under = true;
    else if (code === 7) [style.fg, style.bg] = [style.bg ?? 0, style.fg ?? 7];
    else if (code === 22) style.bold = style.dim = false;
    else if (code === 23) style.italic = false;
    else if (code === 24) style.under = false;
    else if (code === 27) [style.fg, style.bg] = [null, null];
    else if (code >= 30 && code <= 37) style.fg = code - 30;
    else if (code >= 90 && code <= 97) style.fg = code - 82;
    else if (code >= 40 && code <= 47) style.bg = code - 40;
    else if (code >= 100 && code <= 107) style.bg = code - 92;
    else if (code === 39) style.fg = null;
    else if (code === 49) style.bg = null;
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(numbers.slice(at + 1));
      style[code === 38 ? "fg" : "bg"] = colour;
      at += used;
    }
  }
  return style;
}

/** The nearest of the 16 colours to `5;n` or `2;r;g;b`, and how many codes it has. */
function extended([kind, ...rest]) {
  if (kind === 2) return [nearest(rest.slice(0, 3)), 4];
  const number = rest[0] || 0;
  if (kind !== 5) return [null, 1];
  if (number < 16) return [number, 2];
  if (number > 231) return [nearest([8, 8, 8].map((low) => low + 10 * (number - 232))), 2];
  const place = number - 16;
  return [nearest([CUBE[Math.floor(place / 36)], CUBE[Math.floor(place / 6) % 6], CUBE[place % 6]]), 2];
}

function nearest([red = 0, green = 0, blue = 0]) {
  const most = Math.max(red, green, blue);
  if (most < 50) return 0;
  const bits = [red, green, blue].map((part, bit) => (part > most / 2 ? 1 << bit : 0)).reduce((a, b) => a + b, 0);
  return bits === 7 ? (most > 200 ? 15 : most > 120 ? 7 : 8) : most > 200 ? bits + 8 : bits;
}
