//! The file, in a directory of the test's own.

use std::os::unix::fs::{MetadataExt, symlink};

use super::*;

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("ibacm-metrics-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names.into_iter().map(|n| n.into_string().unwrap()).collect()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const S: u64 = 1_000_000;

#[test]
fn it_is_replaced_as_a_whole_and_nothing_else_is_left() {
    let dir = Dir::new("whole");
    let path = dir.0.join("ibacm.prom");
    let mut file = MetricsFile::default();
    file.write(Time(0), b"nobody wants it");
    assert_eq!((dir.names().len(), file.next_deadline()), (0, Time::NEVER));
    file.set(Time(5), Some(&path), 15);
    assert_eq!(file.next_deadline(), Time(5), "at once");
    file.write(Time(5), b"# HELP ibacm_one");
    assert_eq!((fs::read(&path).unwrap(), file.next_deadline()), (b"# HELP ibacm_one".to_vec(), Time(5 + 15 * S)));
    let (inode, mut old) = (fs::metadata(&path).unwrap().ino(), fs::File::open(&path).unwrap());
    file.write(Time(6), b"another");
    assert_eq!(fs::read(&path).unwrap(), b"another");
    assert_ne!(fs::metadata(&path).unwrap().ino(), inode);
    let mut text = String::new();
    io::Read::read_to_string(&mut old, &mut text).unwrap();
    assert_eq!(text, "# HELP ibacm_one", "who reads the old one has all of it");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o644);
    assert_eq!(dir.names(), ["ibacm.prom"]);
    // the same options once more change nothing, others do
    file.set(Time(7), Some(&path), 15);
    assert_eq!(file.next_deadline(), Time(6 + 15 * S));
    file.set(Time(7), Some(&path), 1);
    assert_eq!(file.next_deadline(), Time(7));
    file.set(Time(8), None, 1);
    assert_eq!((file.next_deadline(), file.path()), (Time::NEVER, None));
}

#[test]
fn what_cannot_be_written_costs_nothing_else() {
    let dir = Dir::new("failing");
    let path = dir.0.join("none").join("ibacm.prom");
    let mut file = MetricsFile::default();
    file.set(Time(0), Some(&path), 1);
    file.write(Time(0), b"# HELP ibacm_one");
    assert!(file.failing && file.next_deadline() == Time(S));
    fs::create_dir(dir.0.join("none")).unwrap();
    file.write(Time(S), b"# HELP ibacm_two");
    assert!(!file.failing);
    assert_eq!(fs::read(&path).unwrap(), b"# HELP ibacm_two");
    // what is no file is not replaced, and no link is followed
    let (victim, link) = (dir.0.join("victim"), dir.0.join("link"));
    fs::write(&victim, b"precious").unwrap();
    symlink(&victim, &link).unwrap();
    for wrong in [dir.0.join("none"), link.clone(), PathBuf::from("/dev/null"), PathBuf::from("/"), PathBuf::from("..")]
    {
        assert!(replace(&wrong, b"three").is_err(), "{}", wrong.display());
    }
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert!(fs::read_link(&link).is_ok());
    assert_eq!(dir.names(), ["link", "none", "victim"]);
}

#[test]
fn a_name_that_was_left_behind_is_in_nobodys_way() {
    let dir = Dir::new("left");
    let (path, victim) = (dir.0.join("ibacm.prom"), dir.0.join("victim"));
    fs::write(&victim, b"precious").unwrap();
    symlink(&victim, temp_name(&path).unwrap()).unwrap();
    replace(&path, b"# HELP ibacm_one").unwrap();
    assert_eq!(
        (fs::read(&path).unwrap(), fs::read(&victim).unwrap()),
        (b"# HELP ibacm_one".to_vec(), b"precious".to_vec())
    );
    assert_eq!(dir.names(), ["ibacm.prom", "victim"]);
}

/// A disk that is full, which the test may only make where it is root.
#[test]
fn a_full_disk_leaves_the_old_file() {
    let dir = Dir::new("full");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=4k", "none"])
        .arg(&dir.0)
        .status()
        .unwrap();
    assert!(mounted.success(), "the tests are root's");
    let path = dir.0.join("ibacm.prom");
    replace(&path, b"# HELP ibacm_one").unwrap();
    let failed = replace(&path, &[b'x'; 20_000]).unwrap_err();
    let (names, kept) = (dir.names(), fs::read(&path).unwrap());
    // Lazily: a child that another test makes may have a copy of the file's descriptor for a moment.
    assert!(std::process::Command::new("umount").arg("--lazy").arg(&dir.0).status().unwrap().success());
    assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
    assert_eq!((names, kept), (vec!["ibacm.prom".to_owned()], b"# HELP ibacm_one".to_vec()));
}

#[test]
fn what_is_something_elses_stays() {
    let dir = Dir::new("others");
    let path = dir.0.join("ibacm.pid");
    fs::write(&path, b"1234\n").unwrap();
    assert!(replace(&path, b"# HELP ibacm_one").is_err());
    assert_eq!(fs::read(&path).unwrap(), b"1234\n");
    fs::write(&path, b"").unwrap();
    replace(&path, b"# HELP ibacm_one").unwrap();
    replace(&path, b"# HELP ibacm_two").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"# HELP ibacm_two");
}
