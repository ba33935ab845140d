//! A plfsrc that may be anything: no panic, an error that is one line with its place, and of what
//! is understood a modern file that says the same.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use plfs_rc::Plfsrc;

fuzz_target!(|bytes: &[u8]| {
    for text in
        [bytes, &[b"managed:\n- directory: /a\n  ", bytes].concat(), &[b"- ", bytes].concat()]
    {
        match Plfsrc::parse(Path::new("/rc"), text) {
            Ok(found) => {
                let modern = found.modern(|_| true);
                let again =
                    Plfsrc::parse(Path::new("/rc"), modern.as_bytes()).expect("what was made");
                assert!(!again.is_original && again.warnings.is_empty());
                let settings = |found: &Plfsrc| -> Vec<_> {
                    found.settings.iter().map(|(key, given)| (*key, given.value.clone())).collect()
                };
                assert_eq!(settings(&found), settings(&again));
                let managed = |found: &Plfsrc| -> Vec<_> {
                    found.managed.iter().map(|it| it.directory.value.clone()).collect()
                };
                assert_eq!(managed(&found), managed(&again));
            }
            Err(problem) => {
                assert!(problem.place.line > 0 && problem.place.column > 0);
                assert!(!problem.to_string().contains('\n'));
            }
        }
    }
});
