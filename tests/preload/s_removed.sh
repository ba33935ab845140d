# A program that opens a file and has another one remove it, as scripts do with what they keep to
# themselves. What it had not read or written before was gone: "Stale file handle".
echo hello > a; exec 3<> a; rm a; cat <&3; echo more >&3; exec 3>&-
echo hello > b; exec 4< b; rm b; cat <&4; exec 4<&-
exec 3> f; exec 4< f; rm f; echo text >&3; cat <&4; echo again >&3; cat <&4; exec 3>&- 4<&-
exec 3> g; exec 4< g; rm g; echo text >&3; head -1 <&4; sh -c 'echo x >&3; cat <&4'; exec 3>&- 4<&-
echo hello > h; exec 3<> h; echo other > i; mv i h; cat <&3 h; exec 3>&-
python3 - <<'END'
import os, subprocess
def held(name, remove):
    with open(name, "w") as file:
        file.write("hello")
    fd = os.open(name, os.O_RDWR)
    remove(name)
    print(name, subprocess.run("cat; echo more >&0", shell=True, stdin=fd, stdout=-1, stderr=-1), os.pread(fd, 20, 0))
    os.close(fd)
held("fork", lambda name: os.fork() == 0 and (os.unlink(name), os._exit(0)) or os.wait())
held("run", lambda name: subprocess.run(["rm", name]))
held("system", lambda name: os.system(f"rm {name}"))
held("spawn", lambda name: os.waitpid(os.posix_spawnp("rm", ["rm", name], os.environ), 0))
held("popen", lambda name: os.popen(f"rm {name}").close())
END
ls
