"""The command `keymill`: the code of the plain one, in the process of the interpreter."""

import os
import signal
import sys
from typing import NoReturn

from ._keymill import command


def main() -> NoReturn:
    # Python notes a signal and acts on it when its own code goes on, which is after the verb.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # A closed stream becomes the null device: the first file of the store would otherwise take its number, and the answers.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    sys.exit(command(sys.argv[1:]))
