"""A process that asks for ever and writes down each answer, an id or the code of an error: CONFIG SPEC LOG."""

import os
import select
import sys

import keymill

config, spec, path = sys.argv[1:]
log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
source = keymill.open(config).source(spec)
while True:
    try:
        answer = source.next()
    except keymill.KeymillError as error:
        answer = error.code
    os.write(log, f"{answer}\n".encode())
    select.select([], [], [], 0.002)  # libfaketime never ends a `time.sleep`
