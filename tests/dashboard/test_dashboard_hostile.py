"""Hostile strings in every displayed field: none is executed, none breaks the layout."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from holdfast.app import parts_of
from holdfast.core.job import State
from holdfast.core.lifecycle import Outcome
from holdfast.core.operations import Ask, Holder, Note, Output
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
LOOK = (Path(__file__).parent / "hostile.js").read_text()
LONG = "A" * 1_000_000
WIDE = "W" * 120
"""A name of maximum length without a line break opportunity."""


@pytest.mark.extended
def test_no_string_runs_or_breaks_the_layout(lab, make_page):
    ids = lab.do(hostile(lab))
    whole = [f"#/jobs/{quote(id, safe='')}" for id in ids]
    for width in (1280, 390):
        page = make_page(viewport={"width": width, "height": 900})
        for where in ("#/", "#/jobs", "#/jobs?text=%3Cscript", "#/queues", "#/workers", "#/dead", "#/errors", *whole):
            look(page, lab, where)
            page.wait_for_timeout(50)
            found = page.evaluate(LOOK)
            assert found == {"ran": None, "wide": [], "foreign": [], "links": []}, (width, where)


async def hostile(lab):
    """A job per string, in the states that show the most, with the string in every field that accepts it."""
    app = lab.app
    ids = []
    for number, text in enumerate((*MARKUP, *SIGNS, LONG, WIDE)):
        name = text if text in MARKUP or text == WIDE else "plain"
        holder = Holder(f"{text[:400]}:{number}:1", 300.0, "worker", text[:300], 1, (name,), (name,), 3, text[:50], 1)
        handle = await app.submit(
            name,
            payload(text),
            json=True,
            queue=name,
            id=f"{number} {name}",
            key=f"{number} {name}" if name != "plain" else None,
            tags=[name],
            meta={text[:100]: text[:1000]},
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
    return ids


def payload(text):
    return msgspec.json.encode({text[:100] or "x": text, "list": [text[:500], {"deep": text[:500]}]})


async def take(app, holder, name):
    ask = Ask(holder, (name,), 1, parts_of(app).runtime.entropy.token(), None)
    answers = await session_of(app).store.write(Batch(asks=[ask]))
    return answers.asks[0].records[0]


def notes(record, text):
    progress = msgspec.json.encode({"done": 3, "total": 7, "note": text[:2000]})
    printed = Output(0, f"{text}\n{text[:1000]}".encode(), 1 << 20)
    note = Note(
        record.id, record.seq, record.fence, record.token,
        progress=progress, checkpoint=msgspec.json.encode(text[:5000]), saves=1, pid=77, output=printed,
    )  # fmt: skip
    return Batch(notes=[note])


async def end(app, record, text, *, dead):
    died = Outcome.dead(f"{text}\nsecond line {text[:100]}", f"Traceback\n  {text}")
    await parts_of(app).claims.settle(
        record, died if dead else Outcome.succeeded(msgspec.json.encode({text[:100]: text[:100_000]}))
    )
    assert (await app.job(record.id)).state in (State.DEAD, State.SUCCEEDED)
