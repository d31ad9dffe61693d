// Texts whose contrast with their background is below WCAG AA, and the number of texts checked.
() => {
  const parse = (text) => {
    const n = text.match(/[\d.]+/g).map(Number);
    return text.startsWith("color(srgb")
      ? [n[0] * 255, n[1] * 255, n[2] * 255, n[3] ?? 1]
      : [n[0], n[1], n[2], n[3] ?? 1];
  };
  const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
  const light = (c) => {
    const [r, g, b] = c
      .slice(0, 3)
      .map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (e) => {
    const stack = [];
    for (let at = e; at; at = at.parentElement) {
      const c = parse(getComputedStyle(at).backgroundColor);
      stack.push(c);
      if (c[3] === 1) break;
    }
    return stack.reverse().reduce((below, c) => over(c, below), [255, 255, 255, 1]);
  };
  const found = [];
  let seen = 0;
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (
      !walk.currentNode.data.trim() ||
      !e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) ||
      e.matches(":disabled, :disabled *") ||
      e.closest(".hidden, .skip, noscript, option")
    )
      continue;
    const style = getComputedStyle(e);
    const back = ground(e);
    const fore = over(parse(e.namespaceURI.endsWith("svg") ? style.fill : style.color), back);
    const [a, b] = [light(fore), light(back)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
    seen += 1;
    if ((a + 0.05) / (b + 0.05) < least)
      found.push(`${((a + 0.05) / (b + 0.05)).toFixed(2)} ${e.className} "${walk.currentNode.data.slice(0, 40)}"`);
  }
  return { seen, found: [...new Set(found)] };
};
