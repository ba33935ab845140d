# Ordinary tools.
seq 20000 > n
dd if=n of=d bs=47001 conv=fsync 2> /dev/null; cmp n d && echo dd
dd if=/dev/zero of=d bs=1000 count=3 seek=2 conv=notrunc 2> /dev/null; cksum < d
dd if=d bs=1 skip=500 count=20 2> /dev/null
dd if=n of=ap bs=4k oflag=append conv=notrunc 2> /dev/null; dd if=n of=ap bs=4k oflag=append conv=notrunc 2> /dev/null; cksum < ap
dd if=/dev/zero of=sparse bs=1 count=0 seek=1M 2> /dev/null; stat -c %s sparse
cp n c1; cp -a n c2; cp --sparse=always sparse c3; cp n /tmp/s_core.$$; cp /tmp/s_core.$$ back; rm /tmp/s_core.$$; cmp n back && echo cp
mv c1 c4; mv c4 /tmp/s_core.$$; mv /tmp/s_core.$$ c5; cmp n c5 && echo mv
ln c5 hard; ln -s c5 soft; stat -c '%h %s' hard; cat soft | tail -1; stat -Lc %s soft
mkdir -p x/y/z; cp n x/y/z/f; cp -r x w; cmp n w/y/z/f && echo cpr; du -sb --apparent-size n | cut -f1
rm -rf x; ls; find . -size +50k | sort; find w -type f -name f -exec tail -1 {} +
sort -rn n -o n; head -1 n; sort -n n | md5sum; md5sum n > sums; md5sum -c sums
sed -i 's/^1$/one/' n; tail -1 n; grep -c 9 n; awk '{s += $1} END {print s}' n
gzip -k n; gunzip -c n.gz | cmp - n && echo gzip; gzip -l n.gz > /dev/null && echo listed; rm n.gz; bzip2 -k n 2> /dev/null && rm -f n.bz2
split -l 5000 n part.; ls part.*; cat part.* | cmp - n && echo split
head -c 100 n > h; truncate -s 50 h; wc -c h; truncate -s +10 h; wc -c h; od -c h | tail -2
touch -d '2001-02-03 04:05:06 UTC' h; stat -c %Y h; touch -r h n; stat -c %Y n; chmod 600 n; stat -c %a n
install -m 640 n inst; stat -c '%a %s' inst; cp -p inst inst2; stat -c '%a %s' inst2
tac h > /dev/null; paste n n | sum; cut -c1 n | sort | uniq -c | head -2; comm n n | wc -l; join h h | wc -l; nl n | tail -1; fold -w 3 n | wc; shuf n | wc -l; tee t < n > /dev/null; cmp t n
csplit -s n 10 20; wc -l xx*; rm xx*; shred -u t; ls t 2> /dev/null; cmp n d > /dev/null; echo $?; diff n n && echo diff
xargs -a h echo > /dev/null; env cat h | wc -c; timeout 5 cat h | wc -c; ls -l n | awk '{print $1, $2, $5}'; stat -c '%F %s' n; file n > /dev/null 2>&1; realpath --relative-to=. n; readlink -f soft | xargs basename
mktemp -p . tXXXXXX > /dev/null; rm -f t??????; ls -a | grep plfs; rmdir w 2> /dev/null; echo $?
seq 5 > f; rev < f > rv; cat rv; column -t f > col; cat col; fmt f > fm; cat fm
touch tf; sleep 3 & tail -f --pid=$! tf > tfo 2> /dev/null & sleep .3; echo 2 >> tf; sleep 1.3; echo 3 >> tf; wait; cat tfo
