"""Accessibility: names, labels, landmarks, headings, contrast, focus and target size.

axe checks each page against WCAG 2.2 AA and its best-practice rules, under the page's content security policy. Every
violation fails the test. structure.js checks what axe does not: one h1, captions, columns, and targets of 24 pixels.
contrast.js checks text against its actual background. The tests below check visible focus and reduced motion.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from support.browser import look
from support.scene import a_few, by_the_clock

MORE = ("#/queues", "#/schedules", "#/workers", "#/dead", "#/errors")
LOOKS = [
    pytest.param("light", 1280, id="light"),
    pytest.param("dark", 1280, id="dark"),
    pytest.param("light", 390, id="phone"),
]
"""Color scheme and width."""
HERE = Path(__file__).parent
STRUCTURE, CONTRAST = (HERE / "structure.js").read_text(), (HERE / "contrast.js").read_text()
CONTROLS = {"button", "link", "textbox", "searchbox", "checkbox", "combobox", "listbox"}
NAMED = CONTROLS | {"img", "image", "progressbar", "region", "dialog", "navigation"}
"""Roles that must have a name."""
RULES = {"rules": {"target-size": {"enabled": True}}}
"""In addition to the default rules of axe."""
FOCUSED = """() => {
  const e = document.activeElement, s = getComputedStyle(e);
  const seen = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2;
  return [e.textContent.trim().slice(0, 30) || e.ariaLabel, seen];
}"""

SPOILED = """() => {
  const button = document.querySelector(".tool");
  button.removeAttribute("aria-label");
  button.removeAttribute("title");
  document.querySelector("h1").style.color = "#bbb";
}"""


@pytest.mark.extended
@pytest.mark.parametrize(("scheme", "width"), LOOKS)
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_every_page_has_names_labels_structure_and_contrast(lab, make_page, scheme, width):
    lab.do(a_few(lab.app))
    lab.do(by_the_clock(lab.app))
    dead = lab.do(lab.app.jobs(state="dead")).jobs[0].id
    lab.start_worker("media")
    film = lab.enqueue("encode_film", "a.mov", 500)
    page = make_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    for where in ("#/", "#/jobs", "#/jobs?state=dead", *MORE, f"#/jobs/{dead}", f"#/jobs/{film}"):
        look(page, lab, where)
        if where == "#/jobs":
            page.get_by_role("checkbox").first.check()  # shows the selection bar
        check(page, where)
    look(page, lab, "#/dead")
    page.get_by_role("button", name="Delete all").click()
    page.get_by_role("dialog").wait_for()
    check(page, "dialog")


@pytest.mark.extended
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_empty_pages_and_the_shortcuts_dialog(lab, page):
    for where in ("#/", "#/jobs", *MORE):
        look(page, lab, where)
        check(page, where)
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
    check(page, "shortcuts")


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_axe_finds_violations(lab, page):
    look(page, lab)
    page.evaluate(SPOILED)
    assert {(rule, weight) for rule, weight, _ in axe(page)} >= {
        ("button-name", "critical"),
        ("color-contrast", "serious"),
    }


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_login_page(make_lab, make_page):
    lab = make_lab(token="a-long-enough-token")
    page = make_page()
    page.goto(lab.address)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("alert").wait_for()
    check(page, "login")
    page.complaints.clear()  # the browser logs the 401 responses


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_focus_is_ordered_and_visible(lab, page):
    lab.do(a_few(lab.app))
    look(page, lab, "#/jobs")
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUSED))
    assert all(visible for _, visible in seen), seen
    names = [name for name, _ in seen]
    assert names[0] == "Skip to the content"
    assert names.index("Overview") < names.index("Errors") < names.index("Search") < names.index("Task")
    page.keyboard.press("Escape")


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_reduced_motion_disables_animations(lab, page):
    lab.start_worker("media")
    lab.enqueue("encode_film", "a.mov", 500)
    look(page, lab, "#/jobs")
    page.locator(".state.running").first.wait_for()
    assert page.evaluate("document.getAnimations().length") == 0


def axe(page):
    """All violations: rule, impact and element."""
    found = Axe().run(page, options=RULES).response
    assert len(found["passes"]) > 10
    return [(one["id"], one["impact"], one["nodes"][0]["html"]) for one in found["violations"]]


def check(page, where):
    assert axe(page) == [], where
    assert page.evaluate(STRUCTURE) == [], where
    contrast = page.evaluate(CONTRAST)
    assert contrast["seen"] > 5, where
    assert contrast["found"] == [], where
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    seen = [(node["role"]["value"], node.get("name", {}).get("value")) for node in tree if not node["ignored"]]
    assert [role for role, name in seen if role in NAMED and not name] == [], where
    assert len(seen) > 10, where
