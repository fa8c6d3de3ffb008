"""`SHOP_DATABASE` is a URL of MySQL, MariaDB or PostgreSQL, or the path of a SQLite file; `SHOP_ENGINE` an engine that wraps Django's own;
`SHOP_TEST_FILE` the file that tests on SQLite make, in place of a database in memory."""

import os
from urllib.parse import unquote, urlsplit

if os.environ.get("SHOP_DATABASE", "").startswith("mysql"):
    import pymysql

    pymysql.version_info = (2, 2, 7, "final", 0)
    pymysql.install_as_MySQLdb()


def _database(url):
    if "://" not in url:
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": url}
    parts = urlsplit(url)
    return {
        "ENGINE": os.environ.get("SHOP_ENGINE") or {"mysql": "django.db.backends.mysql", "postgres": "django.db.backends.postgresql"}[parts.scheme],
        "NAME": parts.path[1:],
        "HOST": parts.hostname,
        "PORT": parts.port,
        "USER": parts.username,
        "PASSWORD": unquote(parts.password or ""),
    }


SECRET_KEY = "of the tests"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.admin",
    "keymill.django",
    "shop",
    "sales",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "urls"
DATABASES = {"default": _database(os.environ.get("SHOP_DATABASE", "shop.sqlite3"))}
if "SHOP_TEST_FILE" in os.environ:
    DATABASES["default"]["TEST"] = {"NAME": os.environ["SHOP_TEST_FILE"]}
DEFAULT_AUTO_FIELD = "keymill.django.KeymillAutoField"
USE_TZ = True
TIME_ZONE = "Asia/Shanghai"
# Rows of all of them have keys of one store. `s1` and `s2` are the shards of the application `sales`, which takes servers.
_url = os.environ.get("SHOP_DATABASE", "")
if "://" in _url:
    DATABASES.update({name: _database(f"{_url}_{name}") for name in ("other", "s1", "s2")})
else:
    DATABASES["other"] = _database(":memory:")
DATABASE_ROUTERS = ["sales.shards.ShardRouter"]
