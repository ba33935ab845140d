# Redirections of the shell.
echo hello > a
cat a
echo more >> a
cat < a
(echo 1; echo 2; /bin/echo 3) > b
cat b
{ read x; read y; echo "$y $x"; cat; } < b
exec 3> c; echo x >&3; /bin/echo y >&3; exec 3>&-; cat c
exec 4<> c; read -u 4 l; echo "$l"; echo Z >&4; exec 4>&-; cat c
ls nothing > e 2>&1; wc -l < e
cat <<END > h
here $((1 + 1))
END
cat h; : > h; wc -c < h
for i in 1 2 3; do echo $i; done | tee t1 t2 | tr 1 9 > t3; cat t1 t2 t3
x=$(< a); echo "$x"
diff <(cat a) a && echo equal
set -C; echo no > a; echo $?; echo yes >| a; set +C; cat a
while read -r l; do echo "[$l]"; done < b >> loop; cat loop
(head -1; echo rest; cat) < b
seq 1000 > s; tail -3 s; head -2 s; sed -n 500p s
echo a > p & wait; cat p
sh -c 'echo from sh; exec ls -d .' > q; cat q
[ -s a ] && [ -f a ] && [ a -nt nothing ] && echo tests
bash -c 'echo bash-child >> q; exit 3'; echo $?; cat q
printf '%s\n' b a c | sort > srt; cat srt
trap 'echo bye >> trapped' EXIT
