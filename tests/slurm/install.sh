#!/usr/bin/env bash
# Installs what tests/slurm needs, where that is possible: as root on Debian or Ubuntu. Without it
# the tests are skipped, so nothing here is an error.
set -u
say() { echo "tests of Slurm: $*"; }

if command -v sbatch >/dev/null && command -v slurmd >/dev/null && command -v munged >/dev/null; then
  exit 0
elif [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  say "skipped, slurm-wlm and munge are not installed and cannot be here"
  exit 0
fi
log=$(mktemp)
export DEBIAN_FRONTEND=noninteractive
packages() { timeout 240 apt-get install -y -q --no-install-recommends slurm-wlm munge; }
if { packages || { timeout 120 apt-get update -q && packages; }; } >"$log" 2>&1; then
  say "installed slurm-wlm and munge"
else
  say "skipped, slurm-wlm and munge could not be installed: $(tail -n 1 "$log")"
fi
rm -f "$log"
