# tar, cpio-like copies, rsync.
mkdir -p src/sub; seq 5000 > src/a; seq 100 > src/sub/b; ln src/a src/hard; ln -s a src/soft; touch src/empty; chmod 640 src/sub/b
touch -d '2010-01-01 00:00:00 UTC' src/a src/sub/b src/empty
tar cf t.tar src; tar tf t.tar | sort; mkdir out; tar xf t.tar -C out; diff -r src out/src && echo tar
tar czf t.tgz src; mkdir out2; tar xzf t.tgz -C out2; diff -r src out2/src && echo tgz; stat -c '%Y %h %s' out/src/a
tar cf - src | tar xf - -C out2 && diff -r src out2/src && echo pipe; tar rf t.tar src/empty; tar df t.tar && echo compared; rm t.tar t.tgz
if command -v rsync > /dev/null; then
    rsync -a src/ r/; diff -r src r && echo rsync; stat -c '%Y %a %s' r/sub/b
    echo changed >> src/a; rsync -a --delete src/ r/; diff -r src r && echo again; rm src/empty; rsync -a --inplace --delete src/ r/; ls r
    rsync -aH src/ rh/; stat -c %h rh/a
fi
command -v cpio > /dev/null && (cd src && find . | cpio -o 2> /dev/null) > c.cpio && rm c.cpio
command -v zip > /dev/null && zip -qr z.zip src && unzip -qo z.zip -d z && diff -r src z/src && echo zip && rm z.zip
rm -rf out out2; ls
