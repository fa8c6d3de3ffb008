"""An engine as projects write them."""

import os

if os.environ.get("SHOP_DATABASE", "").startswith("mysql"):
    from django.db.backends.mysql import base
else:
    from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    pass
