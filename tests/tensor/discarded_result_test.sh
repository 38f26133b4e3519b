#!/usr/bin/env bash
# discarded_result_test.sh COMPILER INCLUDE_FOLDER SOURCE: the compiler warns of each x.to(...) and
# DeviceScope that is dropped, which the tutorials' readers write, and of nothing else.
set -euo pipefail
compile() { LC_ALL=C "$1" -std=c++20 -Wall -fsyntax-only -I"$2" "${@:4}" "$3" 2>&1; }

quiet=$(compile "$@")
[[ -z $quiet ]] || { echo "warns of good code: $quiet"; exit 1; }
warnings=$(compile "$@" -DDDP_DROP | grep -c "warning: ignoring" || true)
[[ $warnings -eq 4 ]] || { echo "$warnings warnings of dropped results, not 4"; exit 1; }
