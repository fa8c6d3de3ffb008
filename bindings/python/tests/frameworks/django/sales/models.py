from django.db import models


class Sale(models.Model):
    id = models.BigIntegerField(primary_key=True)
    buyer = models.BigIntegerField()


class Delivery(models.Model):
    sale = models.OneToOneField(Sale, on_delete=models.CASCADE, primary_key=True)
    street = models.CharField(max_length=40)
