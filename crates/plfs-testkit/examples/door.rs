//! The server of `tests/doors` over this library: file calls for behaviours.py. Each line is a
//! command and its words; the answer is one line, `ok VALUE` or `error NUMBER`.
//! Bytes are hexadecimal, in answers behind an x. A handle is a number that the client chose.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::Path;

use plfs::store::{Links, Stat, Time};
use plfs::{Access, Config, File, Layout, OpenOptions, Opened, Plfs, Result, Writers};

struct Server {
    plfs: Plfs,
    files: HashMap<String, File>,
}

fn main() {
    let config = Config::from_env().expect("the PLFS_ variables");
    let mut server = Server { plfs: Plfs::posix(config), files: HashMap::new() };
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line of text");
        let words: Vec<&str> = line.split(' ').collect();
        let mut out = std::io::stdout();
        match server.run(&words) {
            Ok(said) => writeln!(out, "ok {said}"),
            Err(error) => writeln!(out, "error {}", error.errno().raw_os_error()),
        }
        .and_then(|()| out.flush())
        .expect("somebody reads the answers");
    }
}

fn number(word: &str) -> i64 {
    word.parse().expect("a number")
}

/// The library's offsets are u64; there is nothing to refuse below 0.
fn offset(word: &str) -> u64 {
    word.parse().expect("an offset")
}

fn octal(word: &str) -> u32 {
    u32::from_str_radix(word, 8).expect("an octal number")
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal bytes"))
        .collect()
}

fn time(word: &str) -> Time {
    Time { sec: number(word) / 1_000_000_000, nsec: (number(word) % 1_000_000_000) as u32 }
}

fn say_stat(stat: &Stat) -> String {
    let mtime_ns = stat.mtime.sec * 1_000_000_000 + i64::from(stat.mtime.nsec);
    format!(
        "{} {:o} {} {} {} {mtime_ns} {}",
        stat.len, stat.mode, stat.nlink, stat.uid, stat.gid, stat.blocks
    )
}

impl Server {
    fn file(&self, handle: &str) -> &File {
        &self.files[handle]
    }

    fn open(&mut self, words: &[&str]) -> Result<()> {
        let (path, flags) = (Path::new(words[2]), words[3]);
        let options = OpenOptions {
            access: Access { read: flags.contains('r'), write: flags.contains('w') },
            create: flags.contains('c'),
            exclusive: flags.contains('x'),
            truncate: flags.contains('t'),
            mode: words.get(4).map_or(0o666, |word| octal(word)),
            writers: Writers::Unknown,
        };
        match self.plfs.open(path, options)? {
            Opened::Logical(file) | Opened::Plain(file) => {
                drop(self.files.insert(words[1].into(), file));
            }
        }
        Ok(())
    }

    fn run(&mut self, words: &[&str]) -> Result<String> {
        let plfs = &self.plfs;
        let path = |i: usize| Path::new(words[i]);
        let done = |()| "0".to_string();
        match words[0] {
            "open" => self.open(words).map(done),
            "close" => self.files.remove(words[1]).map_or(Ok(()), File::close).map(done),
            "pwrite" => self
                .file(words[1])
                .write_at(&bytes(words[3]), offset(words[2]))
                .map(|n| n.to_string()),
            "append" => self.file(words[1]).append(&bytes(words[2])).map(|(_, n)| n.to_string()),
            "pread" => {
                let mut buf = vec![0; number(words[3]) as usize];
                let n = self.file(words[1]).read_at(&mut buf, offset(words[2]))?;
                Ok(buf[..n].iter().fold("x".to_string(), |hex, byte| format!("{hex}{byte:02x}")))
            }
            "sync" => self.file(words[1]).sync().map(done),
            "commit" => self.file(words[1]).commit().map(done),
            "commit_all" => plfs.commit_all().map(done),
            "refresh" => self.file(words[1]).refresh().map(done),
            "ftruncate" => self.file(words[1]).set_len(offset(words[2])).map(done),
            "truncate" => plfs.truncate(path(1), offset(words[2])).map(done),
            "size" => self.file(words[1]).len().map(|n| n.to_string()),
            "fstat" => self.file(words[1]).stat().map(|stat| say_stat(&stat)),
            "stat" => plfs.stat(path(1), Links::Follow).map(|stat| say_stat(&stat.stat)),
            "rename" => plfs.rename(path(1), path(2)).map(done),
            "link" => plfs.link(path(1), path(2)).map(done),
            "unlink" => plfs.unlink(path(1)).map(done),
            "mkdir" => plfs.mkdir(path(1), 0o777).map(done),
            "flat" => plfs.make_flat(path(1), &Layout::default()).map(done),
            "rmdir" => plfs.rmdir(path(1)).map(done),
            "list" => {
                let names = plfs.list(path(1))?;
                Ok(names
                    .iter()
                    .filter(|entry| !plfs::is_hidden(&entry.name))
                    .map(|entry| format!("{} ", entry.name.to_string_lossy()))
                    .collect())
            }
            "chmod" => plfs.chmod(path(1), octal(words[2])).map(done),
            "chown" => plfs
                .chown(path(1), words[2].parse().ok(), words[3].parse().ok(), Links::Follow)
                .map(done),
            "utimens" => {
                plfs.set_times(path(1), Some(time(words[2])), Some(time(words[2]))).map(done)
            }
            "futimens" => {
                self.file(words[1]).set_times(Some(time(words[2])), Some(time(words[2]))).map(done)
            }
            "exit" => {
                plfs.exit()?;
                std::process::exit(0)
            }
            other => panic!("no command {other}"),
        }
    }
}
