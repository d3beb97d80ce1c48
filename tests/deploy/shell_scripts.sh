#!/usr/bin/env bash
# The scripts that are shipped, and those that test them, are clean for shellcheck.
#
# Usage: shell_scripts.sh SOURCE_DIR
set -euo pipefail
export LC_ALL=C
cd "$1"

command -v shellcheck > /dev/null || {
  printf 'scripts: SKIPPED: shellcheck is not here (Debian: shellcheck)\n'
  exit 77
}
scripts=(deploy/*.sh deploy/debian/{postinst,prerm,postrm} deploy/debian/*/{postinst,prerm} deploy/slurm/*.sbatch tests/deploy/*.sh)
shellcheck --severity=warning "${scripts[@]}"
printf 'scripts: %d are clean\n' "${#scripts[@]}"
