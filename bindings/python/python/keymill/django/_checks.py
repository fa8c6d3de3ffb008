"""System checks: what is wrong is said when the program starts, with the model and the field."""

from os.path import normcase
from sysconfig import get_paths

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.utils.module_loading import import_string

import keymill

from . import _mill
from ._fields import KeymillAutoField, fields


def check_settings(app_configs=None, **kwargs):
    try:
        _mill.configuration()
    except (ImproperlyConfigured, keymill.KeymillError) as error:
        return [checks.Error(str(error), id="keymill.E001")]
    return []


def check_specs(app_configs=None, **kwargs):
    checked = [at for at in fields() if app_configs is None or at[0]._meta.app_config in app_configs]
    if not checked:
        return []
    # A mill of the check's own judges the specs: nothing is asked of the store.
    with keymill.open("memory:") as mill:
        return [error for model, field in checked for error in _check_spec(mill, model, field)]


def _check_spec(mill, model, field):
    spec = field.keymill_spec(model)
    kind = spec.partition(":")[0]
    if kind not in field.kinds:
        kinds = " or ".join(f"{known}:…" for known in field.kinds)
        return [checks.Error(f"a {type(field).__name__} takes {kinds}, not `{spec}`", obj=field, id="keymill.E002")]
    try:
        example = field._take(mill.source(spec))()
    except keymill.KeymillError as error:
        return [checks.Error(str(error), obj=field, id="keymill.E002")]
    longest = getattr(field, "max_length", None)
    if isinstance(example, str) and longest is not None and len(example) > longest:
        what = f"`{example}`, as `{spec}` writes it, has {len(example)} characters, and max_length is {longest}"
        return [checks.Error(what, obj=field, id="keymill.E003")]
    if isinstance(example, int) and example >= 1 << 63:
        return [checks.Error(f"ids of `{spec}` do not fit a BIGINT", obj=field, id="keymill.E003")]
    return []


def check_applications(app_configs=None, **kwargs):
    """Where every model is to have keys of keymill's, an application of the project's own may say otherwise: `startapp` of Django up to 5.2
    writes such a line."""
    if not issubclass(import_string(settings.DEFAULT_AUTO_FIELD), KeymillAutoField):
        return []
    installed = tuple(normcase(get_paths()[at]) for at in ("purelib", "platlib"))
    return [
        checks.Warning(
            f"its models take the database's own numbers, by `default_auto_field = {config.default_auto_field!r}` of its AppConfig",
            hint="Delete that line of apps.py: DEFAULT_AUTO_FIELD is keymill's. To keep the database's numbers, silence keymill.W001.",
            obj=config.label,
            id="keymill.W001",
        )
        for config in app_configs or apps.get_app_configs()
        if config._is_default_auto_field_overridden
        and not normcase(config.path).startswith(installed)
        and any(type(model._meta.pk) in (models.AutoField, models.BigAutoField) for model in config.get_models())
    ]
