# Python's files, os calls, threads, subprocesses.
python3 - <<'END'
import os, sys, subprocess, threading, tempfile, mmap, shutil, pickle, io, time, fcntl, glob
open('a', 'w').write('text\n' * 1000); print(os.path.getsize('a'), open('a').read().count('text'))
with open('b', 'wb+', buffering=0) as f:
    f.write(bytes(range(256))); f.seek(10); print(f.read(5), f.tell()); f.truncate(100); print(os.fstat(f.fileno()).st_size)
    f.seek(0, 2); print(f.tell())
with open('b', 'ab') as f: f.write(b'tail'); print(f.tell())
fd = os.open('c', os.O_CREAT | os.O_RDWR, 0o644)
print(os.pwrite(fd, b'hello', 3), os.pread(fd, 10, 0), os.lseek(fd, 0, os.SEEK_END), os.writev(fd, [b'a', b'bc']), os.lseek(fd, 0, os.SEEK_CUR))
d = os.dup(fd); os.lseek(d, 1, 0); print(os.lseek(fd, 0, 1)); os.fsync(fd); os.ftruncate(fd, 4); print(os.stat('c').st_size)
pid = os.fork()
if pid == 0:
    os.read(fd, 2); os._exit(0)
os.waitpid(pid, 0); print(os.lseek(fd, 0, 1))
def work(i):
    for k in range(50): os.pwrite(fd, bytes([65 + i]) * 100, (k * 8 + i) * 100)
ts = [threading.Thread(target=work, args=(i,)) for i in range(8)]
[t.start() for t in ts]; [t.join() for t in ts]
print(os.fstat(fd).st_size, all(os.pread(fd, 100, j * 100) == bytes([65 + j % 8]) * 100 for j in range(400)))
os.close(fd); os.close(d)
with open('b', 'rb') as f:
    m = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ); print(m[:4], len(m)); m.close()
with open('o', 'w') as f: print(subprocess.call(['sh', '-c', 'echo out; echo err >&2'], stdout=f, stderr=subprocess.STDOUT))
print(open('o').read().split())
with open('o') as f: print(subprocess.run(['tr', 'a-z', 'A-Z'], stdin=f, capture_output=True).stdout)
with open('o', 'a') as f: f.write('before\n'); f.flush(); subprocess.run('echo appended; pwd > /dev/null', shell=True, stdout=f); f.write('after\n')
print(open('o').read().split())
with tempfile.NamedTemporaryFile(dir='.') as t: t.write(b'x' * 10); t.flush(); print(os.path.getsize(t.name))
with tempfile.TemporaryFile(dir='.') as t: t.write(b'y' * 10); t.seek(0); print(t.read())
shutil.copyfile('a', 'a2'); shutil.copy2('a', 'a3'); print(open('a').read() == open('a2').read() == open('a3').read())
os.replace('a2', 'a3'); os.link('a3', 'a4'); print(os.stat('a3').st_nlink, sorted(os.listdir('.')), [(e.name, e.stat().st_size) for e in sorted(os.scandir('.'), key=lambda e: e.name)])
pickle.dump(list(range(1000)), open('p', 'wb')); print(sum(pickle.load(open('p', 'rb'))))
os.utime('a', (1, 2)); print(os.stat('a').st_mtime, os.access('a', os.R_OK)); os.chmod('a', 0o600); print(oct(os.stat('a').st_mode))
os.makedirs('x/y'); open('x/y/f', 'w').write('1'); shutil.move('x/y/f', 'x/f'); shutil.rmtree('x'); print(os.path.exists('x'), sorted(glob.glob('*')))
with open('a') as f: fcntl.flock(f, fcntl.LOCK_EX); fcntl.flock(f, fcntl.LOCK_UN)
with open('a', 'r+') as f: fcntl.lockf(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_UN)
s = os.open('sf', os.O_CREAT | os.O_RDWR); i = os.open('a', os.O_RDONLY); print(os.sendfile(s, i, 0, 100), os.fstat(s).st_size)
try: open('a', 'x')
except FileExistsError as e: print('exists')
try: open('nodir/a')
except FileNotFoundError: print('missing')
for mode in 'w', 'a', 'r+', 'w+': f = open('m', mode); f.write('12'); f.close(); print(mode, open('m').read())
import sqlite3
c = sqlite3.connect('db'); c.execute('create table t(a)'); c.executemany('insert into t values(?)', [(i,) for i in range(1000)]); c.commit(); print(c.execute('select sum(a) from t').fetchone()); c.close()
print(sqlite3.connect('db').execute('pragma integrity_check').fetchone()); os.unlink('db')
import multiprocessing as mp
def w(i):
    with open('mp', 'r+b') as f: f.seek(i * 10); f.write(b'%010d' % i)
open('mp', 'w').close()
with mp.Pool(4) as p: p.map(w, range(40))
print(open('mp').read()[-20:])
END
python3 -c 'print("to stdout"); import sys; sys.stderr.write("to stderr\n")' > so 2> se; cat so se; python3 -c 'import sys; print(sys.stdin.read().upper())' < so
