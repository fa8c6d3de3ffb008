"""``manage.py keymill init``, ``status`` and ``adopt``."""

from django.core.management.base import BaseCommand

import keymill
from keymill import _keymill

from ... import _mill


class Command(BaseCommand):
    help = "Creates keymill's tables, shows their sources, or puts sources above the rows that tables have."

    def add_arguments(self, parser):
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("init", help="create the tables that keymill needs")
        verbs.add_parser("status", help="show the sources")

    def handle(self, *args, verb, **options):
        if verb == "init":
            for statement in _mill.mill().init():
                self.stdout.write(statement)
        else:
            _keymill.command(["status", "--config", _mill.configuration()])
