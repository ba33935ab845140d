#!/bin/bash
# tests/programs/run.sh BUILD_DIR [TEST...]
#
# Proves: unmodified programs of others under `plfs run` leave the same bytes as without
# Takes 80 s
# Unmodified programs of others under `BUILD_DIR/bin/plfs run --mount D --` and the same on a plain
# directory: exit status, output and the bytes of all files left behind must be equal. With T_FULL=1
# more data. fsx is in tests/fsx.
# What has to be installed first (h5py from PyPI) goes to PLFS_TEST_CACHE, by default
# ~/.cache/plfs-tests.
# Environment: T_DIR, where the directories are made (default /tmp).
set -u
build=$(realpath "$1") && shift || exit 2
wanted=" $* "
here=$(dirname "$(realpath "$0")")
[ -x "$build/bin/plfs" ] || { echo "no $build/bin/plfs"; exit 2; }
cache=${PLFS_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/plfs-tests}
work=$(mktemp -d "${T_DIR:-/tmp}/plfs-programs.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/in" "$work/bin" "$cache" -p
export LC_ALL=C TZ=UTC IN=$work/in BIN=$work/bin MIB=8
[ "${T_FULL:-}" = 1 ] && MIB=256
# shellcheck source=tests/lib.sh
. "$here/../lib.sh"

# shellcheck source=tests/same.sh
. "$here/../same.sh"
one_workload=yes

# Input that is the same for both sides.
python3 - "$work/in" $MIB <<'END'
import random, sys
rng, (where, mib) = random.Random(1), sys.argv[1:]
for name, n in (("big", int(mib) << 20), ("odd", 1_234_567), ("small", 10)):
    with open(f"{where}/{name}", "wb") as f:
        for at in range(0, n, 1 << 20):
            f.write(rng.randbytes(min(1 << 20, n - at)))
with open(f"{where}/text", "w") as f:
    f.writelines(f"{rng.randrange(10**9)} {rng.choice('abcdefgh') * rng.randrange(1, 30)}\n" for _ in range(60_000))
END

same dd 'dd if=$IN/big of=a bs=47001 status=none && dd if=a of=b bs=1M status=none && cmp a $IN/big && cmp b $IN/big
    dd if=$IN/odd of=a bs=1000 seek=77 conv=notrunc status=none; dd if=/dev/zero of=a bs=4k count=3 seek=20 conv=notrunc,fsync status=none
    dd if=$IN/odd of=c bs=512 seek=9999 status=none; dd if=b bs=4096 skip=100 count=50 status=none | md5sum; dd if=$IN/small of=c oflag=append conv=notrunc status=none'
same cp 'cp $IN/big a && cp a b && cp --sparse=always a c && cp -a a d && cp --reflink=auto b e && cp a a2 && ln a l && cp -l a l2 && cp --backup=numbered b a && cmp b $IN/big; truncate -s 3M s; cp --sparse=auto s s2'
same cat 'cat $IN/* > a; cat a a > b; cat < b | md5sum; tac $IN/text > t; head -c 5000 b; tail -c 5000 b; tail -n 3 t; cat b b >> a; wc t'
same tar 'mkdir t; cp $IN/* t; tar cf t.tar --sort=name --mtime=@1 t && tar tvf t.tar | awk "{print \$3, \$6}" && mkdir x && tar xf t.tar -C x && diff -r t x/t && tar rf t.tar --mtime=@2 -C t small && tar czf t.tgz -C t . ; rm t.tgz'
# Later versions of xz confine themselves to making one file (Landlock); a container is several.
same gzip 'cp $IN/text t; gzip -9kn t; gunzip -c t.gz | cmp - t; gzip -t t.gz; gunzip -f t.gz; bzip2 -k t 2> /dev/null && bzip2 -dc t.bz2 | cmp - t
    xz --version | grep -q " 5[.][0-4][.]" && xz -k t && xz -dc t.xz | cmp - t; true'
# -I because rsync compares times by the second, and the files change within one.
needs rsync rsync && same rsync 'mkdir a; cp $IN/* a; rsync -a a/ b && diff -r a b && printf x >> a/text && dd if=$IN/small of=a/odd seek=500 conv=notrunc status=none && rsync -aI --inplace a/ b && diff -r a b
    rsync -ac --no-whole-file --checksum-choice=md5 a/ c; printf y >> a/big; rsync -aI --no-whole-file a/ c && diff -r a c && rm a/odd && rsync -aI --delete a/ c && ls c; rsync -a --append a/ b; rsync -ainc a/ c'
same md5sum 'cp $IN/* .; md5sum * > sums; md5sum -c sums; sha256sum big > s2; sha256sum -c s2; cksum *'
same sort 'sort $IN/text > a; sort -k2 -n -o b a; sort -u a -o a; sort -T . -S 200K --parallel=2 $IN/text -o c; sort -c c && uniq -c c | tail -3; comm -12 a c | wc -l; split -l 10000 c part. && cat part.* | cmp - c; join a a | md5sum'
same bash 'for i in {1..500}; do echo "line $i" >> log; done; exec 5<> rw; echo hello >&5; echo again >&5; exec 5>&-; while read -r a b; do n=$((n + b)); done < log; echo $n
    { echo a; echo b >&2; } > out 2> err; cat <<< here > h; set -o noclobber; echo x > h || echo refused; echo y >| h; set +o noclobber; (echo sub; echo shell) > s; exec 3< log; read -r -u 3 l; read -r -u 3 m; echo "$l|$m"; : > log; ls -A
    { head -c 100000 /dev/zero | tr "\0" z & head -c 100000 /dev/zero | tr "\0" z & wait; } >> par; wc -c par; cat rw h s; [ -s s ] && [ log -nt nothing ]; echo $?'
same sed 'cp $IN/text t; sed -i.bak "s/abc*/X/g" t; grep -c X t; awk "{print \$1 > (\"f\" NR % 7)}" t; grep -rl 77777 . | sort | head; diff t t.bak | wc -l; patch --version > /dev/null && diff -u t.bak t > p; patch -s t.bak < p && cmp t t.bak'
same python3 'python3 - <<END
import os, shutil, random, sqlite3, zipfile, pickle, shelve
r = random.Random(3)
with open("a", "wb+") as f:
    for _ in range(2000):
        f.seek(r.randrange(1 << 20)); f.write(r.randbytes(r.randrange(3000)))
        if r.random() < .1: f.seek(r.randrange(1 << 20)); f.read(100); f.truncate(max(f.tell(), 1000))
shutil.copyfile("a", "b"); os.rename("b", "c")
with zipfile.ZipFile("z", "w") as z: z.writestr(zipfile.ZipInfo("a"), open("a", "rb").read()); z.writestr(zipfile.ZipInfo("t"), "text")
print(zipfile.ZipFile("z").testzip())
c = sqlite3.connect("db")
with c: c.execute("create table t (a, b)"); c.executemany("insert into t values (?, ?)", ((i, "x" * (i % 300)) for i in range(5000)))
with c: c.execute("delete from t where a % 3 = 0"); c.execute("create index i on t (b)")
c.execute("vacuum"); print(c.execute("select count(*), sum(a) from t").fetchall(), c.execute("pragma integrity_check").fetchall()); c.close()
END
for i in 1 2 3 4; do python3 -c "
import os
fd = os.open(\"n1\", os.O_RDWR | os.O_CREAT, 0o644)
for i in range(400): os.pwrite(fd, b\"$i\" * 4701, (i * 4 + $i - 1) * 4701)" & done; wait; md5sum n1'
needs gcc gcc ar make && same gcc 'printf "#include <stdio.h>\nint f(int);int main(){printf(\"%%d\\\\n\",f(3));return 0;}\n" > m.c; echo "int f(int a){return a*a;}" > f.c
    printf "all: m\nm: m.o libf.a\n\tgcc -o m m.o libf.a\nlibf.a: f.o\n\tar rcD libf.a f.o\n" > Makefile; make -s && ls -A && ar t libf.a && nm libf.a && strip m.o && size m.o'
needs git git && same git 'git init -q . && cp $IN/text $IN/odd . && git add . && git -c user.name=a -c user.email=b commit -qm one --date=@1 && echo x >> text && git diff --stat && git -c user.name=a -c user.email=b commit -qam two && git gc -q && git fsck && git clone -q . ../c && git -C ../c log --format=%s; git checkout -q HEAD~1 && md5sum text; rm -rf .git ../c'

# A job that verifies has times in its blocks, so it leaves nothing behind; a job that does not
# verify must leave the same bytes.
fio_job() { same "fio $1" "fio --name=j --directory=. --fallocate=none --randseed=7 --allrandrepeat=1 --output=/dev/null $2"; }
if needs fio fio; then
    # Processes that share a file do not unlink it: one of them may have opened it and not read yet,
    # and loses it then (docs/SEMANTICS.md).
    verify="--ioengine=psync --verify=crc32c --verify_fatal=1 --do_verify=1 --unlink=1"
    fio_job "verify shared" "--filename=shared --rw=write --bs=47001 --size=${MIB}m --numjobs=4 --offset_increment=${MIB}m --end_fsync=1 ${verify/--unlink=1/} && stat -c %s shared && rm shared"
    fio_job "verify randwrite" "--filename=shared --rw=randwrite --bsrange=1k-64k --bs_unaligned --size=${MIB}m --numjobs=4 --offset_increment=${MIB}m --fsync=32 ${verify/--unlink=1/} && ls -A && rm shared"
    fio_job "verify randrw" "--rw=randrw --bs=4k --size=${MIB}m --numjobs=3 $verify; ls -A"
    fio_job "verify threads" "--filename=shared --thread --rw=randwrite --bs=3000 --size=${MIB}m --numjobs=4 --offset_increment=${MIB}m $verify; ls -A"
    fio_job strided "--filename=shared --ioengine=psync --rw=write:141003 --bs=47001 --size=${MIB}m --numjobs=1 --offset=47001 --buffer_pattern=0x1badcafe"
    fio_job overwrites "--filename=shared --ioengine=pvsync --rw=randwrite --norandommap --bsrange=512-32k --size=${MIB}m --numjobs=4 --buffer_pattern=0x5eed --fdatasync=16"
fi

if is_wanted h5py; then
    export PYTHON=$cache/venv/bin/python
    if said=$(python_with "$cache/venv" h5py h5py); then same h5py '$PYTHON - <<END
import h5py, numpy as np
r = np.random.default_rng(5)
with h5py.File("f.h5", "w") as f:
    f["plain"] = r.random((300, 400))
    d = f.create_dataset("chunked", (0, 500), maxshape=(None, 500), chunks=(16, 500), compression="gzip", dtype="f8")
    for i in range(40):
        d.resize(16 * (i + 1), 0); d[16 * i:] = r.random((16, 500))
    g = f.create_group("g/h"); g.attrs["name"] = "value"; g["text"] = ["a", "bc"]
with h5py.File("f.h5", "r+") as f:
    f["plain"][10:20, ::3] = 7; del f["g/h/text"]; f["new"] = np.arange(100_000); f.flush(); f["chunked"][::50] = 1
with h5py.File("f.h5", "r") as f:
    print(f["plain"][:].sum(), f["chunked"][:].sum(), f["new"][-1], f["g/h"].attrs["name"], sorted(f))
END
cp f.h5 g.h5; h5dump -H f.h5 2> /dev/null | head -50'
    else result h5py skip "$said"; fi
fi

if is_wanted hdf5; then
    mpicc=$(command -v mpicc.mpich || command -v mpicc); mpiexec=$(command -v mpiexec.mpich || command -v mpiexec)
    if [ -n "$mpicc" ] && [ -n "$mpiexec" ] && flags=$(pkg-config --cflags --libs hdf5-mpich 2> /dev/null); then
        export MPIEXEC=$mpiexec MPIR_CVAR_POLLS_BEFORE_YIELD=1
        if "$mpicc" -O2 -o "$BIN/hdf5_shared" "$here/hdf5_shared.c" $flags; then
            for how in independent collective; do
                same "hdf5 $how" '$MPIEXEC -n 4 $BIN/hdf5_shared $PWD/f.h5 '$how' $((MIB * 2)) > /dev/null && md5sum f.h5'
            done
        else result hdf5 fail "does not compile"; fi
    else result hdf5 skip "needs mpich, libmpich-dev and libhdf5-mpich-dev"; fi
fi
