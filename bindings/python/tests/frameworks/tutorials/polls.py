"""Django's polls, the application of its tutorial, with one line changed: `default_auto_field`.

    python polls.py SOURCES_OF_DJANGO

The models and the two sessions in a shell are read from `docs/intro/tutorial02.txt` of Django's sources; each answer must be the tutorial's.
"""

import ast
import doctest
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import textwrap

TUTORIAL = (pathlib.Path(sys.argv[1]) / "docs/intro/tutorial02.txt").read_text()


def blocks(language: str, caption: str = "") -> list[str]:
    found = re.findall(
        rf"^\.\. code-block:: {language}\n((?:    :.*\n)*)\n((?:    .*\n|\n)+)", TUTORIAL, re.MULTILINE
    )
    return [textwrap.dedent(code) for options, code in found if caption in options]


def models() -> str:
    """The tutorial shows the classes first, and then what to add to each."""
    first, *more = [ast.parse(code) for code in blocks("python", "polls/models.py")]
    classes = {node.name: node for node in first.body if isinstance(node, ast.ClassDef)}
    for node in (node for block in more for node in block.body):
        if isinstance(node, ast.ClassDef):
            classes[node.name].body += node.body
        else:
            first.body.insert(0, node)
    return ast.unparse(first)


def manage(*words: str) -> str:
    return subprocess.run([sys.executable, "manage.py", *words], check=True, capture_output=True, text=True).stdout


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    subprocess.run([sys.executable, "-m", "django", "startproject", "mysite", "."], check=True)
    manage("startapp", "polls")
    pathlib.Path("polls/models.py").write_text(models())
    settings, apps = pathlib.Path("mysite/settings.py"), pathlib.Path("polls/apps.py")
    settings.write_text(
        settings.read_text().replace("INSTALLED_APPS = [", "INSTALLED_APPS = ['polls.apps.PollsConfig', 'keymill.django',")
    )
    # Django 6 writes no such line: there it is the setting's.
    own = "    default_auto_field = 'keymill.django.KeymillAutoField'\n"
    apps.write_text(re.sub(r"(?m)^    default_auto_field = .*\n", "", apps.read_text()) + own)
    manage("makemigrations", "polls")
    manage("migrate")
    assert "keymill" not in pathlib.Path("polls/migrations/0001_initial.py").read_text()

    os.environ["DJANGO_SETTINGS_MODULE"] = "mysite.settings"
    sys.path.insert(0, folder)
    import django

    django.setup()
    from polls.models import Choice, Question

    # The first session is held before the models have their texts.
    shown = Question.__str__
    names = {"Question": Question, "Choice": Choice}
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    runner = doctest.DocTestRunner(optionflags=flags)
    for session in blocks("pycon"):
        is_first = "No questions are in the system yet" in session
        Question.__str__ = django.db.models.Model.__str__ if is_first else shown
        session = re.sub(r"datetime\.datetime\(2.*\)", "datetime.datetime(...)", session)
        # What the tutorial leaves out.
        session = session.replace(">>> c.delete()\n", ">>> _ = c.delete()\n")
        runner.run(doctest.DocTestParser().get_doctest(session, names, "tutorial02", None, 0), clear_globs=False)
    assert runner.failures == 0 and runner.tries > 20, runner.summarize()
    # The ids are keymill's.
    assert "segment:polls_question" in manage("keymill", "status")
    print(f"Django {django.__version__}: {runner.tries} lines of the tutorial")
    import keymill.django

    keymill.django.mill().close()
