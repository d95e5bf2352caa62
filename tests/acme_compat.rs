//! The same command line, `ib_acme` of this package and the distribution's, of the same service: standard output and
//! exit status are the same, or the table says what is different. With either service.

#[path = "util/acme_rows.rs"]
mod rows;
#[path = "util/acme_run.rs"]
mod run;
mod util;

use std::fs;
use std::net::Ipv6Addr;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;

use rows::{Expect, Row, Setup};
use run::{Ran, Tool, difference, finish, is_documented};
use util::{Daemon, Lab, Program, Shared, partitions};

/// One host where the tools run, one that they ask for; two ports each.
static SUBNET: Shared = Shared::new(|o| {
    o.hca_ports = 2;
    o.partitions = Some(partitions("acme", "Default=0x7fff,ipoib:ALL=full;\nRed=0x0123:ALL=full;\n"));
});

const HOST: &str = "H1";

/// Whoever is dead is so soon.
const OPTIONS: &str = "timeout 100\nretries 0\n";

/// What words of the table stand for.
struct Names {
    lids: [u16; 2],
    gids: [Ipv6Addr; 2],
}

impl Names {
    fn of(lab: &Lab<'_>) -> Names {
        let ports = lab.hosts(["H1", "H2"]);
        Names { lids: [ports[0].lid, ports[1].lid], gids: [ports[0].gid.into(), ports[1].gid.into()] }
    }

    fn words(&self, line: &str) -> Vec<String> {
        let word = |word: &str| {
            let mut word = word.replace("''", "");
            for (number, (lid, gid)) in self.lids.iter().zip(self.gids).enumerate() {
                word = word.replace(&format!("@lid{}", number + 1), &lid.to_string());
                word = word.replace(&format!("@gid{}", number + 1), &gid.to_string());
            }
            word.replace("@64", &long(64)).replace("@63", &long(63)).replace("@46", &long(46))
        };
        line.split_whitespace().filter(|w| *w != "@nothing").map(word).collect()
    }
}

/// A name of this many bytes.
fn long(length: usize) -> String {
    "n".repeat(length)
}

/// A service for rows of this kind, if it takes one.
fn serve(lab: &Lab<'_>, program: Program, setup: Setup) -> Option<Daemon> {
    let _ = fs::remove_file(lab.file(HOST, "/run/ibacm-tcp.port"));
    // No longer than the distribution's takes them.
    let long = long(46);
    let names = format!("h1 mlx5_0 1 default\n{long} mlx5_0 1 default\nred mlx5_0 1 0x8123\nother mlx5_0 2 default\n");
    match setup {
        Setup::Warm | Setup::Cold => Some(lab.start_named(program, HOST, OPTIONS, &names)),
        Setup::Loop => {
            lab.write(HOST, "/etc/rdma/ibacm_opts.cfg", &format!("{OPTIONS}server_mode loop\n"));
            for port in 1..=2 {
                // What a service before this one has joined does not count.
                lab.inject(&format!("leave {HOST} port={port}")).unwrap();
            }
            let daemon = lab.spawn(program, HOST, &["-P"]);
            let up = util::wait_for(util::PATIENCE, || {
                let published = lab.file(HOST, "/run/ibacm-tcp.port").exists();
                let ran = Tool::Stock.words(lab, HOST, "-S 127.0.0.1 -e");
                (published && ran.stdout.contains(",ibacmp,")).then_some(())
            });
            assert!(up.is_some(), "{program:?} does not serve: {}", daemon.said());
            lab.wait_joined(HOST);
            Some(daemon)
        }
        Setup::Nobody | Setup::Junk => {
            let _ = fs::remove_file(lab.file(HOST, "/run/ibacm-unix.sock"));
            if setup == Setup::Junk {
                lab.write(HOST, "/run/ibacm-tcp.port", "junk\n");
            }
            None
        }
    }
}

/// Lets the service find what is asked for later, so that it makes no difference who asks first.
fn warm(lab: &Lab<'_>, names: &Names) {
    for line in
        ["-d 10.77.0.2", "-d fd77::2", "-f n -s h1 -d h2", "-f n -s other -d h2", "-f l -d @lid2", "-f g -d @gid2"]
    {
        let found = util::wait_for(util::PATIENCE, || {
            let ran = Tool::Stock.ask(lab, HOST, &names.words(line));
            // A name of the second port has no way to the first one's group: it is only asked for.
            (ran.code() == 0 || line.contains("other")).then_some(())
        });
        assert!(found.is_some(), "{line}: {}", Tool::Stock.ask(lab, HOST, &names.words(line)).stdout);
    }
}

fn see(lab: &Lab<'_>, tool: Tool, names: &Names, row: &Row) -> Ran {
    let mut command = tool.command(lab, HOST);
    if row.posix {
        command.env("POSIXLY_CORRECT", "1");
    }
    finish(command.args(names.words(row.line)))
}

/// What is wrong with a row, if anything.
fn compare(lab: &Lab<'_>, program: Program, names: &Names, row: &Row) -> Result<(), String> {
    let mut daemon = None;
    let mut renew = || {
        if row.setup == Setup::Cold {
            drop(daemon.take());
            daemon = serve(lab, program, row.setup);
        }
    };
    renew();
    let stock = see(lab, Tool::Stock, names, row);
    renew();
    let ours = see(lab, Tool::Ours, names, row);
    match row.expect {
        Expect::Same => difference(&ours, &stock),
        Expect::Differs(_, check) if check(&ours, &stock) && !ours.stderr.contains("panicked") => Ok(()),
        Expect::Differs(why, _) => Err(format!("not as in {why:?}:\nours: {ours:?}\nstock: {stock:?}")),
    }
}

/// Rows with `$ROW` in their lines alone, for whoever works on one.
fn table() -> Vec<Row> {
    let only = std::env::var("ROW").unwrap_or_default();
    rows::table().into_iter().filter(|row| row.line.contains(&only)).collect()
}

fn check_all(program: Program, setups: &[Setup]) {
    let lab = SUBNET.enter();
    for host in ["H1", "H2"] {
        for port in 1..=2 {
            // 2^(8-8) ms of the subnet's own: waiting is for the options alone.
            lab.inject(&format!("port {host} port={port} subnet_timeout=8 quiet=1")).unwrap();
        }
    }
    for link in ["/run/svc1", "/run/svc2"] {
        let _ = symlink("ibacm-unix.sock", lab.file(HOST, link));
    }
    // A socket that nobody listens to any more.
    let _ = UnixListener::bind(lab.file(HOST, "/run/stale.sock"));
    let _peer = lab.ours("H2", "");
    let names = Names::of(&lab);
    let mut failures = Vec::new();
    for setup in setups {
        let fits = |row: &Row| row.setup == *setup && row.service.is_none_or(|service| service == program);
        let rows: Vec<Row> = table().into_iter().filter(fits).collect();
        if rows.is_empty() {
            continue;
        }
        let daemon = (*setup != Setup::Cold).then(|| serve(&lab, program, *setup)).flatten();
        if *setup == Setup::Warm {
            warm(&lab, &names);
        }
        for row in rows {
            // A loaded machine can make any answer late: what is different has to be so each time.
            let once = || compare(&lab, program, &names, &row);
            let found = once().or_else(|_| once()).or_else(|_| once()).or_else(|_| once());
            if let Err(why) = found {
                failures.push(format!("== {:?} {}\n{why}", row.setup, row.line));
            }
        }
        drop(daemon);
    }
    assert!(failures.is_empty(), "{} rows\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn command_lines_do_the_same_with_our_service() {
    check_all(Program::Ours, &[Setup::Warm, Setup::Cold, Setup::Loop]);
}

#[test]
fn command_lines_do_the_same_with_the_distributions_service() {
    check_all(Program::Stock, &[Setup::Warm, Setup::Cold, Setup::Loop]);
}

#[test]
fn command_lines_do_the_same_without_a_service() {
    check_all(Program::Stock, &[Setup::Nobody, Setup::Junk]);
}

#[test]
fn the_table_is_large_and_every_difference_is_documented() {
    let rows = rows::table();
    let mut lines: Vec<_> = rows.iter().map(|row| row.line).collect();
    lines.sort_unstable();
    lines.dedup();
    assert!(lines.len() >= 300, "{}", lines.len());
    for row in rows {
        if let Expect::Differs(why, _) = row.expect {
            assert!(is_documented(why), "{}: no section {why:?}", row.line);
        }
    }
}
