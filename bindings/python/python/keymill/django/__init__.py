"""Django models whose keys come from keymill.

Add the application, and say which models it is for:

>>> INSTALLED_APPS = [..., "keymill.django"]
>>> DEFAULT_AUTO_FIELD = "keymill.django.KeymillAutoField"    # or an application's ``default_auto_field``

Every model without a primary key of its own takes ids from the segment of its table. Its columns and migrations stay as they are. The store is
``KEYMILL = {"store": "mysql://…"}`` of the settings, else the database ``DATABASES["default"]``.
"""

from ._fields import KeymillAutoField, KeymillField, KeymillTextField, SerialNumberField
from ._mill import mill

__all__ = ["KeymillAutoField", "KeymillField", "KeymillTextField", "SerialNumberField", "mill"]
