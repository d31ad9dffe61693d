// Executed code, elements wider than the page, foreign elements, and external links.
() => {
  const wide =
    document.documentElement.scrollWidth > innerWidth
      ? [...document.querySelectorAll("#app *")]
          .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest("pre, .scroll, nav, .chips"))
          .slice(0, 5)
          .map((e) => e.outerHTML.slice(0, 200))
          .concat("the document")
      : [];
  const own = (e) => e.tagName === "IMG" && e.getAttribute("src") === "dashboard/icon.svg";
  return {
    ran: window.ran ?? null,
    wide,
    foreign: [...document.querySelectorAll("#app :is(script, iframe, img, object, embed, style, link, base, form)")]
      .filter((e) => !own(e))
      .map((e) => e.outerHTML.slice(0, 100)),
    links: [...document.querySelectorAll("a[href]")]
      .map((a) => a.getAttribute("href"))
      .filter((h) => !h.startsWith("#")),
  };
};
