//! The plfsrc of the original PLFS: which of its keys mean something here, and what to write
//! instead of the others.

/// What became of a key of the original.
pub struct Obsolete {
    /// The key, or its beginning if it ends with `_`.
    pub key: &'static str,
    /// The rest of a sentence that begins with the key.
    pub now: &'static str,
}

/// All keys of the original (its parse_conf.cpp and plfsrc(5)) that are not mapped.
pub const OBSOLETE: &[Obsolete] = &[
    Obsolete {
        key: "num_hostdirs",
        now: "means nothing here: each node has a log set of its own; the data logs of a node are \
              settings: streams",
    },
    Obsolete {
        key: "threadpool_size",
        now: "means nothing here: threads are started as they are needed",
    },
    Obsolete {
        key: "index_buffer_mbs",
        now: "is settings: index_bytes now, in bytes; its default suits more",
    },
    Obsolete {
        key: "read_buffer_mbs",
        now: "means nothing here: reading needs no buffer of a fixed size",
    },
    Obsolete {
        key: "glib_buffer_mbs",
        now: "is settings: buffer_bytes now, in bytes of a process",
    },
    Obsolete { key: "lazy_stat", now: "means nothing here: a size is always exact at a commit" },
    Obsolete {
        key: "lazy_droppings",
        now: "means nothing here: logs are always made when written",
    },
    Obsolete {
        key: "compress_contiguous",
        now: "means nothing here: index records are always folded",
    },
    Obsolete {
        key: "global_summary_dir",
        now: "means nothing here: plfs stat and plfs map show what was written",
    },
    Obsolete { key: "test_metalink", now: "means nothing here: there are no metalinks" },
    Obsolete { key: "mlog_", now: "means nothing here: see PLFS_DEBUG, and plfs log for mounts" },
    Obsolete { key: "fuse_crash_log", now: "means nothing here: see plfs log" },
    Obsolete { key: "statfs", now: "means nothing here: free room is that of the directory" },
    Obsolete { key: "syncer_ip", now: "means nothing here: nothing copies between tiers" },
    Obsolete { key: "mount_type", now: "means nothing here" },
    Obsolete { key: "max_writers", now: "means nothing here: there is no limit" },
    Obsolete { key: "max_smallfile_containers", now: "means nothing here: there is no limit" },
];

/// What became of a key of the original that is not mapped.
pub fn obsolete(key: &str) -> Option<&'static Obsolete> {
    OBSOLETE.iter().find(|old| match old.key.ends_with('_') {
        true => key.starts_with(old.key),
        false => key == old.key,
    })
}

/// The modern word for a workload of the original.
pub fn workload(word: &str) -> Option<&'static str> {
    match word {
        "n-1" | "shared_file" | "shared_file:byterange" | "shared_file:mdhim" => Some("shared"),
        "n-n" | "file_per_proc" | "flat_file" => Some("flat"),
        "1-n" | "small_file" => Some("small"),
        _ => None,
    }
}

/// Keys that were mapped, and where they are now: for who writes one in a modern file.
pub fn moved(key: &str) -> Option<&'static str> {
    match key {
        "mount_point" => Some("managed: - directory"),
        "global_params" => Some("settings"),
        "location" => Some("the path alone, in the list backends"),
        _ => None,
    }
}
