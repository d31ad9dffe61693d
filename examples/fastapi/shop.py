"""A shop that confirms orders in the background.

uvicorn shop:web          the shop, a worker in the same process, the dashboard on /queue/ (user admin, password secret)
python -m pytest          its tests
"""

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from holdfast import Holdfast, JobNotFound, Worker
from holdfast.contrib.fastapi import HoldfastDep, dashboard, lifespan

URL = os.environ.get("SHOP_URL", "sqlite+aiosqlite:///shop.db")
"""The database of the orders and of the jobs; or postgresql+asyncpg://…"""
PASSWORD = os.environ.get("SHOP_PASSWORD", "secret")

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


@web.get("/jobs/{job_id}")
async def job(job_id: str, queue: HoldfastDep) -> dict[str, Any]:
    """Whether an order is confirmed."""
    try:
        found = await queue.job(job_id)
    except JobNotFound:
        raise HTTPException(404) from None
    return {"state": found.state, "result": found.result}
