"""Tests of scripts/fetch_wheels with a tiny wheel from a local folder: no network."""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

SCRIPT = pathlib.Path(__file__).resolve().parent / "fetch_wheels"
FILENAME = "tiny_plugin-1.0-py3-none-manylinux_2_27_x86_64.whl"


class FetchWheels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.index = self.root / "index"
        self.cache = self.root / "cache"
        self.deps = self.root / "deps"
        self.index.mkdir()
        self.write_wheel()
        self.write_lock()

    def write_wheel(self, extra_member=None):
        wheel = self.index / FILENAME
        with zipfile.ZipFile(wheel, "w") as archive:
            program = zipfile.ZipInfo("tiny_plugin/plugin.so")
            program.external_attr = 0o100744 << 16
            archive.writestr(program, "machine code")
            archive.writestr("tiny_plugin/__init__.py", "raise SystemExit")
            archive.writestr("tiny_plugin/include/deep/api.h", "#define API 1")
            if extra_member:
                archive.writestr(extra_member, "bad")
            info = "tiny_plugin-1.0.dist-info"
            archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-plugin\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL",
                             "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: false\n"
                             "Tag: py3-none-manylinux_2_27_x86_64\n")
            archive.writestr(f"{info}/RECORD", "")
        self.sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()

    def write_lock(self, sha256=None, members='["tiny_plugin/*.so", "tiny_plugin/include/*"]', group="",
                   on_request=False):
        (self.root / "wheels.lock").write_text(
            f'[tiny-plugin]\nversion = "1.0"\nfilename = "{FILENAME}"\n'
            f'sha256 = "{sha256 or self.sha256}"\nmembers = {members}\n'
            + (f'group = "{group}"\n' if group else "") + ("on_request = true\n" if on_request else ""))

    def run_script(self, *args, **env):
        return subprocess.run(
            [sys.executable, str(SCRIPT), "--lock", str(self.root / "wheels.lock"), *args],
            capture_output=True, text=True, check=False,
            env={**os.environ, "MW_DEPS_DIR": str(self.deps), "MW_WHEEL_CACHE": str(self.cache),
                 "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index), **env})

    def unpacked(self):
        found = sorted(str(p.relative_to(self.deps)) for p in self.deps.rglob("*") if p.is_file())
        return [name for name in found if name != ".lock"]

    def assert_one_error(self, done, text):
        self.assertEqual(done.returncode, 1, done.stderr)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertIn(text, errors[0])
        self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(self.unpacked(), [])

    def test_unpacks_only_the_members(self):
        self.assertEqual(self.run_script("--check").returncode, 1)
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.unpacked(), ["tiny-plugin/.stamp", "tiny-plugin/tiny_plugin/include/deep/api.h",
                                           "tiny-plugin/tiny_plugin/plugin.so"])
        self.assertEqual(self.run_script("--check").returncode, 0)

    def test_second_run_needs_neither_index_nor_cache(self):
        self.run_script()
        stamp = self.deps / "tiny-plugin" / ".stamp"
        before = stamp.stat().st_mtime_ns
        (self.cache / FILENAME).unlink()
        done = self.run_script(PIP_FIND_LINKS=str(self.root / "nowhere"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(stamp.stat().st_mtime_ns, before)

    def test_cache_serves_without_an_index(self):
        self.run_script()
        self.deps = self.root / "other"
        done = self.run_script(PIP_FIND_LINKS=str(self.root / "nowhere"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tiny-plugin/tiny_plugin/plugin.so", self.unpacked())

    def test_corrupt_cache_is_downloaded_again(self):
        self.cache.mkdir()
        (self.cache / FILENAME).write_text("half a wheel")
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("downloading it again", done.stderr)
        self.assertIn("tiny-plugin/tiny_plugin/plugin.so", self.unpacked())

    def test_corrupt_cache_without_an_index_fails(self):
        self.cache.mkdir()
        (self.cache / FILENAME).write_text("half a wheel")
        self.assert_one_error(self.run_script(PIP_FIND_LINKS=str(self.root / "nowhere")),
                              "cannot download tiny-plugin 1.0")

    def test_wrong_hash_unpacks_and_caches_nothing(self):
        self.write_lock(sha256="0" * 64)
        self.assert_one_error(self.run_script(), f"has sha256 {self.sha256}, the lock file says 000000")
        self.assertEqual(list(self.cache.iterdir()), [])

    def test_no_network(self):
        self.assert_one_error(
            self.run_script(PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_RETRIES="0",
                            PIP_INDEX_URL="http://127.0.0.1:9/simple"), "cannot download tiny-plugin 1.0")

    def test_missing_member_unpacks_nothing(self):
        self.write_lock(members='["tiny_plugin/*.so", "tiny_plugin/*.gguf"]')
        self.assert_one_error(self.run_script(), "has no member tiny_plugin/*.gguf")

    def test_member_outside_the_folder_is_refused(self):
        self.write_wheel(extra_member="../escape.so")
        self.write_lock(members='["*.so"]')
        self.assert_one_error(self.run_script(), "outside its folder")
        self.assertFalse((self.root / "escape.so").exists())

    def test_changed_lock_replaces_what_is_there(self):
        self.run_script()
        self.write_lock(members='["tiny_plugin/*.so"]')
        self.assertEqual(self.run_script().returncode, 0)
        self.assertEqual(self.unpacked(), ["tiny-plugin/.stamp", "tiny-plugin/tiny_plugin/plugin.so"])

    def test_failed_update_keeps_what_was_there(self):
        self.run_script()
        before = self.unpacked()
        self.write_lock(sha256="0" * 64)
        self.assertEqual(self.run_script().returncode, 1)
        self.assertEqual(self.unpacked(), before)

    def test_leftover_of_a_killed_run_is_removed(self):
        half = self.deps / ".tiny-plugin-abc"
        half.mkdir(parents=True)
        (half / "plugin.so").write_text("half")
        self.assertEqual(self.run_script().returncode, 0)
        self.assertFalse(half.exists())

    def test_group_can_be_left_out(self):
        self.write_lock(group="tpu")
        self.assertEqual(self.run_script(MW_SKIP_TPU="1").returncode, 0)
        self.assertFalse(self.deps.exists())
        self.assertEqual(self.run_script().returncode, 0)
        self.assertTrue(self.deps.exists())

    def test_on_request_only(self):
        self.write_lock(group="gpu", on_request=True)
        self.assertEqual(self.run_script().returncode, 0)
        self.assertFalse(self.deps.exists())
        self.assertEqual(self.run_script("--check").returncode, 0)
        self.assertEqual(self.run_script("--check", "--with", "gpu").returncode, 1)
        done = self.run_script("--with", "gpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("tiny-plugin/tiny_plugin/plugin.so", self.unpacked())
        # From now on it is kept at what the lock says.
        self.write_lock(group="gpu", on_request=True, members='["tiny_plugin/*.so"]')
        self.assertEqual(self.run_script("--check").returncode, 1)
        self.assertEqual(self.run_script().returncode, 0)
        self.assertEqual(self.unpacked(), ["tiny-plugin/.stamp", "tiny-plugin/tiny_plugin/plugin.so"])

    def test_unknown_group_on_request(self):
        self.write_lock(group="tpu")
        self.assert_one_error(self.run_script("--with", "tpu"), "no group 'tpu' is fetched on request")
        self.write_lock(on_request=True)
        self.assert_one_error(self.run_script(), "is of no group")

    def test_programs_can_be_run(self):
        self.run_script()
        plugin = self.deps / "tiny-plugin" / "tiny_plugin" / "plugin.so"
        api = plugin.parent / "include" / "deep" / "api.h"
        self.assertTrue(os.access(plugin, os.X_OK))
        self.assertFalse(api.stat().st_mode & 0o111)

    def test_broken_lock_is_one_error(self):
        (self.root / "wheels.lock").write_text("[tiny-plugin]\nversion = ")
        self.assert_one_error(self.run_script(), "cannot read")
        (self.root / "wheels.lock").write_text('[tiny-plugin]\nversion = "1.0"\n')
        self.assert_one_error(self.run_script(), "tiny-plugin has no 'filename'")


if __name__ == "__main__":
    unittest.main()
