#!/bin/sh
# Steps 15 to 17 on a clean checkout: sh run_all.sh CHECKOUT
set -e
here=$(dirname "$(readlink -f "$0")"); tree=$1
for kind in class function member; do
  echo "== $kind"; python3 "$here/rename.py" "$tree" --kind $kind > "/tmp/rename-$kind.txt" || true
  grep -v "^STRING\|encode (attr" "/tmp/rename-$kind.txt" | tail -40
done
cd "$tree"
.venv/bin/ruff check --fix --select I,RUF022 -q || true
.venv/bin/ruff format -q
python3 "$here/wrap.py" "$tree"
.venv/bin/ruff format -q
