mkdir -p a; echo one > a/x; ln -s $PWD/a/x l; cat l; echo two >> l; cat a/x; cd a; echo rel > ../r; cat ../r; cd ..; cat ./a/../r; echo q > "sp ace:co\\lon"; cat sp*; cat $PWD/../t/r
f=a/x; exec 5<> $f; flock 5 -c "echo locked"; exec 5>&-
( ulimit -n 64; for i in $(seq 100); do echo $i; done > u ); tail -1 u
yes | head -c 100000 > y; wc -c y; head -c 10 y | wc -c; sort y | uniq -c
env -i /bin/cat r > /dev/null; nohup sh -c 'echo nohup > nh' > /dev/null 2>&1; cat nh; nice cat nh; stdbuf -oL cat nh; setsid -w sh -c 'echo s > ss'; cat ss; timeout 2 sh -c 'cat > tin' < nh; cat tin
coproc cat > cop; echo hi >&${COPROC[1]}; exec {COPROC[1]}>&-; wait; cat cop
mkfifo ff; cat ff > fo & echo through > ff; wait; cat fo; cp -r a b; diff -r a b && echo same; ls -R | head -20; dash -c 'echo d > dd; cat dd; exec cat < dd'; find . -name x -delete; find . -newer r -type f | sort | head -3; test -O r && echo own; [[ a/x -ef b/x ]] || echo differ; mapfile -t m < y; echo ${#m[@]}; printf '%(%Y)T\n' 0 > pt; cat pt; cat r | tee -a r2 | tee -a r2 > /dev/null; cat r2; truncate -s 0 r2; [ -s r2 ] || echo emptied; chmod 000 r; [ -r r ]; echo $?; rm -f r; ls
