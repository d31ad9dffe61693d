"""Flows: the list with progress, the graph with states and times, groups, the critical path, retry and cancel."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from holdfast import Flow
from support.browser import look

pytestmark = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


def tasks(lab):
    @lab.app.task
    async def one(number: int) -> int:
        return number + 1

    @lab.app.task(max_attempts=1)
    async def fragile(number: int) -> int:
        if lab.broken:
            raise ValueError("no table in page 7")
        return number

    lab.broken = True
    return one, fragile


def test_a_flow_and_its_jobs_link_to_each_other(lab, page):
    one, _ = tasks(lab)
    flow = Flow("numbers")
    flow.add(one, flow.add(one, 1))
    id = lab.do(lab.app.enqueue_flow(flow)).id
    look(page, lab, f"#/jobs/{id}.1")
    expect(page.locator(".why")).to_contain_text(f"It waits for job {id}.0 to end")
    page.get_by_role("link", name=id).first.click()
    expect(page.locator("h1")).to_have_text("numbers")
    expect(page.locator(".why")).to_contain_text("It waits for its jobs to end")
    expect(page.locator(".box")).to_have_count(2)
    page.locator(".box", has_text="blocked").click()
    expect(page.locator(".facts")).to_contain_text(f"{id}.1")
    look(page, lab, f"#/jobs/{id}")
    expect(page.get_by_text("Jobs of this flow")).to_be_visible()
    page.get_by_role("link", name="Show graph").click()
    expect(page.locator("h1")).to_have_text("numbers")
    lab.work_off()  # shown live
    expect(page.locator(".box .state", has_text="succeeded")).to_have_count(2)
    expect(page.locator(".job-title")).to_contain_text("succeeded")
    expect(page.get_by_role("button", name="Retry")).to_have_count(0)


def test_the_graph_has_layers_edges_times_and_the_critical_path(lab, page):
    one, _ = tasks(lab)
    flow = Flow("diamond")
    first = flow.add(one, 1)
    middle = [flow.add(one, first), flow.add(one, first)]
    flow.add(one, 0).after(*middle)
    id = lab.do(lab.app.enqueue_flow(flow)).id
    lab.work_off()
    look(page, lab, f"#/flows/{id}")
    boxes = page.locator(".box")
    expect(boxes).to_have_count(4)
    left = boxes.evaluate_all("all => all.map((e) => e.offsetLeft)")
    assert len(set(left)) == 3, left  # the two in the middle have the same depth
    expect(page.locator(".edge")).to_have_count(4)
    expect(page.locator(".edge.critical")).to_have_count(2)
    expect(page.locator(".box.critical")).to_have_count(3)
    assert all(re.search(r"succeeded\d[\d.]* m?s", text) for text in boxes.locator(".state").all_text_contents())
    path = page.get_by_role("region", name="Critical path")
    expect(path.locator("header")).to_contain_text("3 jobs in")
    expect(path.locator("li")).to_have_count(3)
    expect(path.locator("li").last).to_contain_text(re.compile(r"one 3waited .*, ran .*"))


def test_a_dead_job_is_retried_with_those_after_it_and_a_flow_is_cancelled(lab, page):
    one, fragile = tasks(lab)
    flow = Flow("crawl")
    flow.add(one, flow.add(fragile, 7))
    lab.do(lab.app.enqueue_flow(flow))
    lab.work_off()
    look(page, lab, "#/flows?state=dead")
    expect(page.locator("tbody tr")).to_contain_text("no table in page 7")
    page.get_by_role("link", name="crawl").click()
    dead = page.get_by_role("region", name="Dead jobs")
    expect(dead).to_contain_text("ValueError: no table in page 7")
    dead.get_by_role("button", name="Retry from here").click()
    expect(page.locator("#toasts")).to_contain_text("those after it run again")
    expect(page.locator(".box .state")).to_have_text([re.compile("queued"), re.compile("blocked")])
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel flow").click()
    expect(page.locator(".box .state", has_text="cancelled")).to_have_count(2)
    lab.broken = False
    page.get_by_role("button", name="Retry failed jobs").click()
    expect(page.locator("#toasts")).to_contain_text("Flow continues")
    lab.work_off()
    expect(page.locator(".job-title")).to_contain_text("succeeded")


def test_many_jobs_are_grouped_and_a_group_lists_its_jobs(lab, page):
    one, _ = tasks(lab)
    flow = Flow("import")
    many = [flow.add(one, number) for number in range(700)]
    flow.on_end(one, 0)
    for number in range(600):
        flow.add(one, 0).after(many[number])
    id = lab.do(lab.app.enqueue_flow(flow)).id
    lab.do(lab.app.cancel(f"{id}.5"))
    look(page, lab, "#/flows")
    expect(page.locator("tbody tr")).to_contain_text("of 1,301")
    look(page, lab, f"#/flows/{id}")
    boxes = page.locator(".box")
    expect(boxes).to_have_count(2)  # by depth
    expect(page.locator(".flow-numbers")).to_contain_text("of 1,301 jobs")
    expect(page.locator(".flow-numbers .legend")).to_contain_text("cancelled 2")
    boxes.first.focus()
    page.keyboard.press("Enter")
    listed = page.get_by_role("table", name="Jobs of one")
    expect(listed.locator("tbody tr")).to_have_count(50)
    expect(page.get_by_text("650 more are not listed.")).to_be_visible()
    listed.get_by_role("link", name="one 0", exact=True).click()
    expect(page.locator(".facts")).to_contain_text(f"{id}.0")


FIRST_WIDTH = """
const note = () => (window.firstWidth ??= document.querySelector(".sheet")?.offsetWidth);
new MutationObserver(() => queueMicrotask(note)).observe(document, { childList: true, subtree: true });
"""  # as it was first painted


def test_the_graph_is_zoomed_and_scrolled_by_keys_and_pointer(lab, page):
    one, _ = tasks(lab)
    flow = Flow("long")
    node = flow.add(one, 0)
    for _ in range(40):
        node = flow.add(one, node)
    id = lab.do(lab.app.enqueue_flow(flow)).id
    page.add_init_script(FIRST_WIDTH)
    look(page, lab, f"#/flows/{id}")
    graph = page.get_by_role("region", name="Graph of the flow")
    width = "e => e.firstElementChild.offsetWidth"
    before = graph.evaluate(width)
    assert page.evaluate("() => firstWidth") == before  # a key pressed at once zooms what is shown
    graph.focus()
    page.keyboard.press("+")
    page.wait_for_function(f"([e, w]) => ({width})(e) > w", arg=[graph.element_handle(), before])
    page.get_by_role("button", name="Fit").click()
    page.wait_for_function("e => e.firstElementChild.offsetWidth < 2000", arg=graph.element_handle())
    page.keyboard.press("Control+k")  # a dialog above it takes the keys
    page.keyboard.press("Escape")
    page.get_by_role("button", name="+", exact=True).click(click_count=3)
    box = graph.bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + 100, box["y"] + 5, steps=4)
    page.mouse.up()
    page.wait_for_function("e => e.scrollLeft > 100", arg=graph.element_handle())


SHAPES = """async () => {
  const { layers, criticalPath, arrange } = await import("/dashboard/graph.js");
  const node = (number, type, after) => ({
    number, type, after, status: "succeeded",
    started_at: new Date(number * 1000).toISOString(), finished_at: new Date(number * 1000 + 500).toISOString(),
  });
  const chain = Array.from({ length: 10000 }, (_, n) => node(n, "t", n ? [[n - 1, n - 1]] : []));
  const wide = Array.from({ length: 10000 }, (_, n) => node(n, `task ${n % 5000}`, n < 5000 ? [] : [[0, n - 1]]));
  const strange = [node(0, "a", [[0, 3]]), node(2, "b", [[7, 9], [0, 1]]), node(3, "c", [[5, 2]])];
  const size = ({ boxes, edges }) => [boxes.length, edges.length];
  return {
    chain: [layers(chain)[9999], criticalPath(chain).length, ...size(arrange(chain))],
    wide: [layers(wide)[5001], arrange(wide).boxes.length, Math.max(...arrange(wide).boxes.map((one) => one.row))],
    strange: [layers(strange), ...size(arrange(strange))],
  };
}"""


def test_shapes_of_ten_thousand_jobs_and_of_damaged_flows(lab, page):
    look(page, lab)
    found = page.evaluate(SHAPES)
    assert found["chain"] == [9999, 10000, 40, 39]
    assert found["wide"][0] == 2
    assert found["wide"][1] <= 480
    assert found["wide"][2] < 12
    assert found["strange"] == [[0, None, 1, 0], 3, 1]
