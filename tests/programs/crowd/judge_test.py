"""The judge finds each fault in a log that has one, and none in a log that has none: python -m unittest judge_test."""

import tempfile
import unittest
from pathlib import Path

from judge import History, Log

# An order comes, is changed by another worker, read, deleted, and comes back.
GOOD = """try 0 7 - - 100 a/0/1 1:1,2:2
ack 0 7 100 a/0/1 10 20
try 1 7 100 a/0/1 101 a/1/1 1:2,2:1
ack 1 7 101 a/1/1 15 30
read 0 7 101 a/1/1 31 32
try 0 7 101 a/1/1 102 a/0/2 gone
ack 0 7 102 a/0/2 40 50
read 1 7 - - 51 52
try 1 7 - - 200 a/1/2 none
ack 1 7 200 a/1/2 60 70
"""


class Judging(unittest.TestCase):
    def judge(self, text, rows=None):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "log")
            path.write_text(text)
            history = History()
            history.follow(Log(path), "python")
        return {fault for fault, _ in (history.faults() if rows is None else history.faults_of_shard("s1", rows))}

    def test_a_log_without_a_fault_has_none(self):
        self.assertEqual(self.judge(GOOD), set())
        self.assertEqual(self.judge(GOOD, {7: (200, "a/1/2", "none")}), set())

    def test_a_shard_without_what_was_acknowledged_has_lost_it(self):
        self.assertEqual(self.judge(GOOD, {}), {"lost"})
        self.assertEqual(self.judge(GOOD, {7: (101, "a/1/1", "1:2,2:1")}), {"lost"})

    def test_items_that_are_not_those_of_the_write_are_seen(self):
        self.assertEqual(self.judge(GOOD, {7: (200, "a/1/2", "1:1")}), {"undone"})

    def test_a_write_without_an_acknowledgement_may_be_there_or_not(self):
        for text in ["", "no 0 7 80 90 maybe STORE_UNAVAILABLE no answer\n"]:
            text = GOOD + "try 0 7 200 a/1/2 201 a/0/3 1:1\n" + text
            self.assertEqual(self.judge(text, {7: (200, "a/1/2", "none")}), set())
            self.assertEqual(self.judge(text, {7: (201, "a/0/3", "1:1")}), set())
            self.assertEqual(self.judge(text + "read 1 7 201 a/0/3 91 92\n"), set())

    def test_a_delete_without_an_acknowledgement_may_be_there_or_not(self):
        text = GOOD + "try 0 7 200 a/1/2 201 a/0/3 gone\n"
        self.assertEqual(self.judge(text, {}), set())
        self.assertEqual(self.judge(text, {7: (200, "a/1/2", "none")}), set())

    def test_what_was_undone_must_not_be_there(self):
        refused = GOOD + "try 0 7 200 a/1/2 201 a/0/3 1:1\nno 0 7 80 90 sure NOT_READY nothing was written\n"
        again = GOOD + "try 0 7 200 a/1/2 201 a/0/3 1:1\ntry 0 7 200 a/1/2 201 a/0/4 2:1\nack 0 7 201 a/0/4 80 90\n"
        for text in [refused, again]:
            self.assertEqual(self.judge(text + "read 1 7 201 a/0/3 91 92\n"), {"undone"})
            self.assertIn("undone", self.judge(text, {7: (201, "a/0/3", "1:1")}))

    def test_two_writes_of_one_state_have_lost_one(self):
        other = "try 0 7 100 a/0/1 101 b/0/1 1:1\nack 0 7 101 b/0/1 16 31\n"
        self.assertIn("twice", self.judge(GOOD + other))

    def test_a_read_or_a_write_that_misses_an_acknowledged_write_has_lost_it(self):
        self.assertEqual(self.judge(GOOD + "read 0 7 100 a/0/1 33 34\n"), {"lost"})
        self.assertEqual(self.judge(GOOD + "read 0 7 - - 33 34\n"), {"lost"})
        self.assertEqual(self.judge(GOOD + "read 0 7 - - 71 72\n"), {"lost"})
        self.assertIn("lost", self.judge(GOOD + "try 0 7 - - 300 b/0/1 none\nack 0 7 300 b/0/1 80 90\n"))

    def test_a_read_beside_a_write_may_see_either(self):
        self.assertEqual(self.judge(GOOD + "read 0 7 100 a/0/1 29 34\nread 0 7 101 a/1/1 16 18\n"), set())

    def test_a_write_that_misses_what_a_read_had_shown_has_seen_it_vanish(self):
        text = GOOD + "try 0 7 200 a/1/2 201 a/0/3 1:1\nno 0 7 80 85 maybe STORE_UNAVAILABLE no answer\nread 1 7 201 a/0/3 86 87\n"
        text += "try 1 7 200 a/1/2 201 a/1/3 none\nack 1 7 201 a/1/3 90 95\n"
        self.assertEqual(self.judge(text), {"vanished"})

    def test_rows_that_do_not_fit_are_torn(self):
        self.assertEqual(self.judge(GOOD + "WRONG 7 100 a/0/1\n"), {"torn"})

    def test_half_a_line_of_a_program_that_was_killed_is_no_line(self):
        self.assertEqual(self.judge(GOOD + "ack 0 7 3"), set())


if __name__ == "__main__":
    unittest.main()
