#!/usr/bin/env bash
# The C++ block of README.md is the example, to the letter.
#
# Usage: readme_shows_example.sh SOURCE_DIR
set -euo pipefail
cd "$1"
diff <(sed -n '/^```cpp$/,/^```$/{//!p}' README.md) tests/package/example/main.cc
