#!/bin/bash
# tests/dependencies/run.sh BUILD_DIR
#
# Proves: what Cargo.lock takes in has licences, sources and versions that deny.toml allows
# Takes 2 s
# Known vulnerabilities are not asked for: their database is a git repository, and this runs where
# only registries can be reached. Where it can be: cargo deny check.
set -u
here=$(dirname "$(realpath "$0")")
cd "$here/../.." || exit 2
exec python3 "$here/check.py"
