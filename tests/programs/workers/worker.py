"""A process that takes for ever: CONFIG SPEC LOG. One line an id, each written before the next is taken."""

import os
import sys
import time

import keymill

config, spec, path = sys.argv[1:]
log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
mill = keymill.open(config)
source = mill.source(spec)
business = spec.startswith("business:")
serial = spec.startswith("serial:")
turn = 0
while True:
    many = turn % 3 == 0 and not serial
    if business:
        ids = source.take(turn % 30, 20) if many else [source.next(f"buyer-{turn % 9}")]
    else:
        ids = source.take(20) if many else [source.next()]
    os.write(log, "".join(f"{id}\n" for id in ids).encode())
    time.sleep(0.0001)  # thousands of turns a second; more would only be counted
    turn += 1
