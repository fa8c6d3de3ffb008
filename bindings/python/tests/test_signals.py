"""What the program blocks stays blocked, and a forked child that only asks starts nothing."""

import subprocess
import sys
import textwrap


def run(program, *arguments):
    """A process of its own: a signal that is not held back would end it."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, (run.returncode, run.stdout, run.stderr)


def test_a_signal_that_main_blocks_ends_no_process(sqlite):
    run(
        """
        import os, signal, sys, keymill
        mill = keymill.open(sys.argv[1])
        orders = mill.segment("orders", step=10, deadline="60s")
        orders.next()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        for _ in range(20):
            os.kill(os.getpid(), signal.SIGUSR2)
            # `init` runs on a thread of its own, and the keeper is woken.
            mill.init()
            orders.take(25)
            assert signal.sigpending() == {signal.SIGUSR2}
            assert signal.sigtimedwait({signal.SIGUSR2}, 20).si_signo == signal.SIGUSR2
        mill.close()
        """,
        sqlite,
    )


def test_a_child_that_asks_whether_a_mill_is_closed_starts_no_thread(sqlite):
    run(
        """
        import os, sys, warnings, keymill
        warnings.simplefilter("ignore")
        mill = keymill.open(sys.argv[1])
        orders = mill.segment("orders", deadline="60s")
        orders.next()
        child = os.fork()
        if child == 0:
            threads = lambda: len(os.listdir("/proc/self/task"))
            before = threads()
            assert not mill.closed
            repr(mill), repr(orders), mill.metrics()
            assert threads() == before == 1, threads()
            assert orders.next() > 1
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        mill.close()
        """,
        sqlite,
    )
