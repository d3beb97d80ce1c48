#!/usr/bin/env bash
# Makes the one file (deploy/release.sh) and runs it where nothing is but that file and glibc: it answers `advise`, checks
# the flags of its answer, serves its dashboard, and says of ranks that it has none.
#
# Usage: one_file.sh SOURCE_DIR
set -euo pipefail
export LC_ALL=C

fail() {
  printf 'one-file: %s\n' "$*" >&2
  exit 1
}
skip() {
  printf 'one-file: SKIPPED: %s\n' "$*"
  exit 77
}

for program in chroot curl python3 readelf strip; do
  command -v "$program" > /dev/null || skip "$program is not here"
done

scratch="$(mktemp -d)"
server=
clean_up() {
  [[ -z "$server" ]] || kill "$server" 2> /dev/null || true
  wait
  rm -rf "$scratch"
}
trap clean_up EXIT

root="$scratch/root"
mkdir -p "$root/lib64" "$root/lib/x86_64-linux-gnu" "$root/tmp"
"$1/deploy/release.sh" "$root/moeplan"
((EUID == 0)) || skip "made; a root of its own needs root"
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
cp -L /lib/x86_64-linux-gnu/lib{c,m}.so.6 "$root/lib/x86_64-linux-gnu/"

question=(--hardware h100-sxm:8x8 --model qwen3-30b-a3b --global-batch 512 --sequence-length 4096)
chroot "$root" /moeplan advise "${question[@]}" > "$scratch/advice" || fail "advise failed"
lines="$(wc -l < "$scratch/advice")"
((lines > 5 && lines <= 30)) || fail "advise printed $lines lines, expected 6 to 30"
chroot "$root" /moeplan advise "${question[@]}" --json > "$scratch/advice.json" || fail "advise --json failed"
flags="$(python3 -c 'import json, shlex, sys; print(shlex.join(json.load(open(sys.argv[1]))["export"]["arguments"]))' "$scratch/advice.json")"
chroot "$root" /moeplan check --to megatron --gpus 64 --model qwen3-30b-a3b --arguments "$flags" > "$scratch/check" ||
  fail "check refused the flags of advise, $flags: $(cat "$scratch/check")"

# Ranks are processes of the program, which they find by /proc.
status=0
"$root/moeplan" calibrate --local 2 --db "$scratch/ranks.db" > "$scratch/ranks" 2>&1 || status=$?
grep -q 'no Gloo' "$scratch/ranks" || fail "calibrate --local said nothing of Gloo: $(cat "$scratch/ranks")"
((status != 0)) || fail "calibrate --local ended with 0"

chroot "$root" /moeplan serve --db /tmp/moeplan.db --grpc 127.0.0.1:0 --http 127.0.0.1:0 > "$scratch/serve" 2>&1 &
server=$!
address=
for ((i = 0; i < 200; ++i)); do
  address="$(grep -oE 'http[^ ]*127\.0\.0\.1:[0-9]+' "$scratch/serve" | grep -oE '127.*' | head -n 1)" && break
  kill -0 "$server" 2> /dev/null || fail "serve ended: $(cat "$scratch/serve")"
  sleep 0.1
done
[[ -n "$address" ]] || fail "serve named no address: $(cat "$scratch/serve")"
curl -sf -H 'Accept: text/html' "http://$address/" | grep -qi '<!doctype html>' || fail "serve has no dashboard"
printf 'one-file: advise, check and serve run beside glibc alone\n'
