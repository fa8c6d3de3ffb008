"""Orders with ids of a segment and invoices with serial numbers of the day, on the database of your choice.

    python orders.py MILL [COUNT] [PAUSE_MS]       python orders.py sqlite:shop.db 5

Run it twice at once: no order comes twice. Stop the database under it: it goes on from memory.
"""

import collections
import sys
import time

import keymill

config, count, pause_ms, *_ = [*sys.argv[1:], "5", "0"]
errors: collections.Counter[str] = collections.Counter()

with keymill.open(config) as mill:
    orders = mill.segment("orders")
    invoices = mill.serial("invoice", "number", date="yyyyMMdd", number="00000000")
    for _ in range(int(count)):
        try:
            print(f"order {orders.next()}, invoice {invoices.next()}", flush=True)
        except keymill.KeymillError as error:
            errors[error.code] += 1
        time.sleep(float(pause_ms) / 1000)

print(f"errors: {dict(errors) or 'none'}", file=sys.stderr)
