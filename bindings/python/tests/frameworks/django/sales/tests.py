import tempfile

from django.db import connections
from django.test import TransactionTestCase

import keymill.django
from keymill import _keymill
from keymill.django import _mill

from . import shards
from .models import Delivery, Sale

STAYS = 'version = 1\n[[range]]\nupper = 32767\nshard = "s1"\n[[range]]\nupper = 65535\nshard = "s2"\n'
MOVES = STAYS.replace("version = 1", "version = 2").replace('shard = "s1"', 'shard = "s1"\nto = "s2"')


class Shards(TransactionTestCase):
    databases = {"default", "s1", "s2"} & set(connections)

    def setUp(self):
        if "s1" not in connections:
            self.skipTest("SQLite has no shards")
        shards.shards.cache_clear()
        keymill.django.mill().init()

    def put(self, table):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(table)
            file.flush()
            self.assertEqual(_keymill.command(["--mill", _mill.configuration(), "route", "put", "sales", file.name, "--yes"]), 0)
        # As a program that starts: a program that runs looks at the table from time to time.
        _mill.close()
        shards.shards.cache_clear()

    def place(self, buyer):
        id = keymill.django.mill().business("sales", deadline="60s").next(buyer)
        with shards.write(id):
            sale = Sale.objects.create(id=id, buyer=buyer)
            Delivery.objects.create(sale=sale, street="first")
        return id

    def on(self, name):
        return dict(Delivery.objects.using(name).values_list("sale_id", "street"))

    def test_a_model_s_rows_are_on_the_shard_of_their_id(self):
        self.put(STAYS)
        ids = {self.place(buyer) for buyer in range(20)}
        first, second = self.on("s1"), self.on("s2")
        self.assertEqual((set(first) | set(second), set(first) & set(second)), (ids, set()))
        self.assertTrue(first and second)
        for id in ids:
            with shards.read(id):
                self.assertEqual(Sale.objects.select_related("delivery").get(pk=id).delivery.street, "first")
        with self.assertRaisesRegex(RuntimeError, "sales.Sale is on a shard"):
            Sale.objects.count()

    def test_while_a_range_moves_both_shards_have_the_rows(self):
        self.put(STAYS)
        self.put(MOVES)
        id = next(id for id in map(self.place, range(100)) if id in self.on("s1"))
        with shards.write(id):
            Delivery.objects.filter(pk=id).update(street="second")
        self.assertEqual([self.on(name).get(id) for name in ("s1", "s2")], ["second", "second"])
