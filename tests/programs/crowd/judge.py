"""What the logs of the programs say (`crowd.py` tells their lines), and whether the shards and all that was read agree with it.

A write is *acknowledged*; or it is not, and *may be there* all the same, because a commit got no answer or its program was killed; or it was surely
*undone*. Of each id:

    lost        the state of an acknowledged write, or of a later one, is missing: from a shard, from a plain read that began after it,
                or from what a later write has found
    twice       two acknowledged writes began from one state
    vanished    a write did not find what a plain read had shown before it
    undone      a state that was undone was seen
    torn        rows of one id that do not fit each other
"""

import bisect
import collections
from dataclasses import dataclass, field

ACKNOWLEDGED, MAYBE, UNDONE = "acknowledged", "maybe", "undone"


@dataclass
class Try:
    """One run of a work: what it has found, and what it leaves."""

    found: tuple
    counter: int
    token: str
    state: str
    fate: str = MAYBE
    began: int = 0
    ended: int = 0


@dataclass
class Id:
    tries: dict = field(default_factory=dict)
    reads: list = field(default_factory=list)

    def acknowledged(self):
        return [one for one in self.tries.values() if one.fate == ACKNOWLEDGED]

    def deletes(self):
        return [one for one in self.tries.values() if one.state == "gone" and one.fate != UNDONE]


class Log:
    """One file, which may still grow."""

    def __init__(self, path):
        self.path, self.at, self.holds, self.has_written = path, 0, {}, set()
        # Of each worker, the runs of its present write.
        self.open = collections.defaultdict(list)

    def more(self):
        if not self.path.exists():
            return []
        with open(self.path, "rb") as file:
            file.seek(self.at)
            whole = file.read()
        whole = whole[: whole.rfind(b"\n") + 1]
        self.at += len(whole)
        return whole.decode().splitlines()


class History:
    def __init__(self):
        self.ids = collections.defaultdict(Id)
        self.torn, self.refusals, self.acknowledged, self.waits = [], collections.Counter(), collections.Counter(), []

    def follow(self, log, program):
        """Reads what was added to a log."""
        for line in log.more():
            verb, *words = line.split(" ")
            if verb == "try":
                worker, id, was, was_token, counter, token, state = words
                found = (None if was == "-" else int(was), was_token)
                one = Try(found, int(counter), token, state)
                self.ids[int(id)].tries[token] = one
                self._undo(log.open[worker])
                log.open[worker].append(one)
            elif verb == "ack":
                worker, id, counter, token, began, ended = words
                one = self.ids[int(id)].tries[token]
                one.fate, one.began, one.ended = ACKNOWLEDGED, int(began), int(ended)
                log.open[worker].clear()
                self.acknowledged[program] += 1
                # The first write of a worker loads its code and opens its connections.
                if worker in log.has_written:
                    self.waits.append((program, one.began, one.ended))
                log.has_written.add(worker)
            elif verb == "no":
                worker, _, began, ended, sure, code, *said = words
                log.has_written.add(worker)
                for one in log.open[worker]:
                    one.began, one.ended = int(began), int(ended)
                if sure == "sure":
                    self._undo(log.open[worker])
                log.open[worker].clear()
                self.refusals[sure, code, " ".join("…" if any(c.isdigit() for c in word) else word for word in said)[:110]] += 1
            elif verb == "read":
                _, id, counter, token, began, ended = words
                self.ids[int(id)].reads.append((None if counter == "-" else int(counter), token, int(began), int(ended)))
            elif verb == "hold":
                log.holds[words[0]] = words[1]
            else:
                self.torn.append(f"{program}: {line}")

    @staticmethod
    def _undo(runs):
        """A work that runs again, or whose write is refused, has left nothing."""
        for one in runs:
            one.fate = UNDONE

    def faults(self):
        """What is wrong with all that was found and read."""
        for line in self.torn:
            yield "torn", line
        for id, written in self.ids.items():
            for fault, what in faults_of(written):
                yield fault, f"id {id}: {what}"

    def faults_of_shard(self, name, rows):
        """What is wrong with the rows of a shard while no write is under way: of each id its counter, token, state and items."""
        for id, written in self.ids.items():
            newest = max(written.acknowledged(), key=lambda one: one.counter, default=None)
            where = f"id {id} in {name}"
            if id not in rows:
                if newest and not any(one.counter >= newest.counter for one in written.deletes()):
                    yield "lost", f"{where} is not there; acknowledged was {newest}"
                continue
            counter, token, state = rows[id]
            wrote = written.tries.get(token)
            if wrote is None or wrote.fate == UNDONE or (wrote.counter, wrote.state) != (counter, state):
                yield "undone", f"{where} is {rows[id]}; of this token is {wrote}"
            if newest and (counter < newest.counter or counter == newest.counter and token != newest.token):
                yield "lost", f"{where} is {rows[id]}; acknowledged was {newest}"


class Highest:
    """The highest counter of events that ended before a time."""

    def __init__(self, events):
        self.times, self.counters, highest = [], [], 0
        for ended, counter in sorted(events):
            highest = max(highest, counter)
            self.times.append(ended)
            self.counters.append(highest)

    def before(self, time):
        at = bisect.bisect_left(self.times, time)
        return self.counters[at - 1] if at else 0


def faults_of(written):
    acknowledged, deletes = written.acknowledged(), written.deletes()
    known = Highest((one.ended, one.counter) for one in acknowledged)
    shown = Highest((ended, counter) for counter, _, _, ended in written.reads if counter)
    counters = collections.Counter(one.counter for one in acknowledged)
    found = collections.Counter(one.found for one in acknowledged if one.found[0])
    for what, count in [*counters.items(), *found.items()]:
        if count > 1:
            yield "twice", f"{count} acknowledged writes of {what}"

    def seen(counter, token, ended, least, fault, what):
        """A state that was seen until `ended`, and may not be older than `least`."""
        if counter is None:
            if least and not any(one.counter >= least and one.began <= ended for one in deletes):
                yield fault, f"{what} found nothing after {least}, and no delete"
            return
        wrote = written.tries.get(token)
        if wrote is None or wrote.fate == UNDONE or wrote.counter != counter or wrote.state == "gone":
            yield "undone", f"{what} found {counter} {token}; of this token is {wrote}"
        if counter < least:
            yield fault, f"{what} found {counter} {token} after {least}"

    for one in acknowledged:
        yield from seen(*one.found, one.ended, known.before(one.began), "lost", f"the write {one}")
        yield from seen(*one.found, one.ended, shown.before(one.began), "vanished", f"the write {one}")
        if one.found[0] is not None and one.counter != one.found[0] + 1:
            yield "twice", f"{one} does not follow what it has found"
    for counter, token, began, ended in written.reads:
        yield from seen(counter, token, ended, known.before(began), "lost", f"a read at {began}")
