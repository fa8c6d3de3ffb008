"""System checks: what is wrong is said when the program starts, with the model and the field."""

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured

import keymill

from . import _mill
from ._fields import _Takes


def check_settings(app_configs=None, **kwargs):
    try:
        _mill.configuration()
    except (ImproperlyConfigured, keymill.KeymillError) as error:
        return [checks.Error(str(error), id="keymill.E001")]
    return []


def check_specs(app_configs=None, **kwargs):
    found = []
    models = apps.get_models() if app_configs is None else [model for app in app_configs for model in app.get_models()]
    for model in models:
        for field in model._meta.local_fields:
            if not isinstance(field, _Takes):
                continue
            try:
                keymill.lazy(field.keymill_spec(model))
            except keymill.KeymillError as error:
                found.append(checks.Error(error.message, obj=field, id="keymill.E002"))
    return found
