"""The consistency contract, one function a behaviour. SEMANTICS.md names each as `doors/NAME`, and
each runs through every door that can express it.

`w` is a World (doors.py): processes on nodes 0 and 1, which call `open`, `read`, `write` and so on.
What a behaviour needs besides files that can be opened, written, read, cut and synced stands above
it; a door that lacks it says why. `differs`: what SEMANTICS.md says where the library and its doors
do not behave so; `in_a_mount`: where a mount does not; `in_a_pack`: where it does not with small
files. It runs there too, and must not hold.
"""

import collections
import os
import random
import time

from doors import Refused

LIST = []
Behaviour = collections.namedtuple("Behaviour", "name needs differs run")
LIBRARY = ("rust", "c", "preload", "preload-small", "mpich", "openmpi")
USER = 65534


def behaviour(*needs, differs=None, in_a_mount=None, in_a_pack=None, run_in_a_pack=None):
    def listed(function):
        rows = dict.fromkeys(LIBRARY, differs) | {"fuse": in_a_mount}
        rows["fuse-small"] = in_a_mount if in_a_pack is None else in_a_pack
        rows["preload-small"] = run_in_a_pack or (differs if in_a_pack is None else in_a_pack)
        LIST.append(
            Behaviour(
                function.__name__, needs, {door: row for door, row in rows.items() if row}, function
            )
        )
        return function

    return listed


# Visibility.


@behaviour()
def own_writes_are_seen_at_once(w):
    process = w.process()
    one = process.open("f", "rwc")
    two = process.open("f", "rw")
    one.write(20, b"ccc")
    one.write(0, b"aaa")
    assert two.read(0, 100) == b"aaa" + bytes(17) + b"ccc" and two.size() == 23
    two.write(1, b"XY")
    assert one.read(0, 4) == b"aXY\0" and one.size() == 23


@behaviour()
def every_commit_is_seen_after_every_acquire(w):
    writer, readers = w.process(), [w.process(0), w.process(1)]
    for commit in w.door.commits:
        for acquire in w.door.acquires:
            for reader in readers:
                writer = writer if writer.is_alive() else w.process()
                name = f"{commit}.{acquire}.{reader.node}"
                f = writer.open(name, "rwc")
                f.write(0, b"a" * 100)
                f.sync()
                g = reader.open(name, "rw")
                assert g.read(0, 200) == b"a" * 100
                if commit == "unlock":
                    f.call("lock")
                f.write(50, b"later")
                w.commit(commit, f)
                seen = w.acquire(acquire, g, name)
                assert seen.read(48, 9) == b"aalateraa", (commit, acquire, reader.node)
                for file in {f, g, seen} - {f if commit in ("close", "exit", "exec") else None}:
                    file.close()


@behaviour()
def a_read_at_the_end_looks_again(w):
    for node in 0, 1:
        f, g = w.process().open(f"f{node}", "rwc"), w.process(node).open(f"f{node}", "rwc")
        f.write(0, b"one")
        f.sync()
        assert g.read(0, 10) == b"one" and g.size() == 3
        f.write(3, b"two")
        f.sync()
        time.sleep(w.door.settle_s * node)
        assert g.read(3, 10) == b"two" and g.size() == 6


@behaviour()
def what_is_written_is_committed_after_a_while(w):
    f = w.process().open("f", "rwc")
    f.write(0, b"not synced")
    reader = w.process(1)
    for _ in range(50):
        time.sleep(0.1)
        if reader.read("f") == b"not synced":
            return
    raise AssertionError("not seen after 5 s")


@behaviour()
def the_size_is_exact_and_never_goes_back(w):
    one, two, reader = w.process(), w.process(1), w.process()
    f = one.open("f", "rwc")
    f.write(900, b"x" * 100)
    f.sync()
    time.sleep(w.door.settle_s)
    g, h = two.open("f", "rw"), reader.open("f", "r")
    g.write(0, b"y" * 500)
    g.sync()
    seen = [h.size(), g.size()]
    f.write(1900, b"x" * 100)
    seen.append(h.size())
    one.kill()
    seen.append(h.size())
    h.close()
    seen.append(reader.open("f", "r").size())
    assert seen[:2] == [1000, 1000] and seen == sorted(seen) and seen[-1] in (1000, 2000), seen


@behaviour("stat")
def stat_and_handles_agree_on_the_size(w):
    process, other = w.process(), w.process()
    f = process.open("f", "rwc")
    for size in 10, 5000, 5001:
        f.write(size - 1, b"x")
        assert f.size() == f.stat().size == process.stat("f").size == size
        f.sync()
        assert other.stat("f").size == size


@behaviour("stat", "container")
def the_size_of_a_closed_file_is_known_without_its_logs(w):
    process, other = w.process(), w.process()
    process.write("f", b"x" * 5000)
    time.sleep(w.door.settle_s)
    container = w.container("f")
    # Times of the folder say whether the summary counts: only the logs' content may go.
    for directory, _, names in os.walk(container):
        for name in names:
            if name.endswith((".data", ".index")) or name == "flat":
                os.truncate(os.path.join(directory, name), 0)
    assert other.stat("f").size == 5000
    process.on_names("unlink", "f")


# Order of overlapping writes.


@behaviour()
def overlaps_look_the_same_to_all_for_ever(w):
    rng = random.Random(6)
    writers = [w.process(node).open("f", "rwc") for node in (0, 0, 1)]
    for step in range(60):
        who = rng.randrange(3)
        writers[who].write(rng.randrange(3000), bytes([1 + step]) * rng.randrange(1, 900))
        if rng.random() < 0.2:
            writers[who].sync()
    for f in writers:
        f.sync()
    # Once more, since what the first had synced was before what the last synced.
    for f in writers:
        f.sync()
    seen = writers[0].read(0, 5000)
    assert len(set(seen)) > 10
    for f in writers:
        assert f.read(0, 5000) == seen
        f.close()
    time.sleep(w.door.settle_s)
    assert w.process().read("f") == w.process(1).read("f") == seen
    w.flatten("f")
    assert w.process().read("f") == w.process(1).read("f") == seen


@behaviour()
def own_writes_keep_their_order(w):
    rng, model = random.Random(7), bytearray(4000)
    f = w.process().open("f", "rwc")
    for step in range(300):
        at, n = rng.choice([(rng.randrange(3000), rng.randrange(1, 1000)), (step * 7 % 3900, 9)])
        f.write(at, bytes([1 + step % 255]) * n)
        model[at : at + n] = bytes([1 + step % 255]) * n
    seen = f.read(0, 5000)
    assert seen == model[: len(seen)] and not any(model[len(seen) :])
    f.close()
    assert w.process().read("f") == seen
    w.flatten("f")
    assert w.process().read("f") == seen


@behaviour()
def who_has_seen_a_write_wins_over_it(w):
    for node in 0, 1:
        name = f"f{node}"
        one, two = w.process().open(name, "rwc"), w.process(node).open(name, "rwc")
        for turn in range(10):
            (first, second) = (one, two) if turn % 2 else (two, one)
            first.write(0, b"first %d" % turn)
            first.sync()
            second.sync()
            assert second.read(0, 10) == b"first %d" % turn
            second.write(0, b"later")
            second.sync()
            first.sync()
            assert (
                one.read(0, 5) == two.read(0, 5) == w.process(1 - node).read(name)[:5] == b"later"
            )


@behaviour()
def processes_of_a_node_are_ordered_as_they_wrote(w):
    rng, model = random.Random(9), bytearray(3000)
    writers = [w.process().open("f", "rwc") for _ in range(3)]
    for step in range(90):
        # Places and lengths that make no pattern: each write is a record of its own.
        at, n = rng.randrange(2000), rng.randrange(1, 1000)
        writers[rng.randrange(3)].write(at, bytes([1 + step]) * n)
        model[at : at + n] = bytes([1 + step]) * n
    for f in reversed(writers):
        f.sync()
    seen = w.process().read("f")
    assert seen == model[: len(seen)] and not any(model[len(seen) :])


@behaviour()
def nodes_are_ordered_by_their_clocks(w):
    one, two = w.process(0).open("f", "rwc"), w.process(1).open("f", "rwc")
    one.write(0, b"first")
    time.sleep(0.05)
    two.write(0, b"later")
    two.sync()
    one.sync()
    assert w.process().read("f") == w.process(1).read("f") == b"later"


@behaviour("append")
def appends_of_a_node_never_overlap(w):
    w.process().write("f", b"")
    writers = [w.process().open("f", "wa") for _ in range(3)]
    rng, lines = random.Random(11), []
    for i in range(100):
        for who, f in enumerate(writers):
            lines.append(b"%d.%d.%s\n" % (who, i, b"x" * rng.randrange(100)))
            f.send_append(lines[-1])
    for _ in range(100):
        for f in writers:
            f.process.receive()
    for f in writers:
        f.close()
    seen = w.process().read("f", 60000)
    assert sorted(seen.splitlines(True)) == sorted(lines)
    for who in range(3):
        assert [line for line in seen.splitlines(True) if line[:1] == b"%d" % who] == [
            line for line in lines if line[:1] == b"%d" % who
        ]


# Durability.


@behaviour()
def a_sync_survives_the_death_of_its_process(w):
    writer = w.process()
    f = writer.open("f", "rwc")
    for i in range(50):
        f.write(i * 1000, b"%d" % i * 100)
    f.sync()
    f.write(0, b"may be lost")
    writer.kill()
    reader = w.process(1).open("f", "r")
    assert all(reader.read(i * 1000, 100) == (b"%d" % i * 100)[:100] for i in range(1, 50))


@behaviour()
def a_close_survives_the_death_of_its_process(w):
    writer = w.process()
    writer.write("f", b"closed")
    writer.kill()
    assert w.process().read("f") == w.process(1).read("f") == b"closed"


@behaviour()
def a_killed_writer_leaves_whole_writes_and_all_that_it_synced(w):
    rng = random.Random()
    for round in range(8):
        writer = w.process(round % 2)
        f = writer.open(f"f{round}", "rwc")
        # Write i goes to one of 50 places; every tenth step is a sync. No answer is waited for, so
        # that the kill may meet anything.
        for i in range(300):
            if i % 10 == 9:
                writer.send("sync", f.handle)
            else:
                f.send_write(i * 7 % 50 * 64, bytes([1 + i % 250]) * 64)
        time.sleep(rng.random() * 0.02)
        writer.kill()
        answers = 0
        try:
            while True:
                writer.receive()
                answers += 1
        except EOFError:
            pass
        seen = w.process(round // 2 % 2).read(f"f{round}")
        assert len(seen) % 64 == 0
        synced = answers - answers % 10
        for place in range(50):
            values = [
                0 if i < 0 else 1 + i % 250
                for i in [-1] + [i for i in range(300) if i % 10 != 9 and i * 7 % 50 == place]
            ]
            sure = sum(1 for i in range(synced) if i % 10 != 9 and i * 7 % 50 == place)
            found = set(seen[place * 64 : place * 64 + 64]) or {0}
            assert len(found) == 1 and found <= set(values[sure:]), (round, answers, place, found)


# Errors.


@behaviour("small")
def a_full_disk_is_told_and_takes_nothing_that_was_synced(w):
    # A container takes room before its first byte, and so does a page of a plain file.
    f = w.process().open(f"{w.small}/f", "rwc")
    block, kept = bytes(range(256)) * 128, 0
    try:
        while kept < 200:
            at = kept * len(block)
            done = f.write(at, block)
            assert done > 0
            if done < len(block):
                w.refuses("ENOSPC", lambda: f.write(at + done, block[done:]))
                break
            f.sync()
            kept += 1
        else:
            raise AssertionError("the disk is not full")
    except Refused as refused:
        assert refused.name in w.door.errors("ENOSPC"), refused
    assert kept > 5
    reader = w.process().open(f"{w.small}/f", "r")
    assert all(reader.read(i * len(block), len(block)) == block for i in range(kept))
    w.remove(f"{w.door.storage(small=True)}/{w.name}/f")


@behaviour("small", "container")
def what_finds_no_room_is_written_later_or_fails_every_later_call(w):
    rng = random.Random(15)
    f = w.process().open(f"{w.small}/f", "rwc")
    f.write(0, b"kept")
    f.sync()
    wrote = {}

    def write():
        # The index is written by the sync; what makes no pattern needs room there.
        for _ in range(2000):
            at, byte = rng.randrange(1 << 40), bytes([rng.randrange(1, 256)])
            f.write(at, byte)
            wrote[at] = byte

    def write_and_sync():
        write()
        f.sync()

    with open(f"{w.door.storage(small=True)}/filler", "wb", buffering=0) as filler:
        try:
            write()
            while True:
                filler.write(bytes(4096))
        # On a busy machine the background commits fill the storage before the filler does, and a
        # write says so.
        except (OSError, Refused):
            pass
        # They may as well have committed all of it before.
        w.refuses("ENOSPC", write_and_sync)
    os.unlink(f"{w.door.storage(small=True)}/filler")
    try:
        f.sync()
    except Refused as refused:
        # The data had found room, and its index did not.
        assert refused.name in w.door.errors("ENOSPC"), refused
        w.refuses("ENOSPC", lambda: f.write(0, b"again"))
        w.refuses("ENOSPC", f.sync)
        w.refuses("ENOSPC", f.close)
        wrote = {}
    reader = w.process().open(f"{w.small}/f", "r")
    assert reader.read(0, 4) == b"kept"
    assert all(reader.read(at, 1) == byte for at, byte in wrote.items())


@behaviour()
def opening_fails_as_it_should(w):
    process = w.process()
    process.write("f", b"")
    w.refuses("ENOENT", process.open, "missing", "r")
    w.refuses("ENOENT", process.open, "missing/f", "rwc")
    w.refuses("EEXIST", process.open, "f", "rwcx")
    w.refuses("ENOTDIR", process.open, "f/f", "rwc")
    w.refuses("EISDIR", process.open, ".", "rw")
    w.refuses("ENAMETOOLONG", process.open, "x" * 256, "rwc")
    w.refuses("ENOENT", lambda: process.on_names("unlink", "missing"))


@behaviour("names", "stat")
def calls_on_names_fail_as_they_should(w):
    process = w.process()
    process.write("f", b"")
    process.on_names("mkdir", "d")
    process.write("d/g", b"")
    for name, command, names in [
        ("ENOENT", "rename", ("missing", "x")),
        ("EISDIR", "rename", ("f", "d")),
        ("ENOTDIR", "rename", ("d", "f")),
        ("ENOTEMPTY", "rmdir", ("d",)),
        ("ENOTDIR", "rmdir", ("f",)),
        ("EISDIR", "unlink", ("d",)),
        ("EEXIST", "mkdir", ("f",)),
        ("EEXIST", "link", ("f", "d/g")),
        ("ENOENT", "link", ("missing", "x")),
        ("ENOTDIR", "unlink", ("f/x",)),
        ("ENAMETOOLONG", "rename", ("f", "x" * 256)),
    ]:
        w.refuses(name, process.on_names, command, *names)
    w.refuses("ENOENT", process.stat, "missing")
    w.refuses("ENOENT", process.on_name, "truncate", "missing", 0)
    w.refuses("EISDIR", process.on_name, "truncate", "d", 0)


@behaviour()
def a_handle_does_what_it_was_opened_for(w):
    process = w.process()
    process.write("f", b"kept")
    reader, writer = process.open("f", "r"), process.open("f", "w")
    w.refuses("EBADF", writer.read, 0, 1)
    w.refuses("EBADF", reader.write, 0, b"x")
    writer.write(0, b"K")
    assert reader.read(0, 9) == b"Kept"


@behaviour("signed")
def offsets_below_0_are_refused(w):
    f = w.process().open("f", "rwc")
    f.write(0, b"kept")
    w.refuses("EINVAL", f.write, -1, b"x")
    w.refuses("EINVAL", f.read, -1, 1)
    w.refuses("EINVAL", f.truncate, -1)
    assert f.read(0, 9) == b"kept"


@behaviour("users")
def who_may_not_is_refused(w):
    process, other = w.process(), w.process(user=USER)
    process.write("f", b"mine")
    assert other.read("f") == b"mine"
    w.refuses("EACCES", other.open, "f", "rw")
    w.refuses("EACCES", other.open, "f", "w")
    if "names" not in w.door.lacks:
        process.on_name("chmod", "f", "600")
        w.refuses("EACCES", other.open, "f", "r")
        w.refuses("EPERM", other.on_name, "chmod", "f", "666")
        w.refuses("EPERM", other.on_name, "chown", "f", USER, USER)


# Names.


@behaviour()
def exclusive_creation_has_one_winner(w):
    processes = [w.process(node) for node in (0, 0, 1)]
    for round in range(20):
        for process in processes:
            process.send("open", 0, process.path(f"f{round}"), "rwcx", "644")
        won = []
        for process in processes:
            try:
                process.receive()
                won.append(process)
            except Refused as refused:
                assert refused.name in w.door.errors("EEXIST"), refused
        assert len(won) == 1
        won[0].call("close", 0)


@behaviour()
def the_size_stays_when_the_last_name_goes(w):
    # One has had it open since before it was a container, and goes on in that when it looks. A file
    # without a name has one link, of its container: the preload took it for a plain one, and its
    # fstat gave the size in place, 0 here, beside reads that gave all.
    one, two = w.process(), w.process()
    f = one.open("f", "rwc")
    assert f.read(0, 1) == b""
    g = two.open("f", "rw")
    g.write(0, b"written")
    g.sync()
    assert f.size() == 7
    two.on_names("unlink", "f")
    assert f.size() == 7 and f.read(0, 9) == b"written" and f.size() == 7


@behaviour("names")
def a_rename_replaces_at_once(w):
    process, reader, versions = w.process(), w.process(1), [b"old"]
    process.write("f", b"old")
    for i in range(30):
        versions.append(b"new %d" % i)
        process.write("new", versions[-1])
        process.send("rename", process.path("new"), process.path("f"))
        while True:
            try:
                # In another mount a name may be a second old.
                seen = reader.read("f")
                assert seen in (versions if w.door.settle_s else versions[-2:]), (i, seen)
                break
            except Refused as refused:
                # Opened, and gone before it was read: what the tables of SEMANTICS.md say. Nobody
                # ever misses the name or sees a mixture.
                assert refused.name == "ESTALE" and w.door.is_plfs, refused
        process.receive()
    assert process.names() == ["f"] and process.read("f") == b"new 29"


@behaviour("names", "stat", "links")
def a_link_is_another_name_of_the_file(w):
    process = w.process()
    process.on_names("mkdir", "d")
    process.write("f", b"one")
    process.on_names("link", "f", "d/g")
    assert process.stat("f").nlink == process.stat("d/g").nlink == 2
    process.write("d/g", b"TWO", "rw")
    assert process.read("f") == b"TWO"
    process.on_names("unlink", "f")
    assert (
        process.names() == ["d"]
        and process.stat("d/g").nlink == 1
        and process.read("d/g") == b"TWO"
    )


@behaviour(in_a_pack="Room of what is removed from a pack")
def an_unlinked_file_lives_for_who_has_used_it(w):
    one, two, used = w.process(), w.process(), w.used_kib()
    f = one.open("f", "rwc")
    f.write(0, b"before")
    f.write(1 << 20, os.urandom(30000))
    f.sync()
    g = two.open("f", "rw")
    assert g.read(0, 6) == b"before"
    two.on_names("unlink", "f")
    w.refuses("ENOENT", one.open, "f", "r")
    f.write(6, b" after")
    assert f.read(0, 12) == b"before after" and f.size() == (1 << 20) + 30000
    f.sync()
    g.sync()
    assert g.read(0, 12) == b"before after" and w.used_kib() - used >= (
        0 if w.door.is_born_plain else 29
    )
    g.close()
    f.close()
    # In a mount the daemon hears of the last close a little later.
    for _ in range(50):
        if w.used_kib() - used < 20:
            break
        time.sleep(0.05)
    assert w.used_kib() - used < 20
    # Whoever takes the name has a new file.
    one.write("f", b"new")
    assert two.read("f") == b"new"


@behaviour("names")
def a_handle_follows_its_file(w):
    process, other = w.process(), w.process()
    process.on_names("mkdir", "d")
    f = process.open("d/f", "rwc")
    f.write(0, b"a")
    other.on_names("rename", "d/f", "d/g")
    f.write(1, b"b")
    process.on_names("rename", "d", "e")
    f.write(2, b"c")
    process.write("e/x", b"x")
    f.sync()
    assert other.read("e/g") == b"abc" and f.read(0, 9) == b"abc"
    process.on_names("rename", "e/x", "e/g")
    assert f.read(0, 9) == b"abc" and other.read("e/g") == b"x"


@behaviour("names", "stat", "users")
def mode_and_owner_are_the_files(w):
    process = w.process()
    process.open("f", "rwc", 0o640).close()
    stat = process.stat("f")
    assert (stat.mode, stat.uid, stat.nlink) == (0o640, 0, 1)
    f = process.open("f", "rw")
    process.on_name("chmod", "f", "604")
    process.on_name("chown", "f", USER, 1)
    assert (
        f.stat()[1:5] == process.stat("f")[1:5] == w.process().stat("f")[1:5] == (0o604, 1, USER, 1)
    )
    f.write(0, b"still")
    f.close()
    assert w.process(user=USER).read("f") == b"still"
    assert w.process().open("own", "rwc").stat().uid == 0 and w.process().stat("own").mode == 0o644
    w.process(user=USER).write("theirs", b"")
    assert process.stat("theirs").uid == USER


@behaviour("names", "stat")
def times_stay_until_data_is_written(w):
    process, other = w.process(), w.process()
    process.write("f", b"x")
    process.on_name("utimens", "f", 1_000_000_000_123_456_789)
    assert process.stat("f").mtime_ns == other.stat("f").mtime_ns == 1_000_000_000_123_456_789
    assert other.read("f") == b"x" and other.stat("f").mtime_ns == 1_000_000_000_123_456_789
    f = process.open("f", "rw")
    f.write(0, b"y")
    assert abs(f.stat().mtime_ns / 1e9 - time.time()) < 5
    f.call("futimens", 7_000_000_000)
    f.close()
    assert other.stat("f").mtime_ns == 7_000_000_000
    process.write("f", b"z", "rw")
    assert abs(other.stat("f").mtime_ns / 1e9 - time.time()) < 5


@behaviour()
def a_truncate_is_seen_at_once_everywhere(w):
    for node in 0, 1:
        one, two, name = w.process(), w.process(node), f"f{node}"
        f = one.open(name, "rwc")
        f.write(0, b"0123456789")
        f.sync()
        g = two.open(name, "rw")
        assert g.read(0, 20) == b"0123456789"
        f.truncate(4)
        time.sleep(w.door.settle_s * node)
        assert f.size() == g.size() == 4
        f.truncate(8)
        f.write(9, b"x")
        f.sync()
        time.sleep(w.door.settle_s * node)
        assert f.read(0, 20) == w.process(1).read(name) == b"0123\0\0\0\0\0x"
        g.sync()
        assert g.read(0, 20) == b"0123\0\0\0\0\0x"
        g.truncate(0)
        f.write(2, b"y")
        f.sync()
        time.sleep(w.door.settle_s * node)
        assert w.process().read(name) == b"\0\0y"


@behaviour("names", "users", in_a_pack="Room of what is removed from a pack")
def who_may_not_read_his_file_is_still_its_owner(w):
    owner, before = w.process(user=USER), w.used_kib()
    owner.write("f", b"x" * 30000)
    owner.write("g", b"y" * 30000)
    for name in "f", "g":
        owner.on_name("chmod", name, "0")
        w.refuses("EACCES", owner.open, name, "r")
    owner.on_name("chmod", "f", "640")
    assert owner.read("f") == b"x" * 30000 and w.used_kib() - before >= 58
    # The data goes with the name, also where its owner cannot look where it is.
    owner.on_names("rename", "f", "g")
    owner.on_name("chmod", "g", "0")
    owner.on_names("unlink", "g")
    assert w.used_kib() - before < 20


@behaviour(in_a_pack="Room of what is removed from a pack")
def a_truncate_to_0_frees_the_storage(w):
    process, before = w.process(), w.used_kib()
    f = process.open("f", "rwc")
    for i in range(40):
        f.write(i * 30000, os.urandom(30000))
    f.close()
    assert w.used_kib() - before > 1000
    f = process.open("f", "rw")
    f.truncate(0)
    f.close()
    assert w.used_kib() - before < 100


@behaviour()
def files_reach_to_the_last_offset_and_holes_are_zeros(w):
    f = w.process().open("f", "rwc")
    last = 1 << 43 if w.door.is_born_plain else (1 << 63) - 1
    f.write(last - 3, b"end")
    f.write(1 << 40, b"mid")
    assert (
        f.size() == last
        and f.read(last - 5, 5) == b"\0\0end"
        and f.read((1 << 40) - 2, 7) == b"\0\0mid\0\0"
    )
    assert f.read(12345, 100) == bytes(100)
    f.close()
    reader = w.process(1)
    g = reader.open("f", "r")
    assert g.size() == last and g.read(last - 3, 3) == b"end"


@behaviour()
def nothing_is_past_the_last_offset(w):
    f = w.process().open("f", "rwc")
    last = (1 << 63) - 1
    # The kernel finds out first, if the call goes through it: an end that no number can say is
    # EINVAL.
    w.refuses(
        "EFBIG" if w.door.name.removesuffix("-auto").removesuffix("-flat") in LIBRARY else "EINVAL",
        f.write,
        last,
        b"x",
    )
    f.write(0, b"kept")
    assert f.size() == 4 and f.read(last - 10, 5) == b""


# What POSIX promises, and not every door gives.


@behaviour(differs="Another process sees writes after a commit (S2)")
def a_write_is_seen_by_others_when_it_returns(w):
    f = w.process().open("f", "rwc")
    f.write(0, b"old")
    f.sync()
    g = w.process().open("f", "r")
    assert g.read(0, 3) == b"old"
    f.write(0, b"new")
    assert g.read(0, 3) == b"new" == w.process().read("f")


@behaviour(run_in_a_pack="What a process has written to a file of a pack, and not closed")
def a_killed_process_leaves_all_that_it_wrote(w):
    writer = w.process()
    writer.open("f", "rwc").write(0, b"written")
    writer.kill()
    assert w.process().read("f") == b"written"


@behaviour(
    "append",
    differs="O_APPEND is atomic within a node only (S11)",
    in_a_mount="O_APPEND is atomic within a mount only (F2)",
    in_a_pack="",
)
def appends_of_different_nodes_never_overlap(w):
    w.process().write("f", b"")
    time.sleep(w.door.settle_s)
    one, two = w.process(0).open("f", "wa"), w.process(1).open("f", "wa")
    for i in range(5):
        one.append(b"one")
        two.append(b"two")
    one.close()
    two.close()
    time.sleep(w.door.settle_s)
    assert w.process().read("f") == b"onetwo" * 5


@behaviour(
    differs="A process that opened a file and has not read or written it yet gets ESTALE",
    in_a_pack="",
)
def an_unlinked_file_lives_for_who_has_only_opened_it(w):
    w.process().write("f", b"there")
    f = w.process().open("f", "r")
    w.process().on_names("unlink", "f")
    try:
        assert f.read(0, 9) == b"there"
    except Refused as refused:
        if refused.name not in w.door.errors("ESTALE"):
            raise RuntimeError(f"{refused.name} instead of ESTALE") from refused
        raise


@behaviour("store", differs="Writable shared mmap is refused (ENODEV)")
def shared_maps_are_the_file(w):
    f = w.process().open("f", "rwc")
    f.write(0, b"a" * 5000)
    f.call("store", 4000, b"stored".hex())
    assert f.read(3999, 8) == b"astoreda" and w.process().read("f")[4000:4006] == b"stored"


@behaviour("lock")
def locks_keep_others_out(w):
    one, two = w.process().open("f", "rwc"), w.process().open("f", "rwc")
    one.call("lock")
    w.refuses("EAGAIN", two.call, "trylock")
    one.call("unlock")
    two.call("trylock")
    one.process.send("lock", one.handle)
    two.write(0, b"under the lock")
    two.call("unlock")
    one.process.receive()
    assert one.read(0, 20) == b"under the lock"


@behaviour("exec")
def a_descriptor_keeps_its_access_mode_through_exec(w):
    process = w.process()
    process.write("f", b"kept")
    f = process.open("f", "r")
    descriptor = f.call("descriptor")
    process.call("exec")
    f.call("take", descriptor)
    assert f.read(0, 9) == b"kept"
    w.refuses("EBADF", f.write, 0, b"x")


@behaviour("layouts")
def new_files_are_laid_out_as_their_directory_says(w):
    os.makedirs(w.below("d/e"))
    for directory in w.below("d"), w.below("d/e"):
        os.chmod(directory, 0o777)
    w.lay_out("d", "--streams", "3")
    process = w.process()
    process.write("d/e/f", b"x")
    process.write("g", b"x")
    if "container" not in w.door.lacks:
        assert (w.look("d/e/f")["streams"], w.look("g")["streams"]) == (3, 8)


@behaviour("names", "layouts")
def a_layout_is_in_nobodys_way(w):
    process = w.process()
    process.on_names("mkdir", "d")
    w.lay_out("d", "--streams", "3")
    process.write("d/f", b"x")
    assert process.names("d") == ["f"]
    w.refuses("ENOTEMPTY", process.on_names, "rmdir", "d")
    process.on_names("rename", "d", "e")
    process.write("e/g", b"x")
    if "container" not in w.door.lacks:
        assert w.look("e/g")["streams"] == 3
    for name in "e/f", "e/g":
        process.on_names("unlink", name)
    process.on_names("rmdir", "e")
    w.refuses("ENOENT", process.on_names, "rmdir", "e")


@behaviour("names", "users", differs="A user who may write a file but not read it cannot open it")
def a_file_can_be_write_only(w):
    process, other = w.process(), w.process(user=USER)
    process.write("f", b"old")
    process.on_name("chmod", "f", "622")
    f = other.open("f", "w")
    f.write(0, b"new")
    f.close()
    assert process.read("f") == b"new"
    w.refuses("EACCES", other.open, "f", "r")


@behaviour(
    "names", "stat", "users", differs="A user who may not read a file sees 4,093 as its size"
)
def everybody_sees_the_size(w):
    process = w.process()
    process.write("f", b"secret")
    process.on_name("chmod", "f", "600")
    assert w.process(user=USER).stat("f").size == 6


@behaviour(
    "names",
    "stat",
    "users",
    differs="Default ACLs and group inheritance come from the root's `.plfs`",
)
def a_file_gets_the_group_of_its_directory(w):
    process = w.process()
    process.on_names("mkdir", "d")
    process.on_name("chown", "d", 0, 50)
    process.on_name("chmod", "d", "2777")
    process.write("d/f", b"")
    assert process.stat("d/f").gid == 50
