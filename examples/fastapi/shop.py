"""A shop that confirms orders in the background, exports them all in long jobs with progress, and answers questions.

uvicorn shop:web          the shop, a worker in the same process, the dashboard on /queue/ (user admin, password secret)
python -m pytest          its tests
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse, HTMLResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import Context, Holdfast, Job, JobNotFound, Worker
from holdfast.contrib.fastapi import HoldfastDep, dashboard, lifespan, stream_response

URL = os.environ.get("SHOP_URL", "sqlite+aiosqlite:///shop.db")
"""The database of the orders and of the jobs; or postgresql+asyncpg://…"""
PASSWORD = os.environ.get("SHOP_PASSWORD", "secret")
EXPORTS = Path(os.environ.get("SHOP_EXPORTS", "exports"))
"""The folder of exported orders; with workers on several machines, one that they share."""
PAGE = int(os.environ.get("SHOP_PAGE", "100"))
"""Orders between two checkpoints of an export."""
PAUSE = float(os.environ.get("SHOP_PAUSE", "0.1"))
"""Seconds between two words of an answer."""

queue = Holdfast(URL)
engine = create_async_engine(URL)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]


@queue.task
def confirm(order_id: int) -> str:
    """Send the confirmation of an order."""
    return f"confirmed order {order_id}"


@queue.task(timeout=3600, unique="until_end")
async def export(ctx: Context) -> int:
    """Write all orders to a file, page by page. After a crash, the next attempt goes on behind the last whole page."""
    done, last, size = ctx.last_checkpoint or (0, 0, 0)
    async with AsyncSession(engine) as session:
        total = await session.scalar(select(func.count()).select_from(Order))
        while True:
            page = list(await session.scalars(select(Order).where(Order.id > last).order_by(Order.id).limit(PAGE)))
            if not page:
                return done
            text = "".join(f"{order.id},{order.item}\n" for order in page)
            size = await asyncio.to_thread(write_at, exported(ctx.job.id), size, text)
            done, last = done + len(page), page[-1].id
            await ctx.checkpoint([done, last, size])
            ctx.progress(done, total, "orders")


def exported(job_id: str) -> Path:
    return EXPORTS / f"{job_id}.csv"


def write_at(path: Path, position: int, text: str) -> int:
    """Write a text behind the first `position` bytes of a file, and drop what was there; the new size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.truncate(position)
        file.write(text.encode())
        return position + len(text.encode())


async def model(question: str) -> AsyncIterator[str]:
    """Stands for a language model: it answers word by word."""
    for word in f"You asked: {question} Our lamps are all of brass, and <b>none</b> of them flickers.".split():
        await asyncio.sleep(PAUSE)
        yield f"{word} "


@queue.task(timeout=300)
async def answer(ctx: Context, question: str) -> str:
    """Answer a question. Each word is emitted at once, so that the page shows it while the rest is being written."""
    words: list[str] = []
    async for word in model(question):
        words.append(word)
        await ctx.emit(word)
    return "".join(words)


@asynccontextmanager
async def database(_: FastAPI) -> AsyncIterator[None]:
    """The shop's own lifespan."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()


async def get_session() -> AsyncIterator[AsyncSession]:
    """A transaction for one request: committed before its response is sent, or rolled back."""
    async with AsyncSession(engine) as session, session.begin():
        yield session


SessionDep = Annotated[AsyncSession, Depends(get_session, scope="function")]


def admin(given: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())]) -> None:
    """Who may see and change jobs."""
    right = secrets.compare_digest(given.password.encode(), PASSWORD.encode())
    if given.username != "admin" or not right:
        raise HTTPException(401, headers={"WWW-Authenticate": "Basic"})


web = FastAPI(lifespan=lifespan(queue, database, worker=Worker))
web.include_router(dashboard(queue, dependencies=[Depends(admin)]), prefix="/queue")


@web.post("/orders", status_code=201)
async def order(item: str, session: SessionDep) -> dict[str, str | int]:
    """Store an order and the job that confirms it: both, or neither."""
    new = Order(item=item)
    session.add(new)
    await session.flush()  # gives it an id
    job = await confirm.using(connection=session).enqueue(new.id)
    if not item:
        raise HTTPException(422, "which item?")
    return {"order": new.id, "job": job.id}


@web.post("/exports", status_code=202)
async def start_export() -> dict[str, str]:
    """Begin an export; while one has not ended, its job is returned."""
    return {"job": (await export.enqueue()).id}


@web.get("/exports/{job_id}")
async def download(job_id: str, queue: HoldfastDep) -> FileResponse:
    """The file of an export that is complete."""
    found = await find(job_id, queue)
    if found.task != "export" or found.state != "succeeded":
        raise HTTPException(409, f"job {job_id} is no complete export: its state is {found.state}")
    return FileResponse(exported(job_id), media_type="text/csv")


@web.get("/ask", response_class=HTMLResponse)
async def ask() -> str:
    """A page that shows the answer to a question while it is being written."""
    return (Path(__file__).parent / "ask.html").read_text()


@web.post("/questions", status_code=202)
async def question(text: str) -> dict[str, str]:
    """Begin to answer a question."""
    return {"job": (await answer.enqueue(text)).id}


@web.get("/questions/{job_id}")
async def read_answer(job_id: str, request: Request, queue: HoldfastDep) -> Response:
    """The answer as server-sent events; a browser that reconnects gets the rest."""
    if (await find(job_id, queue)).task != "answer":
        raise HTTPException(404)
    return await stream_response(queue.handle(job_id), request)


@web.get("/jobs/{job_id}")
async def job(job_id: str, queue: HoldfastDep) -> dict[str, Any]:
    """How far a job is: whether an order is confirmed, how many orders are exported."""
    found = await find(job_id, queue)
    progress = found.progress and {"done": found.progress.done, "total": found.progress.total}
    return {"state": found.state, "progress": progress, "result": found.result}


@web.delete("/jobs/{job_id}", status_code=202)
async def cancel(job_id: str, queue: HoldfastDep) -> dict[str, bool]:
    """End a job that waits, or ask one that runs to stop; false if it has ended."""
    await find(job_id, queue)
    return {"cancelled": await queue.cancel(job_id)}


async def find(job_id: str, queue: Holdfast) -> Job:
    try:
        return await queue.job(job_id)
    except JobNotFound:
        raise HTTPException(404) from None
