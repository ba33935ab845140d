"""The crates of Cargo.lock against deny.toml, without a network: licences, versions, sources.
Prints a line for each, as suites do."""

import collections
import json
import os
import re
import subprocess
import sys
import tomllib


def allowed(expression, allow):
    """Whether an SPDX expression can be met with the licences of `allow`: OR of ANDs, with
    parentheses; old manifests have / for OR."""
    words = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    at = 0

    def one():
        nonlocal at
        word, at = words[at], at + 1
        if word == "(":
            met, at = either(), at + 1
            return met
        met = word in allow
        if words[at : at + 1] == ["WITH"]:  # an exception permits more, never less
            at += 2
        return met

    def both():
        nonlocal at
        met = one()
        while words[at : at + 1] == ["AND"]:
            at += 1
            met = one() and met
        return met

    def either():
        nonlocal at
        met = both()
        while words[at : at + 1] == ["OR"]:
            at += 1
            met = both() or met
        return met

    return either() and at == len(words)


def result(name, wrong):
    print(f"not ok {name}: {'; '.join(wrong)}" if wrong else f"ok {name}")


def self_test():
    allow = {"MIT", "Apache-2.0"}
    cases = {
        "MIT": True,
        "GPL-3.0": False,
        "MIT OR GPL-3.0": True,
        "MIT AND GPL-3.0": False,
        "GPL-3.0/MIT": True,
        "(MIT OR GPL-3.0) AND BSD": False,
        "(MIT OR GPL-3.0) AND Apache-2.0 WITH LLVM-exception": True,
        "GPL-3.0 OR MIT AND BSD": False,
    }
    result(
        "the check reads expressions",
        [f"{case} is {not want}" for case, want in cases.items() if allowed(case, allow) != want],
    )


def check(name, manifest, rules):
    cargo = [
        os.environ.get("CARGO", "cargo"),
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--all-features",
        "--manifest-path",
        manifest,
    ]
    done = subprocess.run(cargo, capture_output=True, text=True)
    if done.returncode != 0:
        # A dependency that is new in the workspace is missing in the fuzz targets' lock.
        result(
            f"{name}: the lock is up to date (cargo update --offline -w --manifest-path {manifest})",
            [done.stderr.strip().replace("\n", " ")],
        )
        return
    found = json.loads(done.stdout)
    ours, packages = set(found["workspace_members"]), found["packages"]
    allow = set(rules["licenses"]["allow"])
    registries = {f"registry+{url}" for url in rules["sources"]["allow-registry"]}
    more = {entry["crate"]: set(entry["allow"]) for entry in rules["licenses"]["exceptions"]}
    # What is not published may lack one, as the fuzz targets do.
    unlicensed = [
        f"{p['name']} {p['version']}: {p['license'] or 'none'}"
        for p in packages
        if p["source"] and not allowed(p["license"] or "none", allow | more.get(p["name"], set()))
    ]
    foreign = [
        f"{p['name']} is from {p['source'] or p['manifest_path']}"
        for p in packages
        if p["id"] not in ours
        and p["source"] not in registries
        and not (p["source"] is None and p["manifest_path"].startswith(os.getcwd() + "/"))
    ]
    versions = collections.defaultdict(set)
    for package in packages:
        versions[package["name"]].add(package["version"])
    skip = {entry["crate"] for entry in rules["bans"]["skip"]}
    twice = [
        f"{crate} {' '.join(sorted(has))}"
        for crate, has in sorted(versions.items())
        if len(has) > 1 and crate not in skip
    ]
    wild = [
        f"{p['name']}: {d['name']}"
        for p in packages
        if p["id"] in ours
        for d in p["dependencies"]
        if d["req"] == "*" and not d.get("path")
    ]
    needless = [crate for crate in skip if name == "workspace" and len(versions[crate]) < 2]
    result(f"{name}: {len(packages)} crates have licences that deny.toml allows", unlicensed)
    result(f"{name}: all are from crates.io or here", foreign)
    result(
        f"{name}: one version of each, but for what deny.toml skips",
        twice + [f"skipped for nothing: {crate}" for crate in needless],
    )
    result(f"{name}: no version is a wildcard", wild)


def main():
    with open("deny.toml", "rb") as file:
        rules = tomllib.load(file)
    self_test()
    check("workspace", "Cargo.toml", rules)


if __name__ == "__main__":
    sys.exit(main())
