"""What tests/run makes of suites: each test writes a directory of suites, runs a copy of tests/run
on it, and looks at the last lines."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

RUN = pathlib.Path(__file__).resolve().parents[1] / "run"


class Runner(unittest.TestCase):
    def setUp(self):
        self.tests = pathlib.Path(
            self.enterContext(tempfile.TemporaryDirectory(prefix="plfs-runner.")), "tests"
        )
        self.tests.mkdir()
        shutil.copy(RUN, self.tests)

    def suite(self, name, script):
        (self.tests / name).mkdir()
        (self.tests / name / "run.sh").write_text(script)

    def run_it(self, *arguments, **variables):
        environment = {
            name: value
            for name, value in os.environ.items()
            if name not in ("CI", "PLFS_SEED", "BUILD")
        }
        done = subprocess.run(
            [self.tests / "run", *arguments],
            capture_output=True,
            text=True,
            env={**environment, **variables},
        )
        self.said = done.stdout
        return done.returncode, done.stdout.splitlines()[-1]

    def test_lines_of_suites(self):
        self.suite(
            "a",
            "echo ok one; echo 'ok two: three'; echo '    ok no result'; echo 'skip four: why'; echo okay",
        )
        self.suite("b", "echo 'not ok five: why'")
        self.assertEqual(self.run_it(), (1, "2 passed, 1 failed, 1 skipped"))
        self.assertIn("failed: b: five: why", self.said)
        self.assertEqual(self.run_it("a"), (0, "2 passed, 0 failed, 1 skipped"))

    def test_a_skip_fails_in_ci(self):
        self.suite("a", "echo ok one; echo 'skip two: why'")
        self.assertEqual(self.run_it(CI="true"), (1, "1 passed, 1 failed, 0 skipped"))

    def test_cargo(self):
        self.suite(
            "a",
            "echo 'test one ... ok'; echo 'test two::three ... FAILED'; echo 'test four ... ignored'; echo 'test five ... ignored, prints speeds'\n"
            "echo 'test result: FAILED. 1 passed; 1 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s'; exit 1",
        )
        self.assertEqual(self.run_it(), (1, "1 passed, 1 failed, 1 skipped"))

    def test_unittest(self):
        self.suite(
            "a",
            "echo 'FAIL: test_one (x)'; echo 'ERROR: test_two (x)'; echo 'Ran 7 tests in 0.1s'; echo; echo 'FAILED (failures=1, errors=1, skipped=2)'; exit 1",
        )
        self.assertEqual(self.run_it(), (1, "3 passed, 2 failed, 2 skipped"))

    def test_a_suite_that_breaks_off_or_runs_nothing_fails(self):
        self.suite("a", "echo ok one; exit 3")
        self.suite("b", "true")
        self.suite("c", "echo ok one; kill -9 $$")
        self.assertEqual(self.run_it(), (1, "2 passed, 3 failed, 0 skipped"))

    def test_a_test_of_a_suite(self):
        self.suite("a", 'shift; for one; do echo "ok $one"; done')
        self.assertEqual(self.run_it("a/x/y", "a/z"), (0, "2 passed, 0 failed, 0 skipped"))
        self.assertIn("ok x/y\nok z\n", self.said)
        with self.assertRaises(
            IndexError
        ):  # no suite of this name: a word on standard error, nothing else
            self.run_it("b")

    def test_seeds_and_what_was_explored(self):
        self.suite("a", 'echo "ok $PLFS_SEED"; echo "40 losses" >> "$PLFS_EXPLORED"')
        self.suite(
            "b",
            'echo "not ok x"; echo "2 losses" >> "$PLFS_EXPLORED"; echo "1 fault" >> "$PLFS_EXPLORED"',
        )
        self.assertEqual(self.run_it(PLFS_SEED="77")[0], 1)
        self.assertIn("ok 77\n", self.said)
        self.assertIn("again: PLFS_SEED=77 tests/run b\n", self.said)
        self.assertIn("\nexplored: 1 fault, 42 losses\n", self.said)
        self.run_it()
        first = self.said.splitlines()[0]
        self.run_it()
        self.assertNotEqual(first, self.said.splitlines()[0])

    def test_who_stops_the_runner_stops_the_suites(self):
        """mpiexec below `timeout` went on for minutes when the runner was ended: timeout(1) leaves
        the group of the suite, which alone was signalled."""
        self.suite("a", f"timeout 60 bash -c 'echo $$ > {self.tests}/pid; sleep 50; true'")
        with subprocess.Popen([self.tests / "run", "a"], stdout=subprocess.DEVNULL) as runner:
            until = time.monotonic() + 20
            while not (self.tests / "pid").exists() or not (
                pid := (self.tests / "pid").read_text().strip()
            ):
                self.assertLess(time.monotonic(), until)
                time.sleep(0.05)
            runner.terminate()
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
            time.sleep(0.05)
        self.assertFalse(os.path.exists(f"/proc/{pid}"))

    def test_alone_is_alone(self):
        busy = f'mkdir "{self.tests}/busy" && sleep 0.3 && rmdir "{self.tests}/busy" && echo ok one || echo not ok beside'
        self.suite("a", f"# Alone: it says so\nset -u\n{busy}")
        self.suite("b", f"# Alone: it says so\nset -u\n{busy}")
        self.suite("c", f'[ -e "{self.tests}/busy" ] && echo not ok beside || echo ok one')
        self.assertEqual(self.run_it(), (0, "3 passed, 0 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
