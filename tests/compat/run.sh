#!/bin/bash
# tests/compat/run.sh BUILD_DIR: containers that earlier versions wrote (run.py).
exec python3 "$(dirname "$(realpath "$0")")/run.py" "$1"
