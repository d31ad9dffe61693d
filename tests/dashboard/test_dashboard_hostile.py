"""Hostile strings in every displayed field: none is executed, none breaks the layout."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote, urlencode

import msgspec
import pytest

from holdfast import Flow, Worker
from holdfast.app import parts_of
from holdfast.core.job import State
from holdfast.core.lifecycle import Outcome
from holdfast.core.operations import Ask, Holder, Note, Output
from holdfast.http import tokens
from holdfast.store.protocol import Batch
from support.browser import look
from support.inside import session_of

MARKUP = (
    "<script>window.ran = 1</script>",
    "<img src=x onerror='window.ran = 1'>",
    '"><svg onload=alert(1)>',
    "javascript:window.ran=1",
    "' onmouseover='window.ran=1",
    "</title></style></textarea><iframe src=javascript:alert(1)>",
    "{{constructor.constructor('window.ran=1')()}}",
    "${window.ran=1}",
    "%3Cscript%3Ewindow.ran=1%3C/script%3E",
    "/../../#/jobs?x=<b>&y=%",
)
"""Printable, so they are valid names."""
SIGNS = (
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "a\u202egnp.exe",
    "\u2066\u2067\u2068x",
    "z\u200b\u200dw\ufeff",
    "\ttab\r\nline\x08",
)
NUL = "a\x00b <b>\x00\x00</b>"
"""Only in output, streams, errors and tracebacks: JSON values, names and search texts with NUL are refused."""
TOKEN = "a-long-enough-token"
LOOK = (Path(__file__).parent / "hostile.js").read_text()
LONG = "A" * 1_000_000
WIDE = "W" * 120
"""A name of maximum length without a line break opportunity."""


@pytest.mark.extended
def test_no_string_runs_or_breaks_the_layout(lab, make_page):
    ids = lab.do(hostile(lab))
    whole = [f"#/jobs/{quote(id, safe='')}" for id in ids]
    whole += [f"#/errors/{one.fingerprint}" for one in lab.do(lab.app.errors.groups()).groups]
    now = datetime.now(UTC)
    span = {"start": (now - timedelta(minutes=10)).isoformat(), "end": (now + timedelta(minutes=1)).isoformat()}
    whole += [f"#/incident?{urlencode(span)}", "#/incident?start=%3Cscript%3E&end=%00"]
    for width in (1280, 390):
        page = make_page(viewport={"width": width, "height": 900})
        for where in (
            "#/",
            "#/jobs",
            "#/jobs?text=%3Cscript",
            "#/jobs?text=a%00b",
            "#/queues",
            "#/workers",
            "#/dead",
            "#/errors",
            "#/audit",
            *whole,
        ):
            look(page, lab, where)
            page.wait_for_timeout(50)
            found = page.evaluate(LOOK)
            assert found == {"ran": None, "wide": [], "foreign": [], "links": []}, (width, where)


@pytest.mark.extended
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_names_and_errors_of_flows_are_text(lab, make_page):
    ids = lab.do(hostile_flows(lab.app))
    for width in (1280, 390):
        page = make_page(viewport={"width": width, "height": 900})
        page.goto(lab.address)
        page.evaluate("text => localStorage.setItem('holdfast.filters', text)", saved())
        palette = [*MARKUP[:2], *SIGNS[:2]] if width == 1280 else []
        queues = (f"#/queues/{quote(name, safe='')}" for name in (MARKUP[0], WIDE))
        for where in ("#/flows", *(f"#/flows/{id}" for id in ids), *queues, "#/jobs", "#/"):
            look(page, lab, where)
            if where.endswith("-many"):
                page.locator(".box").first.click()
            assert page.evaluate(LOOK) == {"ran": None, "wide": [], "foreign": [], "links": []}, (width, where)
        for text in palette:
            page.keyboard.press("Control+k")
            page.get_by_role("combobox", name="Find").fill(text)
            page.get_by_role("option", name="Search jobs for").wait_for()
            found = page.evaluate(LOOK)
            assert (found["ran"], found["foreign"]) == (None, []), text
            page.keyboard.press("Escape")


@pytest.mark.extended
@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_settings_webhooks_and_tokens_are_text(make_lab, make_page, monkeypatch):
    monkeypatch.setenv("HOLDFAST_SECRET", "a-secret-of-all-processes-of-this-store")
    lab = make_lab(token=TOKEN)

    async def fill():
        for number, text in enumerate((*MARKUP, WIDE)):
            scope = {"queues": [text], "tasks": [text]}
            await tokens.create(parts_of(lab.app).records, ["read"], text[:100], created_by=text, **scope)
            await lab.app.webhooks.add(f"{number}{text}", f"https://example.com/{quote(text)}", **scope)

    lab.do(fill())
    for width in (1280, 390):
        page = make_page(viewport={"width": width, "height": 900})
        page.goto(f"{lab.address}/#/settings")
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Log in").click()
        for name in ("Webhooks", "Tokens"):
            page.get_by_role("region", name=name).locator("[data-row]").nth(len(MARKUP)).wait_for()
        assert page.evaluate(LOOK) == {"ran": None, "wide": [], "foreign": [], "links": []}, width
        page.tolerate("status of 401")  # the browser logs the 401 before the login


def saved():
    """Saved filters with hostile names, and some that this page would never write."""
    good = [{"name": text, "hash": "#/jobs?state=dead"} for text in (*MARKUP, *SIGNS, WIDE)]
    bad = [{"name": "x", "hash": "javascript:window.ran=1"}, {"name": 1, "hash": "#/jobs?"}, None, 7]
    return msgspec.json.encode(good + bad).decode()


async def hostile_flows(app):
    """A flow with each string as the names of the flow, its tasks and queues, and as errors; and one with many jobs."""
    ids = []
    for number, text in enumerate((*MARKUP, *SIGNS, WIDE, NUL)):
        name = text if text in MARKUP or text == WIDE else f"plain {number}"
        value = without_nul(text)

        async def fail(value: str, error: str = text) -> None:
            raise ValueError(error)

        task = app.task(fail, name=name, queue=name, max_attempts=1)
        made = Flow(name)
        first = [made.add(task, value) for _ in range(120 if text == WIDE else 2)]
        made.add(task, value).after(*first)
        ids.append((await app.enqueue_flow(made, id=f"{number}{'-many' if text == WIDE else ''}")).id)
        if number % 3:
            await Worker(app, [name], until_idle=True).run()
    return ids


async def hostile(lab):
    """A job per string, in the states that show the most, with the string in every field that accepts it."""
    app = lab.app
    ids = []
    for number, text in enumerate((*MARKUP, *SIGNS, NUL, LONG, WIDE, NUL)):
        name = text if text in MARKUP or text == WIDE else "plain"
        value = without_nul(text)
        holder = Holder(
            f"{value[:400]}:{number}:1", 300.0, "worker", value[:300], 1, (name,), (name,), 3, value[:50], 1,
            release=value[:100] if number % 2 else "",
        )  # fmt: skip
        handle = await app.submit(
            name,
            payload(value),
            json=True,
            queue=name,
            id=f"{number} {name}",
            key=f"{number} {name}" if name != "plain" else None,
            tags=[name],
            meta={value[:100]: value[:1000]},
            max_attempts=2,
        )
        ids.append(handle.id)
        if number % 4 == 3:
            continue  # waits
        await session_of(app).store.heartbeat([holder])
        record = await take(app, holder, name)
        await session_of(app).store.write(notes(record, text))
        if number % 4 != 2:
            await end(app, record, text, dead=number % 4 == 0)
    await app.timeseries.record_workers()
    gone = [one.id for one in await app.workers() if not one.jobs]
    await session_of(app).store.leave(gone)
    await app.timeseries.record_workers()
    assert len(await app.timeseries.ended_workers()) == len(gone) > 3
    return ids


def without_nul(text):
    return text.replace("\x00", "")


def payload(text):
    return msgspec.json.encode(
        {
            text[:100] or "x": text,
            "list": [text[:500], {"deep": text[:500]}],
            "rows": [{text[:100] or "x": text[:500], "n": n} for n in range(3)],
        }
    )


async def take(app, holder, name):
    ask = Ask(holder, (name,), 1, parts_of(app).runtime.entropy.token(), None)
    answers = await session_of(app).store.write(Batch(asks=[ask]))
    return answers.asks[0].records[0]


def notes(record, text):
    claim = (record.id, record.seq, record.fence, record.token)
    progress = msgspec.json.encode({"done": 3, "total": 7, "note": text[:2000]})
    printed = Output(0, f"{text}\n{text[:1000]}".encode(), 1 << 20)
    memory = msgspec.json.encode(text[:5000])
    emitted = Output(0, msgspec.json.encode(text[:5000]) + b"\n", 1 << 20, stream=True)
    return Batch(
        notes=[
            Note(*claim, progress=progress, checkpoint=memory, saves=1, pid=77, output=printed),
            Note(*claim, output=emitted),
        ]
    )


async def end(app, record, text, *, dead):
    died = Outcome.dead(f"{text}\nsecond line {text[:100]}", f"Traceback\n  {text}")
    await parts_of(app).claims.settle(
        record, died if dead else Outcome.succeeded(msgspec.json.encode({text[:100]: text[:100_000]}))
    )
    assert (await app.job(record.id)).state in (State.DEAD, State.SUCCEEDED)
