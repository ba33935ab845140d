use super::*;

fn parsed(text: &str) -> Result<Plfsrc, String> {
    Plfsrc::parse(Path::new("/rc"), text.as_bytes()).map_err(|problem| problem.to_string())
}

const MODERN: &str = "# a comment
settings:
  streams: 4
  buffer_bytes: 16M
  sync_on_close: yes
  shared_memory: ''
managed:
  - directory: /scratch/out/
    workload: shared
    streams: 2
    backends: [/a, '/b c']
  - directory: /other
    backends: /a
";

#[test]
fn a_modern_file() {
    let found = parsed(MODERN).unwrap();
    let settings: Vec<_> =
        found.settings.iter().map(|(key, given)| (*key, given.value.as_str())).collect();
    assert_eq!(
        settings,
        [
            ("streams", "4"),
            ("buffer_bytes", "16777216"),
            ("sync_on_close", "1"),
            ("shared_memory", "")
        ]
    );
    assert_eq!(found.settings[0].1.place.to_string(), "/rc:3:12");
    let [first, second] = &found.managed[..] else { panic!("{found:?}") };
    assert_eq!(first.directory.value, Path::new("/scratch/out"));
    assert_eq!(first.directory.value.as_os_str(), "/scratch/out");
    assert_eq!(first.workload.as_ref().unwrap().value, Workload::Shared);
    assert_eq!(first.streams.as_ref().unwrap().value, 2);
    assert_eq!(
        first.backends.as_ref().unwrap().value,
        [PathBuf::from("/a"), PathBuf::from("/b c")]
    );
    assert_eq!(second.backends.as_ref().unwrap().value, [PathBuf::from("/a")]);
    assert!(found.warnings.is_empty() && !found.is_original);
    for nothing in ["", "# nothing\n", "---\n", "settings:\n", "managed: []\n", "~"] {
        let found = parsed(nothing).unwrap();
        assert!(found.settings.is_empty() && found.managed.is_empty(), "{nothing}");
    }
}

/// Each says where and what to write instead.
#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (text, says) in [
        ("settings:\n  stream: 4\n", "/rc:2:3: there is no key stream here; the keys are streams"),
        ("setings: 1\n", "/rc:1:1: there is no key setings here; the keys are settings, managed"),
        ("settings: 4\n", "/rc:1:11: settings has keys with values"),
        ("settings:\n  streams: [1]\n", "/rc:2:12: streams has one value"),
        (
            "settings:\n  streams: 1\n  streams: 2\n",
            "/rc:3:3: streams is there twice, first on line 2",
        ),
        ("settings:\n  num_hostdirs: 4\n", "/rc:2:3: num_hostdirs means nothing here"),
        ("settings:\n  shared_memory: dev/shm\n", "/rc:2:18: dev/shm is not an absolute path"),
        ("managed: /a\n", "/rc:1:10: managed is a list"),
        ("managed:\n  - /a\n", "/rc:2:5: write - directory: PATH"),
        ("managed:\n  - streams: 2\n", "/rc:2:5: the directory is missing"),
        (
            "managed:\n  - mount_point: /a\n",
            "/rc:2:5: mount_point is the original PLFS's; here it is managed",
        ),
        ("managed:\n  - directory: a\n", "/rc:2:16: a is not an absolute path"),
        ("managed:\n  - directory: /a/../b\n", "/rc:2:16: a path with .."),
        ("managed:\n  - directory: \"/a\\0b\"\n", "/rc:2:16: a path with .. or a zero byte"),
        (
            "managed:\n  - directory: /a\n  - directory: /a/\n",
            "/rc:3:16: /a is managed twice, first at /rc:2:16",
        ),
        (
            "managed:\n  - directory: /a\n    workload: n-n\n",
            "/rc:3:15: workload n-n is none of auto, shared, flat, small; n-n of the original is flat",
        ),
        (
            "managed:\n  - directory: /a\n    streams: 0\n",
            "/rc:3:14: streams: 0 is not a number from 1 to 256",
        ),
        ("managed:\n  - directory: /a\n    backends: [/b, /b]\n", "/rc:3:20: /b is there twice"),
        ("a\n", "/rc:1:1: this is neither"),
        ("settings: {streams: &a 4}\n", "anchors (&name) and tags (!name) are not understood"),
        ("settings: {streams: *a}\n", "/rc:1:21: "),
        ("settings: !!map {}\n", "tags (!name) are not understood"),
        ("settings:\n--- \nsettings:\n", "/rc:2:1: a second document begins"),
        ("settings: {\n", "this is no YAML"),
        ("settings:\n\tstreams: 4\n", "this is no YAML"),
        ("[a]: 4\n", "a key must be a word"),
        ("- global_params: 4\n", "/rc:1:18: global_params has another form"),
        ("- mount_point: /a\n  backends: [{location: 'hdfs://h/x'}]\n", "hdfs: is no storage"),
        ("- mount_point: /a\n  workload: n-m\n", "/rc:2:13: workload n-m is none of"),
        ("- 4\n", "/rc:1:3: write - mount_point: PATH"),
        ("- include: other\n", "/rc:1:12: /other: there is no such file"),
    ] {
        let error = parsed(text).expect_err(text);
        assert!(error.starts_with("/rc:") && error.contains(says), "{text}\n{error}\n{says}");
    }
    let error = Plfsrc::parse(Path::new("/rc"), b"settings:\n  x: \xff\n").unwrap_err();
    assert_eq!(error.to_string(), "/rc:2:1: this line is not UTF-8");
}

const ORIGINAL: &str = "- global_params:
    threadpool_size: 64
    num_hostdirs: 32
    mlog_defmask: WARN
    no_such_key: 1
- mount_point: /mnt/ckpt
  workload: n-1
  statfs: /lustre
  backends:
    - location: posix:///lustre/p1/.store
      type: canonical
    - location: /nvme/store
      type: shadow
- mount_point: /mnt/two
  backends: /x,/y
";

#[test]
fn a_file_of_the_original() {
    let found = parsed(ORIGINAL).unwrap();
    assert!(found.is_original && found.settings.is_empty());
    let [first, second] = &found.managed[..] else { panic!("{found:?}") };
    assert_eq!(first.workload.as_ref().unwrap().value, Workload::Shared);
    assert_eq!(
        first.backends.as_ref().unwrap().value,
        [PathBuf::from("/lustre/p1/.store"), PathBuf::from("/nvme/store")]
    );
    assert_eq!(second.backends.as_ref().unwrap().value, [PathBuf::from("/x"), PathBuf::from("/y")]);
    let warnings: Vec<String> = found.warnings.iter().map(Problem::to_string).collect();
    for (at, says) in [
        (0, "/rc:2:5: threadpool_size means nothing here"),
        (1, "/rc:3:5: num_hostdirs means nothing here"),
        (1, "settings: streams"),
        (2, "/rc:4:5: mlog_defmask"),
        (3, "/rc:5:5: no_such_key is no key of the original PLFS"),
        (4, "/rc:8:3: statfs"),
        (5, "/rc:11:7: canonical and shadow mean nothing here"),
        (6, "/rc:13:7: "),
    ] {
        assert!(warnings[at].contains(says), "{at}: {warnings:#?}");
    }
    assert_eq!(warnings.len(), 7, "{warnings:#?}");
    // Every key that the original had is known.
    for key in "num_hostdirs threadpool_size lazy_stat lazy_droppings compress_contiguous \
                index_buffer_mbs read_buffer_mbs global_summary_dir test_metalink mlog_defmask \
                mlog_setmasks mlog_stderrmask mlog_stderr mlog_file mlog_msgbuf_size mlog_syslog \
                mlog_syslogfac mlog_ucon glib_buffer_mbs statfs syncer_ip mount_type \
                fuse_crash_log max_writers max_smallfile_containers"
        .split_ascii_whitespace()
    {
        assert!(original::obsolete(key).is_some(), "{key}");
    }
}

#[test]
fn a_modern_file_is_made_of_any() {
    for text in [MODERN, ORIGINAL, "", "managed: [{directory: \"/a: b\\n#\\\"\\\\ é\"}]"] {
        let found = parsed(text).unwrap();
        let again = parsed(&found.modern(|_| true))
            .unwrap_or_else(|error| panic!("{error}\n{}", found.modern(|_| true)));
        assert!(!again.is_original && again.warnings.is_empty());
        let bare = |found: &Plfsrc| {
            let settings: Vec<_> =
                found.settings.iter().map(|(key, given)| (*key, given.value.clone())).collect();
            let managed: Vec<_> = found
                .managed
                .iter()
                .map(|it| {
                    (
                        it.directory.value.clone(),
                        it.workload.as_ref().map(|it| it.value),
                        it.streams.as_ref().map(|it| it.value),
                        it.backends.as_ref().map(|it| it.value.clone()),
                    )
                })
                .collect();
            (settings, managed)
        };
        assert_eq!(bare(&found), bare(&again), "{}", found.modern(|_| true));
    }
}

#[test]
fn workloads_that_are_not_there_become_comments() {
    let found = parsed("- mount_point: /a\n  workload: n-n\n").unwrap();
    let modern = found.modern(|workload| workload == Workload::Shared);
    assert_eq!(modern, "managed:\n  - directory: /a\n    # workload: flat cannot be set here\n");
    assert!(parsed(&modern).unwrap().managed[0].workload.is_none());
}

/// A key with a line feed made a line of the modern file of what follows it.
#[test]
fn a_key_cannot_write_lines() {
    let found = parsed("- \"x\\nsettings: {streams: 9}\": 1\n").unwrap();
    assert!(found.warnings[0].text.starts_with("x\\nsettings: "), "{:?}", found.warnings);
    assert!(parsed(&found.modern(|_| true)).unwrap().settings.is_empty());
}

#[test]
fn files_include_each_other_but_not_for_ever() {
    let mut reads = 0;
    let mut include = |path: &Path| {
        reads += 1;
        Ok(match path.to_str() {
            Some("/etc/plfs/globals") => Some(b"- global_params:\n    num_hostdirs: 3\n".to_vec()),
            Some("/etc/plfs/self") => Some(b"- include: self\n".to_vec()),
            _ => None,
        })
    };
    let path = Path::new("/etc/plfs/rc");
    let text = b"- include: globals\n- include: /etc/plfs/globals\n- mount_point: /m\n";
    let found = Plfsrc::parse_with(path, text, &mut include).unwrap();
    let places: Vec<String> =
        found.warnings.iter().map(|warning| warning.place.to_string()).collect();
    assert_eq!(places, ["/etc/plfs/globals:2:5"; 2]);
    assert_eq!(found.managed[0].directory.place.to_string(), "/etc/plfs/rc:3:16");
    let error = Plfsrc::parse_with(path, b"- include: self\n", &mut include).unwrap_err();
    assert!(error.to_string().starts_with("/etc/plfs/self:1:12: files include each other"));
    assert!(reads < 20);
}

/// Six files, each of which includes the next one a thousand times, took for ever.
#[test]
fn so_many_files_are_included_and_no_more() {
    let mut reads = 0;
    let mut include = |path: &Path| {
        reads += 1;
        let next: u32 = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        Ok(Some(match next {
            6 => b"- global_params:\n    num_hostdirs: 3\n".to_vec(),
            _ => format!("- include: {}\n", next + 1).repeat(1000).into_bytes(),
        }))
    };
    let error = Plfsrc::parse_with(Path::new("/etc/rc"), b"- include: 1\n", &mut include);
    assert!(error.unwrap_err().to_string().ends_with("more than 256 files are included"));
    assert_eq!(reads, 256);
}

/// No text makes it panic, or take long; what comes out of a text that is cut anywhere is an error
/// or what its whole lines say.
#[test]
fn hostile_texts() {
    for text in [MODERN, ORIGINAL] {
        for cut in (0..text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            let _ = parsed(&text[..cut]);
            let flipped: String =
                text.char_indices().map(|(at, c)| if at == cut { '\u{0}' } else { c }).collect();
            let _ = parsed(&flipped);
            for odd in
                ["{", "[", "\"", "'", "&a ", "*a", "!", "|\n", ">\n", "%", "? ", "\t", "\u{feff}"]
            {
                let _ = parsed(&format!("{}{odd}{}", &text[..cut], &text[cut..]));
            }
        }
    }
    let begun = std::time::Instant::now();
    for deep in ["[", "{a: ", "- ", "? ", "a: &a [", "'", "\"\\", "a:\n ", "-\n ", "*a "] {
        let text = deep.repeat(60_000 / deep.len());
        let _ = parsed(&text);
    }
    let laughs: String = (0..9).fold("a0: &a0 [x]\n".into(), |text: String, n| {
        text + &format!("a{}: &a{} [*a{n}, *a{n}, *a{n}]\n", n + 1, n + 1)
    });
    assert!(parsed(&laughs).is_err());
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
