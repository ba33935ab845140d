#!/usr/bin/env python3
"""Says which lines of prose and code in the repository are longer than 100 characters.

What it leaves out: lines that a formatter has the last word on because of a string in them, tables
and fenced blocks in Markdown, code in shell scripts and Makefiles, a single word (a URL), and files
that are generated or data.
"""

import re
import subprocess
import sys

MOST = 100
GENERATED = ("crates/plfs-capi/include/", "tests/compat/v1/containers/")
DATA = (".json", ".svg", ".lock", ".excludes", ".def")
PROSE = (".md", "README")
# Where rustfmt, clang-format and ruff wrap all but strings.
FORMATTED = (".rs", ".c", ".h", ".py")
# The heads of suites, which tests/run reads as one line each.
HEAD = re.compile("# (Proves|Alone): ")
COMMENTS = {
    (".rs", ".c", ".h", ".S"): re.compile(r"\s*(//|/\*|\* )"),
    (".f", ".f90"): re.compile(r"\s*!"),
}
OTHER_COMMENT = re.compile(r"\s*#(?!!)")


def is_checked(path, line):
    if path.endswith(PROSE):
        return not line.lstrip().startswith("|")
    kinds = [comment for endings, comment in COMMENTS.items() if path.endswith(endings)]
    if (kinds or [OTHER_COMMENT])[0].match(line):
        return not HEAD.match(line)
    return path.endswith(FORMATTED) and not re.search("[\"']", line)


def long_lines(path, text):
    is_fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if path.endswith(PROSE) and line.lstrip().startswith("```"):
            is_fenced = not is_fenced
        length = len(line.expandtabs(8))
        has_words = len(line.strip(" \t/*#!|-").split()) > 1
        if length > MOST and has_words and not is_fenced and is_checked(path, line):
            yield f"{path}:{number}: {length} characters"


def main():
    files = subprocess.run(["git", "ls-files", "-z"], stdout=subprocess.PIPE, check=True).stdout
    found = []
    for path in files.decode().split("\0")[:-1]:
        if path.startswith(GENERATED) or path.endswith(DATA):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                found += long_lines(path, file.read())
        except (UnicodeDecodeError, OSError):
            continue
    print("\n".join(found) if found else f"no line of prose is longer than {MOST}")
    return bool(found)


sys.exit(main())
