#!/usr/bin/env bash
# Each room includes only what docs/design.md §1 lets it ("Arrows"), and names only what is in its own namespace.
#
# Usage: arrows.sh SOURCE_DIR
set -euo pipefail
export LC_ALL=C
cd "$1"

# ROOM: what its files may include, as the beginning of a path. Rooms inside another one come first, and count alone.
readonly arrows='
planner/client: planner/client/ proto/ models/ moeplan/
planner/service: planner/ db/ proto/ models/ moeplan/
planner/sweep: planner/ proto/ models/ moeplan/
planner: planner/ models/
models: models/
executor: executor/ models/
proto: proto/ models/ moeplan/
db: db/ models/
agent: agent/ executor/ proto/ models/ moeplan/
'

broken=0
seen=()
while IFS=: read -r room allowed; do
  [[ -n "$room" ]] || continue
  pattern="$(tr -s ' ' '\n' <<< "$allowed" | sed '/^$/d' | paste -sd '|')"
  others=()
  for inner in ${seen[@]+"${seen[@]}"}; do
    [[ "$inner" != "$room"/* ]] || others+=(--exclude-dir="${inner#"$room"/}")
  done
  seen+=("$room")
  while IFS= read -r line; do
    printf 'arrows: %s; %s may include %s\n' "$line" "$room/" "${allowed# }"
    broken=1
  done < <(grep -rnE '^#include "' "$room" --include='*.h' --include='*.cc' --include='*.cu' ${others[@]+"${others[@]}"} |
    grep -vE "#include \"($pattern)" || true)
done <<< "$arrows"

# ROOM: its namespace below moeplan. A message that is only declared stands in v1.
readonly namespaces='
planner/client: client
planner/service: service
planner: planner
executor: executor
agent: agent
cli: cli
'
while IFS=: read -r room namespace; do
  [[ -n "$room" ]] || continue
  others=()
  if [[ "$room" == planner ]]; then others=(--exclude-dir=client --exclude-dir=service); fi
  while IFS= read -r line; do
    printf 'arrows: %s; what %s/ defines is in namespace moeplan::%s\n' "$line" "$room" "${namespace# }"
    broken=1
  done < <(grep -rnE '^namespace moeplan( |::)' "$room" --include='*.h' --include='*.cc' --include='*.cu' --include='*.cuh' \
    ${others[@]+"${others[@]}"} | grep -vE "namespace moeplan::(${namespace# }(::[a-z_:]+)?|v1) \{" || true)
done <<< "$namespaces"

((broken == 0)) && printf 'arrows: every include goes one way, every room has its namespace\n'
exit "$broken"
