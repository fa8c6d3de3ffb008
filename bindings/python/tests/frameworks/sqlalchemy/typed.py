"""Checked by mypy and pyright, never run."""

from sqlalchemy import BigInteger, MetaData, create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import keymill
import keymill.sqlalchemy


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(BigInteger, primary_key=True, default=keymill.lazy("segment:orders"))


mill: keymill.Mill = keymill.sqlalchemy.use(create_engine("sqlite://"), Base.metadata)
mill = keymill.sqlalchemy.use(create_async_engine("sqlite+aiosqlite://"), store="mysql://ids@db/ids")
statements: list[str] = keymill.sqlalchemy.init(MetaData())
kept: bool = keymill.sqlalchemy.include_name("orders", "table", {})
