#!/usr/bin/env bash
# The house rules as tests. Usage: tests/tidy/run.sh [BUILD_DIR]; with a finished build it looks at
# the libraries too.
set -uo pipefail
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/tidy.py" "$@"
