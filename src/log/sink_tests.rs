//! Tests of the log's targets.

use super::*;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;

/// A directory of its own for one test, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ibacm-sink-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        Dir(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn line(text: &str) -> Line {
    Line::new("test", format_args!("{text}"))
}

fn open(path: &Path) -> Result<Sink, LogError> {
    Sink::open(&LogTarget::File(path.to_owned()))
}

#[test]
fn appends_whole_lines() {
    let dir = Dir::new("append");
    let path = dir.0.join("log");
    fs::write(&path, "before\n").unwrap();
    let mut sink = open(&path).unwrap();
    sink.write(0, line("one")).unwrap();
    open(&path).unwrap().write(0, line("two")).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0], "before");
    let (stamp, rest) = lines[1].split_at("2026-01-31T12:00:00.123".len());
    assert_eq!((rest, stamp.as_bytes()[10], stamp.as_bytes()[19]), (": test: one", b'T', b'.'));
}

#[test]
fn nobody_else_can_write_to_it() {
    let dir = Dir::new("mode");
    let path = dir.0.join("log");
    open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & WRITABLE_BY_OTHERS, 0);
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
}

#[test]
fn links_are_followed_only_where_nobody_could_plant_them() {
    let dir = Dir::new("link");
    let (real, link) = (dir.0.join("real"), dir.0.join("link"));
    symlink(&real, &link).unwrap();
    open(&link).unwrap().write(0, line("x")).unwrap();
    assert!(real.exists());
    fs::remove_file(&real).unwrap();
    fs::set_permissions(&dir.0, Permissions::from_mode(0o1777)).unwrap();
    assert!(open(&link).is_err());
    assert!(!real.exists());
}

#[test]
fn what_is_no_file_is_a_clear_error() {
    let dir = Dir::new("error");
    let missing = dir.0.join("none/log");
    let text = open(&missing).err().unwrap().to_string();
    assert!(text.starts_with(&format!("log file {}: cannot be opened: ", missing.display())), "{text}");
    assert!(text.contains(&format!("is there a directory {}/none?", dir.0.display())), "{text}");
    assert!(open(&dir.0).is_err(), "a directory");
}

#[test]
fn full_device_loses_the_line_without_panic() {
    if let Ok(mut sink) = open(Path::new("/dev/full")) {
        assert_eq!(sink.write(0, line("x")).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
}

#[test]
fn full_pipe_is_not_waited_for_and_broken_one_is_no_signal() {
    let (mut reader, writer) = io::pipe().unwrap();
    let mut sink = Sink::Fd { fd: writer.as_raw_fd(), journal: false };
    let mut written = 0_usize;
    while sink.write(0, line("x")).is_ok() {
        written += 1;
        assert!(written < 1_000_000, "the pipe never fills");
    }
    assert!(written > 100, "{written}");
    let mut some = vec![0; 8192];
    assert!(reader.read(&mut some).unwrap() > 0);
    sink.write(0, line("there is room again")).unwrap();
    drop(reader);
    // A child that another test makes has a copy of the reader until it has become its program.
    let broken = (0..5000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1));
        sink.write(0, line("x")).is_err_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    });
    assert!(broken, "the pipe lives on");
}

#[test]
fn closed_descriptor_is_an_error() {
    assert!(Sink::Fd { fd: 1_000_000, journal: false }.write(0, line("x")).is_err());
}

#[test]
fn half_a_line_does_not_spoil_the_next() {
    let dir = Dir::new("cut");
    let path = dir.0.join("log");
    let mut file = File::create(&path).unwrap();
    file.write_all(b"half").unwrap();
    let file = OpenOptions::new().append(true).open(&path).unwrap();
    let mut sink = Sink::File { path: path.clone(), file, cut: true };
    sink.write(0, line("one")).unwrap();
    sink.write(0, line("two")).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
}

#[test]
fn the_journal_is_known_by_its_stream() {
    let dir = Dir::new("journal");
    let path = dir.0.join("stream");
    let file = OpenOptions::new().append(true).create(true).open(&path).unwrap();
    let fd = file.as_raw_fd();
    let status = file.metadata().unwrap();
    let own = format!("{}:{}", status.dev(), status.ino());
    assert!(is_journal(fd, Some(&own)));
    let wrong = format!("{}:{}", status.dev(), status.ino() + 1);
    for other in [None, Some(""), Some(":"), Some("x:y"), Some("1"), Some(wrong.as_str())] {
        assert!(!is_journal(fd, other), "{other:?}");
    }
    assert!(!is_journal(1_000_000, Some(&own)));
    let mut sink = Sink::Fd { fd, journal: true };
    sink.write(0, line("warning: x")).unwrap();
    sink.write(2, line("y")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "<4>test: warning: x\n<7>test: y\n");
}
