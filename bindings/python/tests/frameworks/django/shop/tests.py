import io

from django import forms
from django.contrib.auth.models import User
from django.core import serializers
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connection, connections
from django.test import TestCase, TransactionTestCase

from keymill import StoreError
from keymill.django import KeymillField, _mill

from .models import Buyer, Order, Rush, Ticket


class Keys(TestCase):
    @classmethod
    def setUpTestData(cls):
        cls.first = Buyer.objects.create(name="first")

    def test_the_tests_have_a_store_of_their_own(self):
        name = str(connections["default"].settings_dict["NAME"])
        if connection.vendor == "sqlite":
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

    def test_migrations_are_complete(self):
        call_command("makemigrations", "--check", "--dry-run", stdout=io.StringIO())

    def test_a_field_of_a_migration_is_the_same(self):
        name, path, args, kwargs = KeymillField("segment:orders", primary_key=True).deconstruct()
        self.assertEqual((path, args), ("keymill.django.KeymillField", ["segment:orders"]))

    def test_a_wrong_spec_is_found_by_the_system_check(self):
        field = Order._meta.get_field("no")
        spec, field.spec = field.spec, "serial:orders/no?nummer=000"
        try:
            with self.assertRaises(SystemCheckError) as caught:
                call_command("check")
        finally:
            field.spec = spec
        self.assertIn("shop.Order.no", str(caught.exception))
        self.assertIn("nummer", str(caught.exception))


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
        if connection.vendor == "sqlite":
            self.skipTest("its store is memory")

    def begin_anew(self):
        """As a program that starts."""
        _mill.close()
        Buyer._meta.pk._keymill = None

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
