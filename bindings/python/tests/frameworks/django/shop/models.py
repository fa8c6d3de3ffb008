from django.db import models

from keymill.django import KeymillField, KeymillTextField, SerialNumberField


class Buyer(models.Model):
    name = models.CharField(max_length=20)


class Order(models.Model):
    id = KeymillField("segment:orders", primary_key=True)
    no = SerialNumberField("serial:orders/no?number=000000", max_length=20, unique=True)
    buyer = models.ForeignKey(Buyer, on_delete=models.CASCADE, null=True)


class Rush(Order):
    hours = models.IntegerField(default=1)


class Ticket(models.Model):
    id = KeymillTextField("segment:tickets?text=crockford&prefix=tic_", max_length=30, primary_key=True)
    rank = KeymillField()
