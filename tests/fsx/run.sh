#!/bin/bash
# tests/fsx/run.sh BUILD_DIR [TEST...]
#
# Proves: fsx: random operations on one file, in a mount, in one with plain files, and under `plfs run`, agree with fsx's own model; the mount needs root
# Takes 100 s
# Alone: beside fsx on fixed processors Linux 6.18 let processes that could run wait for 20 s (/proc/PID/schedstat), such as the daemon that MPI_Init of Open MPI waits for.
# fsx, the file system exerciser of crates.io: random operations on one file, and after each a look
# whether it is what fsx's own model says; in a mount, maps included, and under `BUILD_DIR/bin/plfs
# run`. OPS operations at each door (40,000) from fresh seeds: PLFS_SEED and those after it, a seed
# for each processor, which run side by side, each with its mount on a processor of its own: one
# that wakes the other on another processor takes three times as long. A million takes 3 minutes of
# a processor.
# What has to be installed first goes to PLFS_TEST_CACHE, by default ~/.cache/plfs-tests.
set -u
here=$(dirname "$(realpath "$0")")
self=$here/$(basename "$0")
export LC_ALL=C

# One job, called by xargs: PLACE is its slot. Leaves ok or what was wrong in $work/JOB.said.
if [ "${1:-}" = --job ]; then
    job=$2-$3-$4 door=$2 config=$3 seed=$4 ops=$5
    mapfile -t cpus < <(taskset -cp $$ | sed 's/.*: //' | tr , '\n' | awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }')
    taskset -cp "${cpus[PLACE % ${#cpus[@]}]}" $$ > /dev/null
    # In memory: one operation in eight makes the storage sync, which is what all the time would go
    # to.
    memory=$(mktemp -d /dev/shm/plfs-fsx.XXXXXX)
    mkdir "$memory/backend" "$memory/point" "$memory/artifacts"
    trap 'rm -rf "$memory"' EXIT
    run=(timeout -k 5 $((120 + ops / 250)) "$fsx" -f "$work/$config.toml" -S "$seed" -N "$ops" -P "$memory/artifacts")
    said=$work/$job.said
    if [ "$door" != run ]; then
        [ "$door" != auto ] || export PLFS_WORKLOAD=auto
        timeout -k 5 30 "$plfs" mount "$memory/point" --backend "$memory/backend" > "$work/$job.log" 2>&1 || { echo "no mount: $(tail -1 "$work/$job.log")" > "$said"; exit; }
        "${run[@]}" "$memory/point/f" > "$work/$job.log" 2>&1 < /dev/null; status=$?
        timeout -k 5 90 "$plfs" umount "$memory/point" || timeout -k 5 20 "$plfs" umount --lazy "$memory/point"
    else
        "$plfs" run --mount "$memory/backend" -- "${run[@]}" "$memory/backend/f" > "$work/$job.log" 2>&1 < /dev/null; status=$?
    fi
    left=$("$plfs" check "$memory/backend" 2>&1) || status="$status, and what it left is not healthy: $left"
    [ "$door" = auto ] || [ -n "$(find "$memory/backend/.plfs" -name '*.data' 2> /dev/null | head -1)" ] || status="$status, and left no data in a container"
    # What was overwritten does not stay for ever: at a close 64 MiB and four times the file's size
    # at most; the bound leaves as much again for what is written between two closes.
    kib=$(du -sk "$memory/backend" | cut -f1)
    [ "$config" = large ] || [ "$kib" -lt 200000 ] || status="$status, and its file of 400 KB takes $kib KiB"
    if [ "$status" = 0 ]; then echo ok > "$said"; else echo "status $status" > "$said"; fi
    exit 0
fi

build=$(realpath "$1") && shift || exit 2
wanted=" $* "
plfs=$build/bin/plfs
[ -x "$plfs" ] || { echo "no $plfs"; exit 2; }
cache=${PLFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/plfs-tests}
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-fsx.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$cache"
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
OPS=${OPS:-40000} seed=${PLFS_SEED:-$RANDOM}
# A seed of fsx has 32 bits.
seeds=() share=$((OPS / $(nproc)))
for ((i = 0; i < $(nproc); i++)); do seeds+=($(((seed + i) % (1 << 32)))); done

# fsx 0.3.2 with a line more: it never unmaps what it maps for reading. So files that it closes stay
# open, and after some 600,000 operations the kernel gives it no more maps (vm.max_map_count).
# Its log has no patterns and no times, and what it needs to start is not optimised: half a build.
fsx=$cache/fsx-0.3.2-unmaps/bin/fsx
install_fsx() {
    [ -x "$fsx" ] && return
    mkdir -p "$work/fetch/src" && : > "$work/fetch/src/lib.rs"
    printf '[package]\nname = "f"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\nfsx = "=0.3.2"\n' > "$work/fetch/Cargo.toml"
    { (cd "$work/fetch" && cargo fetch) && cp -r "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/fsx-0.3.2 "$work/source" &&
        sed -i '/fn domapread/,/^    }/s/self.check_eofpage(offset, p.as_ptr(), size);/& munmap(p, map_size).unwrap();/' "$work/source/src/main.rs" &&
        [ "$(grep -c 'check_eofpage.*munmap' "$work/source/src/main.rs")" = 1 ] &&
        sed -i '/^\[dependencies.env_logger\]/a default-features = false' "$work/source/Cargo.toml" &&
        printf '[profile.release.package.%s]\nopt-level = 0\n' '"*"' >> "$work/source/Cargo.toml" &&
        printf '[profile.release.package.%s]\nopt-level = 3\n' rand rand_core rand_chacha rand_xorshift ppv-lite86 zerocopy nix >> "$work/source/Cargo.toml" &&
        CARGO_TARGET_DIR=$work/target cargo build --quiet --release --manifest-path "$work/source/Cargo.toml" && mkdir -p "${fsx%/*}" && cp "$work/target/release/fsx" "$fsx"; } > "$work/install.log" 2>&1
    [ -x "$fsx" ]
}
if ! install_fsx; then
    result fsx skip "cargo install fsx: $(tail -1 "$work/install.log")"
    exit 0
fi

# Writable shared mappings of containers are refused under plfs run, and fsx maps for reading with
# PROT_WRITE too: no maps there.
common=$'read = 10\nwrite = 10\ntruncate = 4\n'
syncs=$'fsync = 1\nfdatasync = 1\nclose_open = 1\n'
# A posix_fallocate of length 0 is EINVAL everywhere, which fsx takes for "not supported": min = 1.
most=$'flen = 400000\n[opsize]\nmin = 1\nmax = 20000\n[weights]\n'$common$'sendfile = 2\nposix_fadvise = 2\ncopy_file_range = 3\nposix_fallocate = 2\npunch_hole = 2\n'
echo "${most}"$'mapread = 5\nmapwrite = 5\n'"${syncs//= 1/= 0.5}" > "$work/maps.toml"
echo "${most}"$'mapread = 0\nmapwrite = 0\n'"$syncs" > "$work/all.toml"
echo $'flen = 20000\n[opsize]\nmax = 300\n[weights]\nmapread = 0\nmapwrite = 0\n'"$common$syncs" > "$work/small.toml"
echo $'flen = 16777216\n[opsize]\nmax = 131072\nalign = 4096\n[weights]\nmapread = 0\nmapwrite = 0\n'"$common$syncs" > "$work/large.toml"

jobs=()
if [ "$(id -u)" = 0 ] && [ -e /dev/fuse ]; then
    for one in "${seeds[@]}"; do jobs+=("mount maps $one $share"); done
    # In a mount whose new files are plain.
    jobs+=("auto maps $seed $((share / 2))")
elif is_wanted mount; then result mount skip "needs root and /dev/fuse"; fi
for one in "${seeds[@]}"; do jobs+=("run all $one $share"); done
# Small pieces, which many records make, and a file of many segments.
jobs+=("run small $seed $((OPS / 8))" "run large $seed $((OPS / 8))")

export work plfs fsx
for job in "${jobs[@]}"; do is_wanted "$job" && echo "$job"; done > "$work/jobs"
xargs -r -a "$work/jobs" -L1 -P "$(nproc)" --process-slot-var=PLACE bash "$self" --job
while read -r door config seed ops; do
    said=$(cat "$work/$door-$config-$seed.said" 2>&1)
    if [ "$said" = ok ]; then
        result "$door $config, seed $seed, $ops operations" ok
        explored "$ops" "operations of fsx"
    else
        result "$door $config, seed $seed, $ops operations" fail "$said"
        # What fsx found comes first; its last operations come last.
        grep -v 'fsx\] [0-9]' "$work/$door-$config-$seed.log" | head -5 | show
        tail -n "${T_LINES:-20}" "$work/$door-$config-$seed.log" | show
    fi
done < "$work/jobs"
