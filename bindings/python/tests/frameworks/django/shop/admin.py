from django.contrib import admin

from .models import Buyer, Order

admin.site.register([Buyer, Order])
