"""The application ``keymill.django``."""

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import pre_migrate

from . import _mill
from ._checks import check_applications, check_settings, check_specs
from ._fields import create_tables


class KeymillConfig(AppConfig):
    name = "keymill.django"
    label = "keymill"
    verbose_name = "keymill"

    def ready(self):
        _mill.remember()
        checks.register(check_settings)
        checks.register(check_specs, checks.Tags.models)
        checks.register(check_applications, checks.Tags.models)
        pre_migrate.connect(create_tables, sender=self, dispatch_uid="keymill.django")
