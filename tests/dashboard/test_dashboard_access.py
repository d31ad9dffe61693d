"""Accessibility: names, labels, landmarks, headings, contrast, focus and target size.

axe checks each page against WCAG 2.2 AA and its best-practice rules, under the page's content security policy. Every
violation fails the test. structure.js checks what axe does not: one h1, captions, columns, and targets of 24 pixels.
contrast.js checks text against its actual background. The tests below check visible focus and reduced motion.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
from axe_playwright_python.sync_playwright import Axe

from holdfast import Flow, Worker
from holdfast.app import parts_of
from support.browser import look
from support.scene import a_few, by_the_clock

MORE = ("#/flows", "#/queues", "#/schedules", "#/workers", "#/dead", "#/errors", "#/audit", "#/settings")
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

CONTROLLED = """() => {
  const native = "a[href], button, input, select, textarea, summary, [role=option]";
  const box = document.querySelector("dialog") || document.getElementById("app");
  const shown = (e) => e.checkVisibility({ visibilityProperty: true }) && !e.disabled;
  return [...box.querySelectorAll("*")]
    .filter((e) => shown(e) && (e.matches(native) || e.listened?.has("click") || e.listened?.has("keydown")))
    .filter((e) => !e.matches("[role=option]"))  // of a list whose box has the focus
    .map((e, at) => (e.dataset.control = at, e.outerHTML.slice(0, 120)));
}"""
"""Number all controls that are shown; their beginnings."""
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
    small, large = (lab.do(flow(lab.app, jobs)) for jobs in (6, 150))
    page = make_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    group = lab.do(lab.app.errors.groups()).groups[0].fingerprint
    more = (
        f"#/flows/{small}",
        f"#/flows/{large}",
        "#/queues/exports",
        "#/queues/default",
        f"#/errors/{group}",
        recent(),
    )
    for where in ("#/", "#/jobs", "#/jobs?state=dead", *MORE, *more, f"#/jobs/{dead}", f"#/jobs/{film}"):
        look(page, lab, where)
        if where == "#/jobs":
            page.get_by_role("checkbox").first.check()  # shows the selection bar
        if where.endswith(large):
            page.locator(".box").first.click()  # shows its jobs
        check(page, where)
    look(page, lab, "#/dead")
    page.get_by_role("button", name="Delete all").click()
    page.get_by_role("dialog").wait_for()
    check(page, "dialog")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Find").fill("exports")
    page.get_by_role("option", name="Queue exports", exact=True).wait_for()
    check(page, "palette")
    look(page, lab, "#/jobs?state=dead")
    page.get_by_role("button", name="Save filter").click()
    page.get_by_label("Name").fill("dead ones")
    check(page, "a name for a filter")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="dead ones").wait_for()
    check(page, "saved filters")
    page.goto(f"{lab.address}/docs")
    page.locator("#post_jobs summary").click()
    check(page, "docs")


async def flow(app, jobs):
    """A flow of which some jobs have ended, one is dead and one waits."""
    task = parts_of(app).registry.tasks
    made = Flow("import")
    first = [made.add(task["resize_image"], f"{n}.raw", 640) for n in range(jobs)]
    made.add(task["monthly_report"], "2026-11").after(*first)
    made.add(task["export_orders"], "2026-11-01").after(first[0])
    handle = await app.enqueue_flow(made)
    await Worker(app, ["default", "reports"], until_idle=True).run()
    return handle.id


def recent():
    """The page of a span around now."""
    now = datetime.now(UTC)
    span = {"start": (now - timedelta(minutes=5)).isoformat(), "end": (now + timedelta(minutes=1)).isoformat()}
    return f"#/incident?{urlencode(span)}"


@pytest.mark.extended
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_empty_pages_and_the_shortcuts_dialog(lab, page):
    for where in ("#/", "#/jobs", *MORE, recent(), "#/incident"):
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
    page.tolerate("status of 401")  # the browser logs the 401 responses


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


@pytest.mark.extended
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_every_control_is_reached_and_every_dialog_opened_by_keyboard(lab, page):
    lab.do(a_few(lab.app))
    lab.do(by_the_clock(lab.app))
    dead = lab.do(lab.app.jobs(state="dead")).jobs[0].id
    lab.do(lab.app.pause("mail"))
    lab.do(lab.app.config.set("poll", 2))
    lab.start_worker("media")
    film = lab.enqueue("encode_film", "a.mov", 500)
    later = lab.enqueue("resize_image", "a.raw", 1, delay=3600)
    made = lab.do(flow(lab.app, 6))
    group = lab.do(lab.app.errors.groups()).groups[0].fingerprint
    dialogs = {
        "#/jobs": ["Enqueue…"],
        f"#/jobs/{later}": ["Edit…", "Clone…"],
        "#/queues": ["Pause a task…", "Pause"],
        "#/schedules": ["New schedule…"],
        "#/workers": ["Control…"],
        "#/dead": ["Delete all"],
        "#/settings": ["Set…", "Add a webhook…"],
        "#/audit": ["Undo…"],
    }
    pages = ("#/", "#/jobs", *MORE, f"#/flows/{made}", "#/queues/default", f"#/errors/{group}", recent())
    for where in (*pages, *(f"#/jobs/{id}" for id in (dead, film, later))):
        look(page, lab, where)
        assert unreached(page) == [], where
        for name in dialogs.get(where, []):
            page.get_by_role("button", name=name, exact=True).first.focus()
            page.keyboard.press("Enter")
            # A bulk change counts its jobs first.
            page.get_by_role("dialog").locator("button:enabled").nth(1).wait_for()
            assert unreached(page) == [], (where, name)
            page.keyboard.press("Escape")
            page.get_by_role("dialog").wait_for(state="detached")
    page.evaluate("document.querySelector('.tool').tabIndex = -1")
    assert len(unreached(page)) == 1, "this test finds a control that is not reached"


def unreached(page):
    """The controls of the dialog, else of the page, that Tab does not reach, or where the focus is not seen."""
    controls = page.evaluate(CONTROLLED)
    assert len(controls) > 1
    page.evaluate("document.activeElement.blur()")
    reached = set()
    for _ in range(len(controls) + 30):
        page.keyboard.press("Tab")
        at = page.evaluate("document.activeElement.dataset.control ?? null")
        if at is not None and page.evaluate(FOCUSED)[1]:
            reached.add(int(at))
    return [text for at, text in enumerate(controls) if at not in reached]


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
