//! Tests of the process-wide log. It is shared with every other test of the crate, whose lines may stand in between:
//! only one test sets it up, and it looks at its own lines alone.

use super::*;
use std::fs;
use std::path::PathBuf;

#[test]
fn the_whole_way() {
    let path: PathBuf = std::env::temp_dir().join(format!("ibacm-log-{}", std::process::id()));
    let moved = path.with_extension("1");
    configure(&LogTarget::File(path.clone()), 1).unwrap();

    struct Never;
    impl fmt::Display for Never {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("formatted though the level is off");
        }
    }
    log!(2, "{}", Never);
    log_keyed!(2, 1, "{}", Never);
    log!(1, "value {}", 5);
    write_foreign(0, b"plugin: text \xff\n");
    write_foreign(2, b"plugin: not this\n");

    for address in ["a", "b"] {
        for round in 0..LIMIT + 3 {
            log_keyed!(0, address, "{address} {round}");
        }
    }
    for _ in 0..2 * LIMIT {
        log_limited!(0, "same place");
    }
    let due = on_time(Instant::now()).expect("lines were left out");
    on_time(due + std::time::Duration::from_secs(1));

    fs::rename(&path, &moved).unwrap();
    log!(0, "still the old file");
    reopen().unwrap();
    log!(0, "the new file");
    assert!(configure(&LogTarget::File("/nonexistent/x/log".into()), 2).is_err());
    assert!(!enabled(2), "a failed configuration changes nothing");
    log!(0, "still the new file");
    configure(&LogTarget::Stderr, 0).unwrap();

    let texts = |path: &PathBuf| -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        let own = |line: &&str| {
            ["tests: ", "plugin: ", "like 'a ", "like 'b ", "like 'same"].iter().any(|mark| line.contains(mark))
        };
        text.lines().filter(own).map(|line| line.split_at("2026-01-31T12:00:00.123: ".len()).1.to_owned()).collect()
    };
    let (old, new) = (texts(&moved), texts(&path));
    fs::remove_file(&path).unwrap();
    fs::remove_file(&moved).unwrap();
    assert_eq!(old[..2], ["tests: value 5", "plugin: text \u{fffd}"]);
    let count = |start: &str| old.iter().filter(|text| text.starts_with(start)).count();
    assert_eq!((count("tests: a "), count("tests: b "), count("tests: same place")), (10, 10, 10));
    for line in ["3 lines like 'a 10'", "3 lines like 'b 10'", "10 lines like 'same place'"] {
        assert_eq!(count(&format!("log: suppressed {line}")), 1, "{line}: {old:?}");
    }
    assert_eq!(old.last().unwrap(), "tests: still the old file");
    assert_eq!(new, ["tests: the new file", "tests: still the new file"]);
}

#[test]
fn lost_lines_are_told() {
    // A logger of its own: the first target takes nothing, the second does.
    let mut logger = Logger::new();
    logger.sink = Sink::Fd { fd: 1_000_000, journal: false };
    for _ in 0..3 {
        logger.put(0, "x", format_args!("lost"));
    }
    assert_eq!(logger.lost, 3);
    let path: PathBuf = std::env::temp_dir().join(format!("ibacm-lost-{}", std::process::id()));
    logger.sink = Sink::open(&LogTarget::File(path.clone())).unwrap();
    logger.put(0, "x", format_args!("written"));
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(text.contains("log: 3 lines were lost"), "{text}");
    assert!(text.ends_with("x: written\n"), "{text}");
    assert_eq!(logger.lost, 0);
}
