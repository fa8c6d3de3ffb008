"""SQLAlchemy's quick start, with the line of the primary keys changed.

    python quickstart.py SOURCES_OF_SQLALCHEMY

The program is the one in `doc/build/orm/quickstart.rst` of its sources. It runs as it is, and with keymill's ids; both must print the same, and
leave the same rows.
"""

import contextlib
import doctest
import io
import pathlib
import sys
import tempfile

import sqlalchemy

import keymill
import keymill.sqlalchemy

TEXT = (pathlib.Path(sys.argv[1]) / "doc/build/orm/quickstart.rst").read_text()


def run(changes: dict[str, str]) -> str:
    """The program's output, and its rows."""
    names: dict[str, object] = {"keymill": keymill}
    program = "".join(example.source for example in doctest.DocTestParser().get_examples(TEXT))
    for before, after in changes.items():
        assert before in program, before
        program = program.replace(before, after)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(program, "quickstart", "exec"), names)  # noqa: S102
        with names["engine"].connect() as connection:
            for table in names["Base"].metadata.sorted_tables:
                print(connection.execute(table.select().order_by(*table.primary_key)).all())
    return printed.getvalue()


with tempfile.TemporaryDirectory() as folder:
    quiet = {"echo=True": "echo=False"}
    own = run(quiet)
    here = {
        '"sqlite://", echo=True': f'"sqlite:///{folder}/shop.db"',
        "mapped_column(primary_key=True)": 'mapped_column(primary_key=True, autoincrement=False, default=keymill.lazy(f"segment:{__tablename__}"))',
        "Base.metadata.create_all(engine)": "Base.metadata.create_all(engine); keymill.sqlalchemy.use(engine)",
    }
    with_keymill = run(here)
    assert with_keymill == own, f"{own}\n{with_keymill}"
    assert "sandy" in own
    keymill.shared().close()
    print(f"SQLAlchemy {sqlalchemy.__version__}: {len(own.splitlines())} lines are the same")
