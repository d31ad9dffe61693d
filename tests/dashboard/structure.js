// Problems in the structure of the page as texts; [] if there are none.
() => {
  const found = [];
  const all = (s) => [...document.querySelectorAll(s)];
  const visible = (e) => e.checkVisibility({ visibilityProperty: true }) && e.getClientRects().length > 0;
  if (!document.documentElement.lang) found.push("no language");
  if (!document.title.includes("Holdfast")) found.push(`title: ${document.title}`);
  if (all("h1").filter(visible).length !== 1) found.push("not one h1");
  if (all("main").length !== 1 || (all("nav").length < 1 && !document.querySelector(".login"))) found.push("landmarks");
  let level = 0;
  for (const h of all("h1, h2, h3, h4")) {
    const now = Number(h.tagName[1]);
    if (now > level + 1) found.push(`heading skips to ${h.outerHTML.slice(0, 80)}`);
    level = now;
  }
  const ids = all("[id]").map((e) => e.id);
  if (new Set(ids).size !== ids.length) found.push("duplicate id");
  for (const e of all("[tabindex]")) if (e.tabIndex > 0) found.push("positive tabindex");
  for (const e of all("img")) if (!e.hasAttribute("alt")) found.push("image without alt");
  for (const e of all("th"))
    if (
      !e.scope &&
      !e.classList.contains("tick") &&
      e.textContent.trim() &&
      e.closest("thead") &&
      !e.querySelector(".hidden")
    )
      found.push(`th without scope: ${e.textContent}`);
  for (const e of all("table")) if (!e.caption) found.push("table without caption");
  for (const e of all("ul > *, ol > *")) if (e.tagName !== "LI") found.push(`in a list: ${e.tagName}`);
  for (const e of all("dl > *")) if (!["DT", "DD", "DIV"].includes(e.tagName)) found.push(`in a dl: ${e.tagName}`);
  for (const e of all("pre, .scroll, nav")) {
    if (
      visible(e) &&
      e.scrollWidth > e.clientWidth + 1 &&
      getComputedStyle(e).overflowX !== "visible" &&
      !e.matches("[tabindex]") &&
      !e.querySelector("a, button")
    )
      found.push(`not scrollable with the keyboard: ${e.className}`);
  }
  for (const e of all("a[href], button, input, select, summary")) {
    if (!visible(e) || e.matches(".skip")) continue;
    const box = e.getBoundingClientRect();
    const inline = e.tagName === "A" && getComputedStyle(e).display === "inline";
    if (!inline && (box.height < 24 || box.width < 24) && !(e.type === "checkbox"))
      found.push(`small target: ${e.outerHTML.slice(0, 120)} ${box.width}x${box.height}`);
    if (e.closest("[aria-hidden=true]")) found.push("focusable but hidden");
  }
  return found;
};
