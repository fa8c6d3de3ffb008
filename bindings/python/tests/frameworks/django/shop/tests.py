import io
import os
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest import mock

import django
from django import forms
from django.contrib.auth.models import User
from django.core import serializers
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import IntegrityError, connection, connections, models, transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase, override_settings

from keymill import StoreError
from keymill.django import KeymillField, _mill
from keymill.django._checks import check_applications, check_settings

from .models import Buyer, Order, Rush, Ticket


class Keys(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.first = Buyer.objects.create(name="first")

    def test_the_tests_have_a_store_of_their_own(self):
        name = str(connections["default"].settings_dict["NAME"])
        if "SHOP_TEST_FILE" in os.environ:
            self.assertEqual(_mill.mill().store, f"sqlite:{name}.keymill")
        elif connection.vendor == "sqlite":
            self.assertEqual(_mill.mill().store, "memory:")
        else:
            self.assertIn("test_", name)
            self.assertTrue(_mill.mill().store.split("?")[0].endswith(f"/{name}"), _mill.mill().store)

    def test_a_row_that_gets_its_key_is_inserted_at_once(self):
        with self.assertNumQueries(1):
            buyer = Buyer.objects.create(name="ann")
        with self.assertNumQueries(1):
            buyer.save()
        with self.assertNumQueries(1):
            Buyer(name="bob").save()
        self.assertGreater(buyer.pk, self.first.pk)

    def test_a_key_that_is_set_is_kept_and_may_be_of_a_row_that_is_there(self):
        Buyer(pk=self.first.pk, name="renamed").save()
        self.assertEqual(Buyer.objects.get().name, "renamed")
        self.assertEqual(Buyer.objects.create(pk=7_000_000, name="x").pk, 7_000_000)

    def test_a_key_that_is_set_after_a_save_that_failed_is_of_the_row_that_is_there(self):
        buyer = Buyer(name=None)
        with self.assertRaises(IntegrityError), transaction.atomic():
            buyer.save()
        buyer.pk, buyer.name = self.first.pk, "renamed"
        buyer.save()
        self.assertEqual(Buyer.objects.get().name, "renamed")

    def test_rows_that_a_manager_leaves_out_have_keys_too(self):
        hides = models.Manager()
        hides.model, hides.get_queryset = Buyer, Buyer.objects.none
        with mock.patch.object(Buyer._meta, "base_manager", hides):
            self.assertEqual(Buyer._base_manager.count(), 0)
            self.assertEqual(Buyer._meta.pk.highest(Buyer), self.first.pk)

    def test_many_rows_are_one_insert(self):
        with self.assertNumQueries(1):
            made = Buyer.objects.bulk_create([Buyer(name=str(n)) for n in range(100)])
        keys = [buyer.pk for buyer in made]
        self.assertEqual(keys, list(range(keys[0], keys[0] + 100)))
        self.assertEqual(Buyer.objects.filter(pk__in=keys).count(), 100)

    def test_many_rows_with_numbers_and_texts(self):
        orders = Order.objects.bulk_create([Order(buyer=self.first) for _ in range(3)])
        self.assertEqual(len({order.no for order in orders}), 3)
        tickets = Ticket.objects.bulk_create([Ticket() for _ in range(3)])
        self.assertEqual(len({ticket.pk for ticket in tickets} | {ticket.rank for ticket in tickets}), 6)

    def test_an_instance_that_is_never_saved_spends_no_number(self):
        before = Buyer.objects.create(name="a").pk
        for _ in range(50):
            Buyer(name="never")
        self.assertEqual(Buyer.objects.create(name="b").pk, before + 1)

    def test_numbers_and_texts(self):
        order = Order.objects.create()
        self.assertRegex(order.no, r"^20\d{6}\d{6}$")
        order.save()
        self.assertEqual(Order.objects.get(pk=order.pk).no, order.no)
        self.assertRegex(Ticket.objects.create().pk, r"^tic_[0-9a-z]{13}$")

    def test_get_or_create_and_update_or_create(self):
        order, made = Order.objects.get_or_create(no="x", buyer=self.first)
        self.assertTrue(made)
        self.assertEqual(Order.objects.get_or_create(no="x")[0].pk, order.pk)
        self.assertEqual(Order.objects.update_or_create(no="x", defaults={"buyer": None})[0].pk, order.pk)

    def test_a_child_table_has_the_keys_of_its_parent(self):
        rush = Rush.objects.create(hours=2)
        self.assertEqual(Order.objects.get(pk=rush.pk).rush, rush)

    def test_fixtures_keep_their_keys(self):
        text = serializers.serialize("json", Order.objects.bulk_create([Order(), Order()]))
        Order.objects.all().delete()
        for loaded in serializers.deserialize("json", text):
            loaded.save()
        self.assertEqual(serializers.serialize("json", Order.objects.order_by("pk")), text)

    def test_forms_do_not_ask_for_it(self):
        form = forms.modelform_factory(Order, fields="__all__")({"buyer": self.first.pk})
        self.assertEqual(list(form.fields), ["buyer"])
        self.assertIsNotNone(form.save().pk)

    def test_the_admin_adds_a_row(self):
        self.client.force_login(User.objects.create_superuser("root"))
        answer = self.client.post("/admin/shop/buyer/add/", {"name": "carol"})
        self.assertEqual(answer.status_code, 302, answer.content)
        self.assertEqual(Buyer.objects.filter(name="carol").count(), 1)

    def test_a_field_of_a_migration_is_the_same(self):
        name, path, args, kwargs = KeymillField("segment:orders", primary_key=True).deconstruct()
        self.assertEqual((path, args), ("keymill.django.KeymillField", ["segment:orders"]))


class Migrations(TestCase):
    databases = "__all__"

    def test_migrations_are_complete(self):
        call_command("makemigrations", "--check", "--dry-run", stdout=io.StringIO())


class Databases(TestCase):
    databases = {"default", "other"}

    def test_a_key_is_one_row_s_in_whatever_database_it_is(self):
        buyers = [Buyer.objects.using(name).create(name="a") for _ in range(10) for name in ("default", "other")]
        buyers += Buyer.objects.using("other").bulk_create([Buyer(name="b") for _ in range(10)])
        self.assertEqual(len({buyer.pk for buyer in buyers}), 30)
        self.assertEqual(Buyer.objects.using("other").count(), 20)

    def test_the_settings_may_name_another_database(self):
        with override_settings(KEYMILL={"database": "other"}):
            call_command("keymill", "init", stdout=io.StringIO())
            Buyer.objects.create(name="a")
            name = str(connections["other"].settings_dict["NAME"])
            self.assertEqual(_mill.mill().store == "memory:", connection.vendor == "sqlite")
            self.assertTrue(connection.vendor == "sqlite" or _mill.mill().store.split("?")[0].endswith(f"/{name}"), _mill.mill().store)
        self.assertGreater(Buyer.objects.create(name="b").pk, 0)


class RealStores(TestCase):
    """Tests take no numbers from a store that is the program's own."""

    def test_a_store_of_the_settings_is_left_alone(self):
        with TemporaryDirectory() as folder, override_settings(KEYMILL={"store": f"sqlite:{folder}/real.db"}):
            with mock.patch.dict(_mill._at_start, {"store": f"sqlite:{folder}/real.db"}, clear=True):
                self.assertEqual(_mill.configuration(), "memory:")
                self.assertGreater(Buyer.objects.create(name="a").pk, 0)
            self.assertEqual(os.listdir(folder), [])

    def test_a_database_that_the_tests_have_not_made_is_left_alone(self):
        name = connections.settings["other"]["NAME"]
        with override_settings(KEYMILL={"database": "other"}), mock.patch.dict(_mill._names, {"other": name}):
            with mock.patch.dict(_mill._at_start, {"database": "other"}, clear=True):
                self.assertEqual(_mill.configuration(), "memory:")

    def test_rows_in_the_database_of_programs_get_no_ids_of_a_test(self):
        name = connections.settings["default"]["NAME"]
        if "mode=memory" in str(name):
            self.skipTest("its database ends with this process")
        with mock.patch.dict(_mill._names, {"default": name}):
            _mill.close()
            refusal = "test environment is set up, and rows of shop_buyer go to the database 'default'"
            with self.assertRaisesRegex(StoreError, refusal), transaction.atomic():
                Buyer.objects.create(name="a")
            with override_settings(KEYMILL={"database": "default"}):
                self.assertGreater(Buyer.objects.create(name="a").pk, 0)
        _mill.close()

    def test_a_store_that_a_test_names_is_that_test_s(self):
        with TemporaryDirectory() as folder:
            for name in ("one", "two"):
                with override_settings(KEYMILL={"store": f"sqlite:{folder}/{name}.db"}):
                    self.assertIn(f"{name}.db", _mill.mill().store)
                    Buyer.objects.create(name=name).delete()
                    _mill.close()
            self.assertTrue({"one.db", "two.db"} <= set(os.listdir(folder)))


class Names(SimpleTestCase):
    def test_one_table_has_one_source_however_it_is_written(self):
        field, before = Buyer._meta.pk, Buyer._meta.db_table
        try:
            for name in ("shop_buyer", '"shop_buyer"', "Shop_Buyer", 'public"."shop_buyer', '"sales"."shop_buyer"', "`shop_buyer`"):
                Buyer._meta.db_table = name
                self.assertEqual(field.keymill_spec(Buyer), "segment:shop_buyer")
        finally:
            Buyer._meta.db_table = before


class Checks(SimpleTestCase):
    """What is wrong is an error of Django's system check, with the model and the field."""

    def faults(self, name, spec, **attributes):
        field = Order._meta.get_field(name) if name in ("id", "no") else Ticket._meta.get_field(name)
        before = {attribute: getattr(field, attribute) for attribute in ("spec", *attributes)}
        for attribute, value in {"spec": spec, **attributes}.items():
            setattr(field, attribute, value)
        try:
            return [str(fault) for fault in run_checks()]
        finally:
            for attribute, value in before.items():
                setattr(field, attribute, value)

    def test_specs(self):
        for name, spec, words in [
            ("no", "serial:orders/no?nummer=000", "shop.Order.no: .*nummer"),
            ("no", "segment:orders", "shop.Order.no: .*a SerialNumberField takes serial:…, not `segment:orders`"),
            ("no", "serial:orders", "shop.Order.no"),
            ("id", "serial:orders/no", "shop.Order.id: .*takes segment:… or snowflake:…"),
            ("id", "business:orders", "shop.Order.id"),
            ("id", "orders", "shop.Order.id"),
            ("id", "segment:orders?step=0", "shop.Order.id: .*step"),
            ("id", "snowflake:tx?layout=tvitter", "shop.Order.id: .*tvitter"),
            ("id", "snowflake:tx?worker=5000", "shop.Order.id: .*5000"),
            ("id", "snowflake:tx?epoch=tomorrow", "shop.Order.id: .*tomorrow"),
            ("id", "snowflake:tx?worker=disposable&step=5", "shop.Order.id: .*step"),
            ("rank", "segment:ranks?stepp=5", "shop.Ticket.rank: .*stepp"),
        ]:
            with self.subTest(spec):
                self.assertRegex("\n".join(self.faults(name, spec)), words)
        for spec in ("snowflake:tx", "snowflake:tx?worker=lease", "snowflake:tx?layout=uid", "snowflake:tx?worker=disposable"):
            with self.subTest(spec):
                self.assertEqual(self.faults("id", spec), [])

    def test_an_application_that_has_the_database_s_own_numbers(self):
        model = SimpleNamespace(_meta=SimpleNamespace(pk=models.BigAutoField()))
        for path, overrides, warned in [("/srv/blog", True, 1), ("/srv/blog", False, 0), (os.path.dirname(django.__file__), True, 0)]:
            config = SimpleNamespace(label="blog", path=path, default_auto_field="django.db.models.BigAutoField", get_models=lambda: [model])
            config._is_default_auto_field_overridden = overrides
            faults = check_applications([config])
            self.assertEqual(len(faults), warned)
            self.assertTrue(all("DEFAULT_AUTO_FIELD is keymill's" in fault.hint for fault in faults))

    def test_a_text_that_the_column_cannot_hold(self):
        [fault] = self.faults("no", "serial:orders/no?number=000000", max_length=8)
        self.assertRegex(fault, "shop.Order.no: .*has 14 characters, and max_length is 8")

    def test_a_database_that_cannot_be_a_store(self):
        entry = connections.settings["default"]
        for changes, words in [
            ({"ENGINE": "django.db.backends.oracle", "NAME": "n"}, "DATABASES\\['default'\\].*cannot be a store"),
            ({"ENGINE": "no.such.engine", "NAME": "n"}, "cannot be a store"),
            ({"ENGINE": "django.db.backends.mysql", "NAME": "n", "OPTIONS": {"ssl_fallback": "yes"}}, "ssl_fallback"),
        ]:
            with self.subTest(changes), mock.patch.dict(entry, changes):
                [fault] = check_settings()
                self.assertRegex(str(fault), words)
        for given, words in [
            ({"database": "none"}, "'none', which is not in DATABASES"),
            ({"stroe": "memory:"}, "no option 'stroe'"),
            ("memory:", "is a dictionary"),
            ({"store": "memory:", "database": "default"}, "both"),
        ]:
            with self.subTest(given), override_settings(KEYMILL=given):
                [fault] = check_settings()
                self.assertIn(words, str(fault))

    def test_engines_that_wrap_django_s_own(self):
        for engine, scheme in [
            ("django_tidb", "mysql"),
            ("mysql.connector.django", "mysql"),
            ("django_prometheus.db.backends.mysql", "mysql"),
            ("dj_db_conn_pool.backends.mysql", "mysql"),
            ("django_tenants.postgresql_backend", "postgres"),
            ("psqlextra.backend", "postgres"),
            ("django_prometheus.db.backends.postgresql", "postgres"),
            ("dj_db_conn_pool.backends.postgresql", "postgres"),
            # Of the project's own.
            ("shop.engine", "mysql" if connection.vendor == "mysql" else "postgres"),
        ]:
            if engine == "shop.engine" and connection.vendor == "sqlite":
                continue
            entry = {"ENGINE": engine, "NAME": "shop", "HOST": "db", "USER": "app"}
            with self.subTest(engine), mock.patch.dict(connections.settings["default"], entry, clear=True):
                self.assertRegex(_mill.configuration(), f"^{scheme}://app@db:[0-9]+/shop")
                if engine.startswith("django_tenants"):
                    # It notes the tenant of the moment in the entry.
                    connections.settings["default"]["SCHEMA"] = "tenant_1"
                    self.assertNotIn("tenant_1", _mill.configuration())


class Async(TransactionTestCase):
    async def test_acreate(self):
        buyer = await Buyer.objects.acreate(name="ann")
        self.assertEqual((await Buyer.objects.aget()).pk, buyer.pk)


class Adopt(TransactionTestCase):
    """A table that has rows which no source of keymill's gave."""

    def tearDown(self):
        _mill.is_of_tests = self.is_of_tests
        self.begin_anew()

    def setUp(self):
        self.is_of_tests = _mill.is_of_tests
        if _mill.mill().store == "memory:":
            self.skipTest("its store is memory")

    def begin_anew(self):
        """As a program that starts."""
        _mill.close()
        Buyer._meta.pk._at = (-1, {}, None, None)

    def test_no_key_is_given_that_is_there_before_it_is_adopted(self):
        highest = Buyer.objects.create(name="a").pk + 100_000
        Buyer.objects.create(pk=highest, name="from before")
        self.begin_anew()
        _mill.is_of_tests = lambda: False
        with self.assertRaisesRegex(StoreError, f"has keys up to {highest}.*manage.py keymill adopt"):
            Buyer.objects.create(name="b")
        self.assertEqual(Buyer.objects.count(), 2)
        call_command("keymill", "adopt", "shop.Buyer", "--dry-run", stdout=io.StringIO())
        with self.assertRaises(StoreError):
            Buyer.objects.create(name="b")
        call_command("keymill", "adopt", "shop.Buyer", stdout=io.StringIO())
        self.begin_anew()
        self.assertGreater(Buyer.objects.create(name="b").pk, highest)
        # What is in order is passed over.
        _mill.close()
        call_command("keymill", "adopt", "shop.Buyer", "shop.Order", "--database", "default", stdout=io.StringIO())
