"""The application's own database: what Python's frameworks hold becomes texts. What the texts mean stands in the vectors."""

from pathlib import Path

import pytest

import keymill

ENTRY = {"ENGINE": "django.db.backends.mysql", "NAME": "shop", "USER": "app", "PASSWORD": "horse", "HOST": "db", "PORT": 3306}


class SqlalchemyUrl:
    """As SQLAlchemy's: its text hides the password."""

    def __str__(self):
        return "mysql+pymysql://app:***@db/shop"

    def render_as_string(self, hide_password=True):
        return str(self) if hide_password else "mysql+pymysql://app:horse@db/shop"


def test_an_entry_of_databases_with_what_python_has():
    class DictCursor:
        pass

    options = {"ssl": {"ca": Path("/etc/ca.pem")}, "charset": None, "cursorclass": DictCursor, "conv": {1: int}, "use_unicode": True}
    entry = {**ENTRY, "OPTIONS": options, "CONN_MAX_AGE": None, "ATOMIC_REQUESTS": False, "TEST": {"NAME": None, "MIRROR": "x"}}
    before = dict(entry)
    assert keymill.store_of(entry) == "mysql://app:horse@db:3306/shop?tls=verify&ca=/etc/ca.pem&ignored=cursorclass,conv,use_unicode"
    assert entry == before


def test_the_files_of_sqlite_are_paths():
    entry = {"ENGINE": "django.db.backends.sqlite3", "NAME": Path("/srv/db.sqlite3")}
    assert keymill.store_of(entry) == "sqlite:/srv/db.sqlite3.keymill"


def test_sqlalchemys_url_with_its_password():
    assert keymill.store_of(SqlalchemyUrl()) == "mysql://app:horse@db:3306/shop?tls=prefer"
    assert keymill.store_of(SqlalchemyUrl(), {"connect_timeout": 5}) == "mysql://app:horse@db:3306/shop?tls=prefer&connect_timeout=5s"


def test_what_is_no_text_is_refused_by_its_name_and_never_shown():
    class Secret:
        def __repr__(self):
            return "horse"

    for given in ({**ENTRY, "PASSWORD": Secret()}, {**ENTRY, "OPTIONS": {"ssl": Secret()}}):
        with pytest.raises(keymill.ConfigError) as refused:
            keymill.store_of(given)
        assert "Secret" in str(refused.value) and "horse" not in str(refused.value)
    with pytest.raises(keymill.ArgumentError):
        keymill.store_of(7)
    with pytest.raises(keymill.ConfigError, match="`read_default_file`"):
        keymill.store_of({**ENTRY, "OPTIONS": {"read_default_file": "/etc/my.cnf"}})
