#!/bin/bash
# tests/fuzz/rustc.sh RUSTC OPTION...
#
# What cargo calls as the compiler of our crates when they are built for libFuzzer: with the
# coverage that the stable compiler has.
sancov="-Cllvm-args=-sanitizer-coverage"
exec "$@" --cfg fuzzing -Cpasses=sancov-module $sancov-level=4 $sancov-inline-8bit-counters $sancov-pc-table $sancov-trace-compares
