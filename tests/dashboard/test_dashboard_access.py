"""Usable by all: names, labels, landmarks, headings, contrast, focus and size, looked at by the browser's own tree.

axe is not among the locked packages: the rules of WCAG 2.2 AA that matter and that a machine can check are checked by
hand, in structure.js and contrast.js.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.browser import look
from support.scene import a_few

pytestmark = pytest.mark.timeout(90)

MORE = ("#/queues", "#/workers", "#/dead", "#/errors")
LOOKS = [("light", 1280), ("dark", 1280), ("light", 390)]
HERE = Path(__file__).parent
STRUCTURE, CONTRAST = (HERE / "structure.js").read_text(), (HERE / "contrast.js").read_text()
CONTROLS = {"button", "link", "textbox", "searchbox", "checkbox", "combobox", "listbox"}
NAMED = CONTROLS | {"img", "image", "progressbar", "region", "dialog", "navigation"}
"""Roles that must have a name."""
FOCUSED = """() => {
  const e = document.activeElement, s = getComputedStyle(e);
  const seen = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2;
  return [e.textContent.trim().slice(0, 30) || e.ariaLabel, seen];
}"""


@pytest.mark.parametrize(("scheme", "width"), LOOKS, ids=["light", "dark", "phone"])
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_every_page_has_names_labels_structure_and_contrast(lab, make_page, scheme, width):
    lab.do(a_few(lab.app))
    dead = lab.do(lab.app.jobs(state="dead")).jobs[0].id
    lab.start_worker("media")
    film = lab.enqueue("encode_film", "a.mov", 500)
    page = make_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    for where in ("#/", "#/jobs", "#/jobs?state=dead", *MORE, f"#/jobs/{dead}", f"#/jobs/{film}"):
        look(page, lab, where)
        if where == "#/jobs":
            page.get_by_role("checkbox").first.check()  # the bar of the selection too
        check(page, where)
    look(page, lab, "#/dead")
    page.get_by_role("button", name="Delete all").click()
    page.get_by_role("dialog").wait_for()
    check(page, "dialog")


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_login_too(make_lab, make_page):
    lab = make_lab(token="a-long-enough-token")
    page = make_page()
    page.goto(lab.address)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("alert").wait_for()
    check(page, "login")
    page.complaints.clear()  # the browser tells of the refusals


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_the_focus_goes_in_order_and_can_be_seen(lab, page):
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
def test_nothing_moves_for_whoever_asked_for_that(lab, page):
    lab.start_worker("media")
    lab.enqueue("encode_film", "a.mov", 500)
    look(page, lab, "#/jobs")
    page.locator(".state.running").first.wait_for()
    assert page.evaluate("document.getAnimations().length") == 0


def check(page, where):
    assert page.evaluate(STRUCTURE) == [], where
    contrast = page.evaluate(CONTRAST)
    assert contrast["seen"] > 5, where
    assert contrast["found"] == [], where
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    seen = [(node["role"]["value"], node.get("name", {}).get("value")) for node in tree if not node["ignored"]]
    assert [role for role, name in seen if role in NAMED and not name] == [], where
    assert len(seen) > 10, where
