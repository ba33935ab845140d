//! The text of an open mark (FORMAT.md section 1): who owns a log set.
//!
//! The mark is a symbolic link that is read and never followed, because one call makes it, exclusively
//! and whole.

/// The owner of a log set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Random number of this tenancy. The owner's processes know it from their shared page.
    pub nonce: u64,
    /// First eight bytes of the boot id of the host; 0 if the founder did not know it.
    pub boot: u64,
    /// What tells this machine from others, whenever it was started: from /etc/machine-id; 0 if unknown.
    pub machine: u64,
    /// Process id of the founder, in its own namespace.
    pub pid: u32,
    /// When the founder started: clock ticks since boot, as in /proc/PID/stat; 0 if unknown.
    pub start: u64,
    /// Inode of the founder's pid namespace; 0 if unknown.
    pub pid_namespace: u64,
    /// Device and inode of the directory of shared memory in which the owner's processes meet; 0: the
    /// owner is one process that shares nothing.
    pub shared_memory: (u64, u64),
    /// User id of the founder.
    pub uid: u32,
    /// When the founder attached, nanoseconds since 1970 UTC.
    pub attached_ns: u64,
    /// Name of the host, at most 64 bytes (HOST_NAME_MAX of Linux), without control characters and `/`.
    pub host: String,
}

/// What a mark begins with.
const BEGIN: &str = "plfs-owner-1";
/// HOST_NAME_MAX of Linux.
const HOST_BYTES: usize = 64;

impl Mark {
    /// The text: at most 320 bytes, no `/`.
    pub fn text(&self) -> String {
        let Mark { nonce, boot, machine, pid, start, pid_namespace, shared_memory: (dev, ino), uid, attached_ns, host } = self;
        let host: String = host.chars().filter(|c| !c.is_control() && *c != '/').take(HOST_BYTES).collect();
        format!(
            "{BEGIN} nonce={nonce:016x} boot={boot:016x} machine={machine:016x} pid={pid} start={start} pidns={pid_namespace} shm={dev:x}:{ino:x} uid={uid} since={attached_ns} host={host}"
        )
    }

    /// Parses a text; `None` if it has no nonce. Fields that are missing are 0, unknown ones ignored.
    pub fn parse(text: &str) -> Option<Mark> {
        let (text, host) = text.split_once(" host=").unwrap_or((text, ""));
        let mut words = text.split(' ');
        (words.next() == Some(BEGIN)).then_some(())?;
        let mut mark = Mark { host: host.chars().take(HOST_BYTES).collect(), ..Mark::default() };
        let mut nonce = None;
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            match key {
                "nonce" => nonce = u64::from_str_radix(value, 16).ok(),
                "boot" => mark.boot = u64::from_str_radix(value, 16).unwrap_or(0),
                "machine" => mark.machine = u64::from_str_radix(value, 16).unwrap_or(0),
                "pid" => mark.pid = value.parse().unwrap_or(0),
                "start" => mark.start = value.parse().unwrap_or(0),
                "pidns" => mark.pid_namespace = value.parse().unwrap_or(0),
                "shm" => {
                    let number = |text: &str| u64::from_str_radix(text, 16).ok();
                    let pair = value.split_once(':').and_then(|(dev, ino)| Some((number(dev)?, number(ino)?)));
                    mark.shared_memory = pair.unwrap_or((0, 0));
                }
                "uid" => mark.uid = value.parse().unwrap_or(0),
                "since" => mark.attached_ns = value.parse().unwrap_or(0),
                _ => {}
            }
        }
        mark.nonce = nonce?;
        Some(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_round_trip() {
        let mark = Mark {
            nonce: u64::MAX,
            boot: 7,
            machine: 8,
            pid: u32::MAX,
            start: u64::MAX,
            pid_namespace: 4_026_531_836,
            shared_memory: (u64::MAX, u64::MAX),
            uid: 1000,
            attached_ns: u64::MAX,
            host: "n".repeat(64),
        };
        let text = mark.text();
        assert!(text.len() <= 320, "{}", text.len());
        assert_eq!(Mark::parse(&text), Some(mark));
    }

    #[test]
    fn hostile_texts_are_no_marks_or_harmless_ones() {
        for text in ["", "plfs-owner-1", "plfs-owner-1 nonce=xyz", "plfs-owner-2 nonce=1", "nonce=1", "../../etc/passwd"] {
            assert_eq!(Mark::parse(text), None, "{text}");
        }
        let mark = Mark::parse("plfs-owner-1 nonce=1 pid=-3 uid=99999999999 new=1 host=a b host=c").unwrap();
        assert_eq!((mark.nonce, mark.pid, mark.uid, mark.host.as_str()), (1, 0, 0, "a b host=c"));
        assert!(!Mark { host: "../x\n".into(), ..Mark::default() }.text().contains(['/', '\n']));
    }
}
