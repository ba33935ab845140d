#!/bin/bash
# tests/fuzz/run.sh BUILD_DIR [TARGET...]
#
# Proves: every decoder, fed hostile bytes by libFuzzer (fuzz/fuzz_targets), keeps what its target asserts
# Takes 140 s
# Each target for FUZZ_SECONDS (6) of a processor, as many side by side as there are processors.
# They start from the containers of tests/compat and from what earlier runs found (fuzz/corpus,
# which is not kept in git); what fails stays in fuzz/artifacts, and target/release/TARGET FILE
# repeats it.
# Coverage is what the stable compiler has for it, without a sanitizer: the decoders have no unsafe
# code.
set -u
here=$(dirname "$(realpath "$0")")
shift
wanted=" $* "
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"
cd "$here/../.." || exit 2
# Each target runs for seconds: an optimised build takes longer than it saves.
build=()
for crate in plfs-format plfs-index plfs-rc plfs-fuzz; do build+=(--config "profile.release.package.$crate.opt-level=1" --config "profile.release.package.$crate.debug-assertions=true"); done
for source in fuzz/fuzz_targets/*.rs; do build+=(--bin "$(basename "$source" .rs)"); done
RUSTC_WORKSPACE_WRAPPER=$here/rustc.sh "${CARGO:-cargo}" build --quiet --locked --release --workspace "${build[@]}" || { result build fail "status $?"; exit 1; }
programs=$(realpath "${CARGO_TARGET_DIR:-target}/release")
cd fuzz || exit 2
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-fuzz.XXXXXX")
trap 'rm -rf "$work"' EXIT

# Superblocks, index logs and flat indexes of all versions: each target takes what it knows.
mkdir -p "$work/seeds" artifacts
for archive in "$here"/../compat/v*/v*.tar.gz; do
    mkdir "$work/one" && tar xzf "$archive" -C "$work/one"
    find "$work/one" -path '*/.plfs/*' -type f -size -9k ! -name '*.data' -print0 | while IFS= read -r -d '' file; do cp "$file" "$work/seeds/$(md5sum < "$file" | cut -c1-16)"; done
    rm -r "$work/one"
done

targets=()
for source in fuzz_targets/*.rs; do
    target=$(basename "$source" .rs)
    is_wanted "$target" || continue
    targets+=("$target")
    mkdir -p "corpus/$target"
done
# libFuzzer takes 0 for a fresh seed.
seed=$((${PLFS_SEED:-0} % 4294967295 + 1))
export work programs seed FUZZ_SECONDS=${FUZZ_SECONDS:-6}
# shellcheck disable=SC2016 # the inner shell's
printf '%s\n' "${targets[@]}" | xargs -P "$(nproc)" -I{} bash -c '"$programs/{}" -seed=$seed -max_total_time=$FUZZ_SECONDS -max_len=8192 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix=artifacts/{}- corpus/{} "$work/seeds" > "$work/{}.log" 2>&1; echo $? > "$work/{}.status"'
for target in "${targets[@]}"; do
    count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target.log")
    if [ "$(cat "$work/$target.status")" = 0 ] && [ "${count:-0}" -gt 1000 ]; then
        result "$target, $count executions" ok
        explored "$count" "fuzz executions"
    else
        result "$target" fail "status $(cat "$work/$target.status") after ${count:-no} executions"
        tail -n "${T_LINES:-30}" "$work/$target.log" | show
    fi
done
