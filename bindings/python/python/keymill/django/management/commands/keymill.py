"""``manage.py keymill init``, ``status`` and ``adopt``."""

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError

from keymill import _keymill

from ... import _mill
from ..._adopt import adopt
from ..._fields import init


class Command(BaseCommand):
    help = "Creates keymill's tables, shows the sources, or puts the sources of models above the rows that their tables have."

    def add_arguments(self, parser):
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("init", help="create the tables that keymill needs")
        verbs.add_parser("status", help="show the sources")
        adopts = verbs.add_parser("adopt", help="put the source of a model above the keys that its table has")
        adopts.add_argument("models", nargs="+", metavar="app.Model")
        adopts.add_argument("--database", help="the entry of DATABASES with the table; otherwise the entry to which the model is written")
        adopts.add_argument("--dry-run", action="store_true", help="show it, and change nothing")

    def handle(self, *args, verb, **options):
        if verb == "init":
            for statement in init():
                self.stdout.write(statement)
        elif verb == "status":
            if _keymill.command(["--mill", _mill.configuration(), "status"]) != 0:
                raise CommandError("the store cannot be shown")
        else:
            for name in options["models"]:
                try:
                    model = apps.get_model(name)
                except (LookupError, ValueError) as error:
                    raise CommandError(str(error)) from None
                highest = adopt(model, options["dry_run"], options["database"])
                self.stdout.write(f"{model._meta.label}: the highest key is {highest}")
