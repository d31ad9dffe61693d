"""`holdfast flow`, as one types it."""

import subprocess
import sys

SHOP = """
from holdfast import Flow, Holdfast

app = Holdfast()


@app.task
def price(item: str) -> int:
    return len(item)


@app.task(max_attempts=1)
def total(prices: list[int]) -> int:
    raise ValueError("no change")


def order() -> str:
    flow = Flow("order")
    flow.add(total, [flow.add(price, item) for item in ("pen", "ink")])
    return app.sync.enqueue_flow(flow).id


if __name__ == "__main__":
    print(order())
"""


def test_a_flow_is_listed_and_shown(terminal):
    (terminal.folder / "shop.py").write_text(SHOP)
    assert "There are no flows" in terminal("flow", "list")
    made = subprocess.run(
        [sys.executable, "shop.py"], cwd=terminal.folder, env=terminal.env, capture_output=True, check=True
    )
    id = made.stdout.decode().strip()
    assert f"Flow {id} (order): blocked, 0 of 3 jobs have ended." in terminal("flow", "show", id)
    terminal("-A", "shop:app", "worker", "start", "--count", "1")
    terminal.until(lambda: terminal.json("flow", "show", id)["state"] == "dead", 30)
    shown = terminal("flow", "show", id)
    assert "3 of 3 jobs have ended" in shown
    assert "ValueError: no change" in shown
    [listed] = terminal.json("flow", "list", "--state", "dead")["flows"]
    assert (listed["id"], listed["jobs"]) == (id, 3)
    assert f"Flow {id} goes on" in terminal("retry", id)
    assert "is not a flow" in terminal("flow", "show", f"{id}.0", code=2)
