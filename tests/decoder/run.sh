#!/bin/bash
# tests/decoder/run.sh BUILD_DIR [TEST...]
#
# Proves: FORMAT.md says enough: a decoder written from it alone reads what the engine wrote, and both refuse the same
# Takes 70 s
# test_decode.py tests the decoder, agree.py decoder and engine against each other with random
# programs. TEST: test_decode, or a word in the names of agree.py.
set -u
here=$(dirname "$(realpath "$0")")
build=$(realpath "$1") && shift || exit 2
status=0
export PLFS_WORKLOAD=shared
if [ $# = 0 ] || [[ " $* " = *" test_decode "* ]]; then python3 -m unittest discover -v -s "$here" || status=1; fi
if [ $# = 0 ]; then set -- ""; fi
for word; do
    [ "$word" = test_decode ] || python3 "$here/agree.py" "$build" --only "$word" || status=1
done
exit $status
