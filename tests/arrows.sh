#!/usr/bin/env bash
# Each room includes only what docs/design.md §1 lets it ("Arrows"), and defines things in its own namespace alone.
#
# Usage: arrows.sh SOURCE_DIR
set -euo pipefail
export LC_ALL=C
cd "$1"

# ROOM: what its files may include, as the beginning of a path. Rooms inside another one come first, and count alone.
readonly arrows='
planner/client: planner/client/ proto/ models/ moeplan/
planner/messages: planner/ proto/ models/ moeplan/
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

# ROOM: its namespace below moeplan. Another namespace may only be opened to declare a class or a message of it.
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
  if [[ "$room" == planner ]]; then others=(-not -path '*/client/*' -not -path '*/service/*'); fi
  while IFS= read -r line; do
    printf 'arrows: %s; what %s/ defines is in namespace moeplan::%s\n' "$line" "$room" "${namespace# }"
    broken=1
  done < <(find "$room" \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) ${others[@]+"${others[@]}"} -print0 |
    xargs -0 awk -v own="^namespace moeplan::${namespace# }(::[a-z_:]+)? " '
      opened && !/^(class|struct) [A-Za-z]+;$/ { print opened }
      { opened = /^namespace moeplan/ && $0 !~ own ? FILENAME ":" FNR ": " $0 : "" }')
done <<< "$namespaces"

((broken == 0)) && printf 'arrows: every include goes one way, every room has its namespace\n'
exit "$broken"
