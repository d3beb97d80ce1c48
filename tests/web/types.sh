#!/usr/bin/env bash
# The dashboard's types agree with each other and with the messages of proto/.
#
# Usage: types.sh WEB
set -euo pipefail
cd "$1"
npm run --silent check
