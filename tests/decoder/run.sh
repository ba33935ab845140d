#!/bin/bash
# tests/decoder/run.sh BUILD_DIR: the decoder and the engine agree (agree.py).
exec python3 "$(dirname "$(realpath "$0")")/agree.py" "$1"
