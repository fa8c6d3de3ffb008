"""Fields whose values come from keymill."""

from threading import get_ident
from urllib.parse import quote
from weakref import ref

from django.apps import apps
from django.db import DatabaseError, connections, models, router, transaction
from django.db.models.fields import NOT_PROVIDED

from . import _mill
from ._mill import alias, mill


def table_of(model):
    """One name for a table, in whatever way it is written: without schema, quotes and letter case. So one table has one source."""
    return model._meta.db_table.rpartition(".")[2].strip(' "`[]').lower()


def _none():
    return None


class _Takes:
    """What the fields share: a value is taken when the row is inserted, and a value that is set is kept."""

    # How the spec of the model's table is made; `None`: there is no default.
    default_spec: "str | None" = None
    # What sources a field takes.
    kinds: "tuple[str, ...]" = ("segment", "snowflake")

    def contribute_to_class(self, cls, name, **kwargs):
        super().contribute_to_class(cls, name, **kwargs)
        # How an id is taken, with what says whether it is still right: an epoch, and a name that an entry has.
        self._at = (-1, {}, None, None)

    def keymill_spec(self, model):
        """The spec of the source, with the model's table in it."""
        return (self.spec or self.default_spec).replace("{table}", quote(table_of(model), safe="_-.$"))

    def deconstruct(self):
        name, path, args, kwargs = super().deconstruct()
        # Where it is imported from, as a migration says it.
        return name, path.replace(".django._fields.", ".django."), args, kwargs

    def _taken(self):
        epoch, entry, name, take = self._at
        # Tests give the entry another name, in place, and no signal tells it.
        if epoch != _mill.epoch or name is not entry.get("NAME"):
            take = self._found()
        return take()

    def _found(self):
        model = self.model
        using = _database_of(model)
        *right_for, source = _mill.found(self.keymill_spec(model), table_of(model), using, lambda: self._highest_there(model, using))
        self._at = (*right_for, self._take(source))
        return self._at[3]

    def _is_segment(self, model):
        return self.keymill_spec(model).startswith("segment:")

    def highest(self, model, using=None):
        """The highest number that the table has."""
        if not self._is_segment(model) or self.get_internal_type() == "CharField":
            return 0
        # The model's managers may leave rows out.
        rows = models.QuerySet(model, using=using or router.db_for_write(model))
        return rows.aggregate(highest=models.Max(self.attname))["highest"] or 0

    def _highest_there(self, model, using):
        """The highest number in the database to which the model's writes go; 0 where a project of several databases has the table in another
        one, or a router does not say."""
        if len(connections.settings) == 1:
            return self.highest(model, using)
        if using is None:
            return 0
        try:
            # A statement that fails would end the program's transaction.
            with transaction.atomic(using=using):
                return self.highest(model, using)
        except DatabaseError:
            if model._meta.db_table in connections[using].introspection.table_names():
                raise
            return 0

    def _take(self, source):
        return source.next

    def pre_save(self, model_instance, add):
        value = super().pre_save(model_instance, add)
        if add and value in self.empty_values:
            value = self._taken()
            setattr(model_instance, self.attname, value)
        return value


def _database_of(model):
    """The database to which the model's writes go; ``None`` where the project's router refuses a model outside of its blocks, by an exception of
    its own."""
    try:
        return router.db_for_write(model)
    except Exception:
        return None


def fields():
    """The fields of all models, each with its model."""
    return [
        (model, field) for model in apps.get_models() for field in model._meta.local_fields if isinstance(field, _Takes)
    ]


class _TakesKey(_Takes):
    """The same for a primary key. A row that gets its key here is inserted, without an update before it."""

    # The thread, the instance and the key that was taken for it last.
    _fresh = (0, _none, None)
    # Django's record of migrations has the database's numbers: it is written before keymill's tables are there.
    _is_exempt = False

    def contribute_to_class(self, cls, name, **kwargs):
        super().contribute_to_class(cls, name, **kwargs)
        self._is_exempt = cls._meta.app_label == "migrations"

    def get_pk_value_on_save(self, instance):
        if self._is_exempt:
            return None
        value = self._taken()
        self._fresh = (get_ident(), ref(instance), value)
        return value

    # `save` inserts at once where the key has a default. A key that the program has set may be of a row that is there.
    @property
    def default(self):
        thread, instance, value = self._fresh
        if thread != get_ident():
            return NOT_PROVIDED
        instance = instance()
        if instance is not None and instance._state.adding and getattr(instance, self.attname) == value:
            return _none
        return NOT_PROVIDED

    @default.setter
    def default(self, value):
        pass

    def pre_save(self, model_instance, add):
        return getattr(model_instance, self.attname)


class KeymillAutoField(_TakesKey, models.BigAutoField):
    """The key of every model, by ``DEFAULT_AUTO_FIELD`` or an application's ``default_auto_field``: ids of the segment of its table."""

    default_spec = "segment:{table}"
    spec = None

    def deconstruct(self):
        name, _, args, kwargs = super().deconstruct()
        # Its columns are the same, so a project that changes to it has nothing to migrate.
        return name, "django.db.models.BigAutoField", args, kwargs


class KeymillField(_TakesKey, models.BigIntegerField):
    """A number that is taken when the row is inserted: ``KeymillField("segment:orders", primary_key=True)``. Without a spec it is the segment
    of the model's table."""

    default_spec = "segment:{table}"

    def __init__(self, spec=None, *args, **kwargs):
        self.spec = spec
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)

    def deconstruct(self):
        name, path, args, kwargs = super().deconstruct()
        if self.spec is not None:
            args = [self.spec, *args]
        return name, path, args, kwargs

    def pre_save(self, model_instance, add):
        if self.primary_key:
            return super().pre_save(model_instance, add)
        return _Takes.pre_save(self, model_instance, add)


class _TextField(_Takes, models.CharField):
    def __init__(self, spec, *args, **kwargs):
        self.spec = spec
        kwargs.setdefault("editable", False)
        super().__init__(*args, **kwargs)

    def deconstruct(self):
        name, path, args, kwargs = super().deconstruct()
        return name, path, [self.spec, *args], kwargs

    def get_pk_value_on_save(self, instance):
        return self._taken()


class SerialNumberField(_TextField):
    """A serial number: ``SerialNumberField("serial:orders/no?number=000000", max_length=20, unique=True)``."""

    kinds = ("serial",)


class KeymillTextField(_TextField):
    """An id as a text: ``KeymillTextField("segment:users?text=crockford&prefix=usr_", max_length=30)``."""

    def _take(self, source):
        return source.next_text


def init():
    """Creates the tables that the sources of all models need; answers with the statements."""
    return mill().init(*{field.keymill_spec(model) for model, field in fields()})


def create_tables(using, **kwargs):
    """Before a database is migrated, where the mill's tables are in it."""
    if using == alias():
        init()
