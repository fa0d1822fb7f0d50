#!/usr/bin/env bash
# What the documents say is tried: programs are compiled and run, tables compared. See docs.py.
# Usage: tests/docs/run.sh BUILD_DIR
exec python3 "$(dirname "${BASH_SOURCE[0]}")/docs.py" "$@"
