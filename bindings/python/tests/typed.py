"""What the type checkers read: every verb, with the types it has."""

from __future__ import annotations

import array
import asyncio
from collections.abc import Callable
from datetime import timedelta

import keymill


def numbers(source: keymill.Source[int]) -> int:
    total = source.next() + next(source) + sum(source.take(3)) + source.handle().next()
    now: int | None = source.try_next()
    source.fill(array.array("Q", bytes(80)))
    source.fill(memoryview(bytearray(80)).cast("Q"))
    for id in source:
        return total + id + (now or 0)
    return 0


async def later(source: keymill.Source[str]) -> list[str]:
    first: str = await asyncio.create_task(source.anext())
    async for text in source:
        return [first, text, *await source.take_async(3)]
    return []


def order_numbers(numbers: keymill.OrderNumbers, router: keymill.Router) -> list[int]:
    sealed: bytes = numbers.seal(5)
    short: int = numbers.with_version(numbers.version).seal8(5)
    text: str = numbers.seal_text(5)
    print(router.route_order_no(sealed).shard, router.route_order_no(short).gene, router.route_order_no(text).also)
    return [numbers.unseal(bytearray(sealed)), numbers.unseal_text(text), *numbers.unseal_all(numbers.seal_all([1, 2]))]


orders: keymill.Lazy[int] = keymill.lazy("segment:orders", step=1000)
numbers_of_serials: keymill.Lazy[str] = keymill.lazy("serial:t/c")


def declared(default: Callable[[], int]) -> int:
    return default()


async def soon() -> int:
    return await orders.anext() + sum(await orders.take_async(2))


with keymill.open("memory:") as mill:
    keymill.use(mill)
    total: int = orders() + orders.next() + next(orders) + sum(orders.take(2)) + declared(orders) + declared(keymill.lazy("segment:b"))
    first: str = numbers_of_serials()
    keyed: int = keymill.lazy("business:order").next("buyer-42")
    print(total, first, keyed, asyncio.run(soon()), orders.deconstruct()[0], keymill.shared().closed)
    keymill.use(None)
    numbers(mill.segment("orders", step=1000, deadline=timedelta(seconds=1)))
    numbers(mill.snowflake("tx", worker=5))
    serial = mill.serial("cust_info", "custid", date="yyyyMMdd", number="000000")
    text: str = serial.next()
    print(text, asyncio.run(later(serial)))
    any_kind = mill.source("segment:orders")
    numbers(any_kind)
    parts = any_kind.parse(5)
    print(parts.get("number"), any_kind.stats()["issued"], mill.metrics(), mill.closed)
    try:
        mill.segment("orders", nosuch=1)
    except keymill.ConfigError as error:
        code: str = error.code
        wait: float | None = error.retry_after
        print(code, wait, keymill.CODES[code], error.message)
