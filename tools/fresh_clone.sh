#!/usr/bin/env bash
# What a stranger does: clones, with an empty home, and runs the given make targets.
#
#     tools/fresh_clone.sh [--without-java] [TARGET ...]      (demo and test, if none is given)
#
# With --without-java the PATH has everything that it had but Java, and JAVA_HOME is not set.
# The clone is of what is committed here; it is removed at the end.
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
path="$PATH"
if [ "${1:-}" = --without-java ]; then
    shift
    mkdir "$place/bin"
    # First come, first served, as on a PATH.
    IFS=:
    for folder in $PATH; do
        for program in "$folder"/*; do
            name="${program##*/}"
            case "$name" in java | javac | jar | jcmd | jshell | keytool) continue ;; esac
            [ -x "$program" ] && [ ! -e "$place/bin/$name" ] && ln -s "$program" "$place/bin/$name"
        done
    done
    unset IFS JAVA_HOME
    path="$place/bin"
fi
mkdir "$place/home"
git clone --quiet "$here" "$place/headrace"
cd "$place/headrace"
[ $# -gt 0 ] || set -- demo test
for target in "$@"; do
    echo "== make $target, $(git rev-parse --short HEAD), Java: $(PATH="$path" command -v java || echo none)"
    began=$SECONDS
    env -u PYTHONPATH -u XDG_CACHE_HOME HOME="$place/home" PATH="$path" make "$target"
    echo "== make $target took $((SECONDS - began)) s"
done
