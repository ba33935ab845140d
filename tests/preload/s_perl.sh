# perl: its own buffering, -i, and in-place edits.
command -v perl > /dev/null || { echo "no perl" >&2; exit 77; }
perl -e 'open F, ">", "a"; print F "line $_\n" for 1..2000; close F; open F, "<", "a"; my $n = 0; $n++ while <F>; print "$n\n"; print -s "a", "\n"; seek F, 5, 0; read F, $b, 7; print $b; close F;
open F, "+<", "a"; seek F, 0, 2; print F "end\n"; print tell(F), "\n"; close F; open F, ">>", "a"; print F "app\n"; close F; rename "a", "b"; print -e "a" ? 1 : 0, -s "b", "\n";
opendir D, "."; print join(",", sort readdir D), "\n"; open STDOUT, ">", "so"; print "into so\n"; system "echo child"; '
cat so; perl -pi -e 's/line 7$/seven/' b; sed -n 7p b; perl -ne 'print if eof' b; perl -e 'truncate "b", 10; print -s "b", "\n"; unlink "b"; print -e "b" ? 1 : 0, "\n"'
awk 'BEGIN { for (i = 0; i < 100; i++) print i > "w"; close("w"); while ((getline l < "w") > 0) n++; print n; print "x" | "cat > w2"; close("w2"); getline y < "w2"; print y }'
