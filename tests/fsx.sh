# The file system exerciser of crates.io, for tests/fuse/run.sh and tests/programs/run.sh, with a line more: fsx 0.3.2 never unmaps what it maps for reading. So files that it closes
# stay open, and after some 600,000 operations the kernel gives it no more maps (vm.max_map_count).

fsx_program() { # CACHE WORK: sets fsx; false if it cannot be had, and $2/fsx-install.log says why
    fsx=$1/fsx-0.3.2-unmaps/bin/fsx
    [ -x "$fsx" ] && return
    mkdir -p "$2/fetch-fsx/src" && : > "$2/fetch-fsx/src/lib.rs"
    printf '[package]\nname = "f"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\nfsx = "=0.3.2"\n' > "$2/fetch-fsx/Cargo.toml"
    { (cd "$2/fetch-fsx" && cargo fetch) && cp -r "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/fsx-0.3.2 "$2/fsx-source" &&
        sed -i '/fn domapread/,/^    }/s/self.check_eofpage(offset, p.as_ptr(), size);/& munmap(p, map_size).unwrap();/' "$2/fsx-source/src/main.rs" &&
        [ "$(grep -c 'check_eofpage.*munmap' "$2/fsx-source/src/main.rs")" = 1 ] &&
        cargo install --quiet --locked --path "$2/fsx-source" --root "$1/fsx-0.3.2-unmaps"; } > "$2/fsx-install.log" 2>&1
    [ -x "$fsx" ]
}

# What it found comes first; its last operations come last.
fsx_failure() { # LOG
    grep -v 'fsx\] [0-9]' "$1" | head -5
    tail -${T_LINES:-20} "$1"
}
