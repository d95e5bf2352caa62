//! Applications that resolve through the distribution's librdmacm.

mod util;

use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ibacm_wire::PathRecord;
use util::{Lab, Program, Shared, compile, sa, succeed};

static SUBNET: Shared = Shared::new(|o| o.hosts = 2);

static RESOLVE: LazyLock<PathBuf> = LazyLock::new(|| compile("rdma_resolve", &["-lrdmacm", "-libverbs"]));

/// What the application says for these arguments on H1.
fn resolve(lab: &Lab<'_>, arguments: &[&str]) -> String {
    succeed(lab.exec("H1", Path::new(&*RESOLVE)).args(arguments))
}

fn answer(path: Option<&PathRecord>, source: Option<&str>) -> String {
    let mut text = "path ".to_owned();
    match path {
        Some(path) => path.0.iter().for_each(|b| write!(text, "{b:02x}").expect("a string takes all")),
        None => text.push_str("none"),
    }
    format!("{text}\nsource {}\n", source.unwrap_or("none"))
}

#[test]
fn applications_get_the_path_of_the_sa() {
    let lab = SUBNET.enter();
    let [one, two] = lab.hosts(["H1", "H2"]);
    let path = sa::path(&lab, one.lid, two.lid);
    let _peer = lab.ours("H2", "");
    for program in [Program::Ours, Program::Stock] {
        let _daemon = lab.start(program, "H1", "");
        for (family, source, destination) in [("4", "10.77.0.1", "10.77.0.2"), ("6", "fd77::1", "fd77::2")] {
            let wanted = answer(Some(&path), Some(source));
            assert_eq!(resolve(&lab, &[family, source, destination]), wanted, "{program:?}");
            assert_eq!(resolve(&lab, &[family, "-", destination]), wanted, "{program:?}: no source");
            assert_eq!(resolve(&lab, &[family, source, destination, "numeric"]), wanted, "{program:?}: cached");
            // One connection for the life of the process.
            assert_eq!(resolve(&lab, &[family, "-", destination, "twice"]), wanted.repeat(2), "{program:?}: twice");
        }
        // An address of the fabric itself is a question by path, without an IP address anywhere.
        let gid = Ipv6Addr::from(two.gid).to_string();
        let said = resolve(&lab, &["ib", "-", &gid]);
        assert_eq!(said, answer(Some(&path), None), "{program:?}");
    }
}

#[test]
fn applications_learn_quickly_that_there_is_no_path() {
    let lab = SUBNET.enter();
    let timeout = Duration::from_secs(3);
    let _daemon = lab.ours("H1", &format!("timeout {}\nretries 0\n", timeout.as_millis()));
    let begin = Instant::now();
    assert_eq!(resolve(&lab, &["4", "10.77.0.1", "10.77.0.77", "numeric"]), answer(None, Some("10.77.0.1")));
    assert!(begin.elapsed() < timeout, "a numeric address is looked for in the cache only");
    // A look-up, meanwhile started, ends; and so does that of the caller who waits.
    assert_eq!(resolve(&lab, &["4", "10.77.0.1", "10.77.0.78"]), answer(None, Some("10.77.0.1")));
    // The distribution's provider asks about one after the other.
    let both = if util::plugged::STOCK { 2 } else { 1 };
    assert!(begin.elapsed() < Duration::from_secs(10) * both);
    // No address of this host.
    assert_eq!(resolve(&lab, &["4", "10.77.0.2", "10.77.0.2"]), answer(None, Some("10.77.0.2")));
}

#[test]
fn applications_find_the_service_over_tcp() {
    let lab = SUBNET.enter();
    let [one, two] = lab.hosts(["H1", "H2"]);
    let path = sa::path(&lab, one.lid, two.lid);
    let _peer = lab.ours("H2", "");
    lab.write("H1", "/etc/rdma/ibacm_opts.cfg", "server_mode loop\nserver_port 6789\n");
    let daemon = lab.spawn(Program::Ours, "H1", &["-P"]);
    let port = lab.file("H1", "/run/ibacm-tcp.port");
    let up = util::wait_for(util::PATIENCE, || std::fs::read_to_string(&port).ok().filter(|t| t.ends_with('\n')));
    assert_eq!(up.as_deref(), Some("6789\n"), "{}", daemon.said());
    lab.wait_joined("H1");
    assert!(!lab.file("H1", "/run/ibacm.sock").exists());
    assert_eq!(resolve(&lab, &["4", "-", "10.77.0.2"]), answer(Some(&path), Some("10.77.0.1")));
    let said = lab.acme("H1", &["-S", "127.0.0.1", "-f", "i", "-d", "10.77.0.2", "-v"]);
    assert!(said.contains("SA verification: success"), "{said}");
    assert_eq!(daemon.stop(), Some(0));
}
