//! The service in numbers, on a whole subnet: what is dropped and refused is counted, and `ib_acme` and the file for
//! Prometheus say the same.

#[path = "util/prometheus.rs"]
mod prometheus;
#[path = "util/rob.rs"]
mod rob;
#[path = "util/acme_run.rs"]
mod run;
#[allow(unused_imports, reason = "each test program uses a part of it")]
mod util;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ibacm_wire::client::{Kind, MORE_ROWS, More, ROWS, Row};
use prometheus::{Series, parse};
use rob::enter;
use run::Tool;
use util::client::between;
use util::{Client, Daemon, Lab, PATIENCE, Shared, wait_for};

static LAB: Shared = Shared::new(|_| {});

const FILE: &str = "/run/ibacm.prom";
const OPTIONS: &str = "metrics_file /run/ibacm.prom\nmetrics_interval 1\n";

fn read(path: &Path) -> BTreeMap<Series, u64> {
    let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    parse(&text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(&MORE_ROWS)
}

/// The number of a counter in the file, of the service or of what has these labels.
fn in_file(numbers: &BTreeMap<Series, u64>, row: &Row, labels: &[(&str, &str)]) -> Option<u64> {
    let whose = if labels.is_empty() { "" } else { "endpoint_" };
    let kind = if row.kind == Kind::Now { "" } else { "_total" };
    let name = format!("ibacm_{whose}{}{kind}", row.key.strip_suffix("_count").unwrap_or(row.key));
    let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    numbers.get(&(name, labels)).copied()
}

fn gauge(path: &Path, name: &str) -> Option<u64> {
    read(path).get(&(name.to_owned(), Vec::new())).copied()
}

/// What `ib_acme` says in a document, in the order of [`rows`]; of what is null, nothing.
fn in_document(lab: &Lab<'_>, arguments: &str) -> Vec<Option<u64>> {
    let json = Tool::Ours.words(lab, "H1", arguments).stdout;
    let value = |row: &Row| {
        let start = json.find(&format!("\"{}\": ", row.key)).unwrap_or_else(|| panic!("no {} in {json}", row.key));
        let rest = json[start..].split_once(": ").unwrap().1;
        let end = rest.find([',', '\n', '}']).unwrap();
        (rest[..end] != *"null").then(|| rest[..end].parse().unwrap_or_else(|e| panic!("{}: {e}", &rest[..end])))
    };
    rows().map(value).collect()
}

/// Half the trouble that there is.
fn make_trouble(lab: &Lab<'_>) {
    for _ in 0..3 {
        let mut client = Client::connect(lab, "H1");
        client.send(&[9; 16]);
        assert!(client.recv().is_none(), "it is closed");
    }
    let mut client = Client::connect(lab, "H1");
    assert_eq!(client.resolve(&between("10.77.0.1", "10.77.0.1")).header.status, 0);
    assert_ne!(client.resolve(&between("10.1.1.1", "10.77.0.1")).header.status, 0, "no such source");
    let group = lab.port("H1").unwrap().joined.into_iter().find(|g| g.0[..2] == [0xff, 0x15]).expect("a group").0;
    let mgid = std::net::Ipv6Addr::from(group);
    lab.inject(&format!("raw mgid={mgid} pkey=65535 data=0011223344")).unwrap();
    let dropped = || (client.more_counters()[More::DatagramsMalformed as usize] > 0).then_some(());
    assert!(wait_for(PATIENCE, dropped).is_some(), "it has not come");
    // The last that the service does by itself: numbers that are read one after the other are the same from then on.
    let subscribed = || (client.more_counters()[More::NoticesSubscribed as usize] > 0).then_some(());
    assert!(wait_for(PATIENCE, subscribed).is_some(), "the SA takes no subscription");
}

#[test]
fn the_file_says_what_ib_acme_says() {
    let lab = enter(&LAB);
    let daemon = lab.ours("H1", OPTIONS);
    let path = lab.file("H1", FILE);
    make_trouble(&lab);
    let labels = [("device", "mlx5_0"), ("port", "1"), ("pkey", "0xffff")];
    let same = |arguments: &str, labels: &[(&str, &str)]| {
        let (told, numbers) = (in_document(&lab, arguments), read(&path));
        let written: Vec<_> = rows().map(|row| in_file(&numbers, row, labels)).collect();
        if told == written { Ok(written) } else { Err((told, written)) }
    };
    let agree = |arguments: &str, labels: &[(&str, &str)]| {
        let agreed = wait_for(PATIENCE, || same(arguments, labels).ok());
        agreed.unwrap_or_else(|| panic!("{arguments}: {:?} in {}", same(arguments, labels), daemon.said()))
    };
    let totals = agree("-P --json", &[]);
    let total = |key: &str| rows().zip(&totals).find(|(row, _)| row.key == key).and_then(|(_, value)| *value);
    assert_eq!((total("clients_closed_protocol"), total("resolve"), total("error_count")), (Some(3), Some(2), Some(1)));
    assert!(total("datagrams_malformed") >= Some(1), "{totals:?}");
    assert_eq!((total("requests_refused"), total("kernel_late")), (Some(0), Some(0)));
    let endpoint = agree("-P 1 --json", &labels);
    assert_eq!(endpoint, agree("-P s -s 10.77.0.1 --json", &labels));
    for ((row, value), total) in rows().zip(endpoint).zip(&totals) {
        assert_eq!(value.is_none(), row.kind == Kind::Service, "{}", row.key);
        assert!(value <= *total, "{}: {value:?} of {total:?}", row.key);
    }
    for (name, least) in
        [("ibacm_up", 1), ("ibacm_endpoints", 1), ("ibacm_groups_joined", 1), ("ibacm_destinations", 1)]
    {
        assert!(gauge(&path, name) >= Some(least), "{name}");
    }
    // Text: what is the service's is no endpoint's. The distribution's program sees what it always saw.
    let column = |line: &str| Tool::Ours.words(&lab, "H1", line).stdout;
    assert!(column("-P col --all-counters").contains("Clients Protocol : 3\n"));
    let lines = |line: &str| column(line).lines().filter(|l| l.contains(" : ")).count();
    assert_eq!((lines("-P col"), lines("-P col --all-counters")), (ROWS.len(), rows().count()));
    let all = column("-P all --all-counters");
    assert!(all.contains("Claims Refused") && !all.contains("Clients Protocol"), "{all}");
    assert_eq!(lab.acme("H1", &["-P"]).matches(',').count(), 14, "seven counters and their names, as always");
    // Clients are counted as they come and go.
    let clients = |wanted| {
        let counted = wait_for(PATIENCE, || (gauge(&path, "ibacm_clients") == Some(wanted)).then_some(()));
        assert!(counted.is_some(), "{wanted} clients: {:?}", gauge(&path, "ibacm_clients"));
    };
    clients(0);
    let client = Client::connect(&lab, "H1");
    clients(1);
    drop(client);
}

/// The names in the directory of the file that have to do with it.
fn names(path: &Path) -> Vec<String> {
    let all = fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    all.filter(|name| name.contains(".prom")).collect()
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

/// Has the service read other options.
fn reload(lab: &Lab<'_>, daemon: &Daemon, options: &str) {
    let again = |daemon: &Daemon| daemon.said().matches("the files were read again").count();
    let before = again(daemon);
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", options);
    daemon.signal("HUP");
    assert!(wait_for(PATIENCE, || (again(daemon) > before).then_some(())).is_some(), "{}", daemon.said());
}

#[test]
fn it_is_whole_at_any_time_and_only_there_when_it_is_wanted() {
    let lab = enter(&LAB);
    let [path, other] = [FILE, "/run/there/other.prom"].map(|f| lab.file("H1", f));
    let _ = fs::remove_file(&path);
    let _ = fs::remove_dir_all(other.parent().unwrap());
    let daemon = lab.ours("H1", "");
    assert_eq!(names(&path), [""; 0], "nobody wants it");
    reload(&lab, &daemon, OPTIONS);
    assert!(wait_for(PATIENCE, || path.exists().then_some(())).is_some(), "{}", daemon.said());
    // Read again and again, it is a whole one each time, and others come.
    let (mut seen, begin) = (Vec::new(), Instant::now());
    while seen.len() < 4 && begin.elapsed() < PATIENCE {
        assert_eq!(gauge(&path, "ibacm_up"), Some(1));
        let (new, mode) = (inode(&path), fs::metadata(&path).unwrap().mode() & 0o7777);
        assert_eq!(mode, 0o644);
        if seen.last() != Some(&new) {
            seen.push(new);
        }
    }
    assert_eq!(seen.len(), 4, "it is not written again");
    // Off: a last time, and never again.
    reload(&lab, &daemon, "");
    assert_eq!(gauge(&path, "ibacm_up"), Some(0));
    let last = inode(&path);
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!((inode(&path), names(&path)), (last, vec!["ibacm.prom".to_owned()]));
    // A directory that is not there is said once, whatever else goes on as ever.
    reload(&lab, &daemon, "metrics_file /run/there/other.prom\nmetrics_interval 1\n");
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(
        daemon.said().matches("cannot write metrics_file /run/there/other.prom").count(),
        1,
        "{}",
        daemon.said()
    );
    assert_eq!(Client::connect(&lab, "H1").resolve(&between("10.77.0.1", "10.77.0.1")).header.status, 0);
    fs::create_dir(other.parent().unwrap()).unwrap();
    let written: Option<PathBuf> = wait_for(PATIENCE, || other.exists().then(|| other.clone()));
    assert_eq!(gauge(&written.expect("it is tried again"), "ibacm_up"), Some(1));
    let said = "metrics_file /run/there/other.prom is written again";
    assert!(wait_for(PATIENCE, || daemon.said().contains(said).then_some(())).is_some(), "{}", daemon.said());
    // What is no file stays.
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&other, &path).unwrap();
    reload(&lab, &daemon, OPTIONS);
    assert_eq!(gauge(&other, "ibacm_up"), Some(0));
    let said = "cannot write metrics_file /run/ibacm.prom: what is there is no file";
    assert!(wait_for(PATIENCE, || daemon.said().contains(said).then_some(())).is_some(), "{}", daemon.said());
    assert!(fs::symlink_metadata(&path).unwrap().is_symlink());
    // The service ends: its last word.
    fs::remove_file(&path).unwrap();
    assert!(wait_for(PATIENCE, || path.exists().then_some(())).is_some(), "{}", daemon.said());
    assert_eq!((daemon.stop(), gauge(&path, "ibacm_up")), (Some(0), Some(0)));
    assert_eq!(names(&path), ["ibacm.prom"]);
}
