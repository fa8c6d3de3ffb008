"""What scripts share that start programs, and type the commands of an operator beside them."""

import atexit
import subprocess
import time


class Program:
    """A running program. Its log is FOLDER/NAME.log, and what it says besides goes to FOLDER/NAME.errors."""

    def __init__(self, folder, name, words):
        """`words` makes the command line of the log."""
        self.name, self.log, self.errors = name, folder / f"{name}.log", folder / f"{name}.errors"
        with open(self.errors, "w") as errors:
            self.process = subprocess.Popen([str(word) for word in words(self.log)], stdout=errors, stderr=errors)

    def lines(self):
        return self.log.read_text().splitlines() if self.log.exists() else []

    def check(self):
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} ended with {self.process.returncode}: {self.errors.read_text()[-2000:]}")

    def end(self):
        self.log.with_name(self.log.name + ".stop").touch()
        if self.process.wait(timeout=300) != 0:
            self.check()


class Stage:
    """Programs, and what an operator types meanwhile: that goes to standard output, without folders."""

    def __init__(self, folder):
        self.folder, self.programs, self.started = folder, [], time.time()
        atexit.register(lambda: [program.process.kill() for program in self.programs])

    def say(self, text):
        print(f"\n# {time.time() - self.started:.0f} s: {text}", flush=True)

    def type_in(self, *words, fails=False, keep=8):
        """Runs a command and shows what it answers. The answer is its exit code and all its lines; `fails=None`: it may fail."""
        words = [str(word) for word in words]
        print(f"$ keymill {' '.join(words)}".replace(f"{self.folder}/", ""), flush=True)
        done = subprocess.run(["keymill", *words], capture_output=True, text=True, timeout=600)
        lines = (done.stderr + done.stdout).replace(f"{self.folder}/", "").splitlines()
        for line in lines[:keep]:
            print(line)
        if len(lines) > keep:
            print(f"… {len(lines) - keep} more lines")
        if fails is not None and (done.returncode != 0) != fails:
            raise SystemExit(f"exit {done.returncode}: {done.stdout}{done.stderr}")
        return done.returncode, done.stderr + done.stdout

    def until(self, what, is_so, patience=300):
        end = time.time() + patience
        while not is_so():
            for program in self.programs:
                program.check()
            if time.time() > end:
                raise SystemExit(f"not within {patience} s: {what}")
            time.sleep(0.1)
