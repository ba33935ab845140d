# git: many small files, renames of temporaries, mmap, locks.
command -v git > /dev/null || { echo "no git" >&2; exit 77; }
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' HOME=$PWD GIT_CONFIG_NOSYSTEM=1
git init -q -b main r && cd r || exit 1
git config user.email a@b.c; git config user.name n; git config gc.auto 0
for i in 1 2 3 4 5; do seq $((i * 300)) > f$i; done
git add . && git commit -qm one && git rev-parse HEAD
sed -i s/7/seven/ f2; git status --short; git diff --stat; git commit -qam two; git log --oneline; git mv f1 g1; git commit -qm three
git checkout -q HEAD~1 && ls && git checkout -q main; git repack -qad; git fsck --no-progress 2>&1; git gc -q; git cat-file -p HEAD:f2 | cksum; git stash list; git clone -q . ../clone; cd ..; diff -r -x .git r clone && echo clone
rm -rf r clone; ls -A
