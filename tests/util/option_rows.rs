//! The table of `options_files`: files that a service may be started with, and how ours and the deployed one compare.

use super::observe::{Ask, Case};

/// How the two behave with the same file.
#[derive(Clone, Debug)]
pub enum Stock {
    /// Alike.
    Same,
    /// Differently: ours does what both do with the files of this case, for a reason that the section of
    /// docs/differences.md with this heading gives.
    Differs(Case, &'static str),
    /// As [`Stock::Differs`], and the other one is not started: it hangs, crashes or leaves things behind.
    Breaks(Case, &'static str),
    /// This is seen of ours and not of the other one.
    Adds(String, &'static str),
}

/// A line of the table.
pub struct Row {
    pub name: &'static str,
    pub case: Case,
    pub stock: Stock,
    /// How many findings a check of the files has.
    pub findings: usize,
}

/// Sections of docs/differences.md.
pub mod why {
    pub const LINES: &str = "Lines are whole, whatever their length";
    pub const NAMES: &str = "Names have 63 bytes";
    pub const WORDS: &str = "Yes and no";
    pub const RANGES: &str = "Numbers have limits";
    pub const RATES: &str = "Rates that are newer than the service";
    pub const GROUPS: &str = "Groups between the slowest and the own one";
    pub const ADDRESS: &str = "Ports and partition keys in the address file";
    pub const EQUALS: &str = "Values that are not understood";
    pub const TWICE: &str = "A name may stand twice";
    pub const CASE: &str = "Names compare without case";
    pub const COMMENTS: &str = "Comments may follow a value";
    pub const NUL: &str = "Bytes that are no text";
    pub const PRELOAD: &str = "Preloaded paths and addresses";
}

use why::*;

/// Options for questions to nobody: each of these three can be told from the others.
const SOON: &str = "timeout 100\nretries 0\n";
const WHILE: &str = "timeout 300\nretries 1\n";

fn opts(text: impl AsRef<[u8]>) -> Case {
    Case { opts: Some(text.as_ref().to_vec()), ..Case::default() }
}

/// `names` are asked for too.
fn addr(text: impl AsRef<[u8]>, names: &[&'static str]) -> Case {
    addr_opts("", text, names)
}

fn addr_opts(options: &str, text: impl AsRef<[u8]>, names: &[&'static str]) -> Case {
    let ask = names.iter().map(|n| Ask::Name(n)).collect();
    Case { addr: Some(text.as_ref().to_vec()), ask, ..opts(options) }
}

impl Case {
    fn ask(mut self, ask: Ask) -> Case {
        self.ask.push(ask);
        self
    }

    fn dead(self) -> Case {
        self.ask(Ask::Dead)
    }

    fn alone(mut self) -> Case {
        self.alone = true;
        self
    }

    fn file(mut self, path: &'static str, text: impl AsRef<[u8]>) -> Case {
        self.files.push((path, text.as_ref().to_vec()));
        self
    }
}

/// Collects the table.
struct Table(Vec<Row>);

impl Table {
    fn same(&mut self, name: &'static str, findings: usize, case: Case) {
        self.0.push(Row { name, case, stock: Stock::Same, findings });
    }

    fn differs(&mut self, name: &'static str, findings: usize, case: Case, like: Case, why: &'static str) {
        self.0.push(Row { name, case, stock: Stock::Differs(like, why), findings });
    }

    fn breaks(&mut self, name: &'static str, findings: usize, case: Case, like: Case, why: &'static str) {
        self.0.push(Row { name, case, stock: Stock::Breaks(like, why), findings });
    }

    fn adds(&mut self, name: &'static str, findings: usize, case: Case, seen: impl Into<String>, why: &'static str) {
        self.0.push(Row { name, case, stock: Stock::Adds(seen.into(), why), findings });
    }
}

/// A token of this many bytes.
fn long(length: usize) -> String {
    "n".repeat(length)
}

/// The whole table. The number is that of the findings.
pub fn table() -> Vec<Row> {
    let mut t = Table(Vec::new());
    form(&mut t);
    values(&mut t);
    service(&mut t);
    addresses(&mut t);
    lengths(&mut t);
    preloads(&mut t);
    t.0
}

/// How lines of options look.
fn form(t: &mut Table) {
    t.same("no files at all", 0, Case { opts: None, ..opts("") }.ask(Ask::Name("@")));
    t.same("empty files", 0, addr("", &[]));
    t.same("case of names and keywords", 0, opts("TIMEOUT 100\nReTries 0\nLoopBack_Prot NONE\n").dead().ask(Ask::Own));
    t.same("tabs and spaces", 0, opts("\t timeout\t\t100 \t\n  retries   0\n").dead());
    t.same("CRLF", 0, opts("timeout 100\r\n\r\nretries 0\r\n# x\r\n").dead());
    t.same("form feeds", 0, opts("timeout\x0c100\n\x0bretries 0\n").dead());
    t.same("no newline at the end", 0, opts("retries 0\ntimeout 100").dead());
    t.same("comments", 0, opts(format!("#timeout 300\n # retries 1\n##\n#\n{SOON}#timeout 300")).dead());
    t.same("the last line holds", 0, opts(format!("{WHILE}{SOON}")).dead());
    t.same("a mark of UTF-8 at the start", 1, opts(format!("\u{feff}timeout 300\n{SOON}")).dead());
    t.same("something behind the value", 2, opts("timeout 100 ms\nretries 0 times\n").dead());
    t.same("a comment behind the value", 0, opts("timeout 100 # ms\nretries 0 #times\n").dead());
    t.same("no value", 2, opts(format!("{SOON}timeout\nretries \n")).dead());
    t.same("unknown names", 2, opts(format!("timeuot 300\nretries2 1\n{SOON}")).dead());
    t.same("no space before the value", 1, opts(format!("{SOON}timeout=300\n")).dead());
    t.same("carriage returns alone", 1, opts("timeout 100\rretries 0\r").ask(Ask::Own));
    t.breaks("signs of equality", 1, opts("retries 0\ntimeout = 100\n").dead(), opts("retries 0\n").dead(), EQUALS);
    t.differs(
        "a comment for a value",
        1,
        opts("retries 1\ntimeout 300\nretries #0\n").dead(),
        opts(WHILE).dead(),
        COMMENTS,
    );
    t.same("NUL bytes in a name", 1, opts(format!("{SOON}time\0out 300\n")).dead());
    t.differs(
        "NUL bytes behind a value",
        1,
        opts(format!("{SOON}timeout 300\0\nretries 1\n")).dead(),
        opts("timeout 100\nretries 1").dead(),
        NUL,
    );
    t.same("bytes that are no UTF-8", 2, opts(b"timeout \xff\xfe\n\xe4 1\ntimeout 100\nretries 0\n").dead());
}

/// What stands for a value.
fn values(t: &mut Table) {
    t.same("something glued to a number", 2, opts("timeout 100ms\nretries 0x\n").dead());
    t.same("zeros before a number", 0, opts("timeout 0100\nretries 00\n").dead());
    t.same("a sign before a number", 0, opts("timeout +100\nretries +0\n").dead());
    t.same("timeout and retries", 0, opts(WHILE).dead());
    t.same("long timeout", 0, opts("timeout 1700\nretries 0").dead());
    t.same("many retries", 0, opts("timeout 100\nretries 15").dead());
    t.same("their defaults", 0, opts("").dead());
    t.same("depths", 0, opts(format!("{SOON}resolve_depth 8\nsa_depth 9\nsend_depth 10\nrecv_depth 11")).dead());
    t.breaks("no timeout", 1, opts("retries 0\ntimeout 0\n").dead(), opts("retries 0").dead(), RANGES);
    t.breaks("time that runs backwards", 1, opts("retries 0\ntimeout -5\n").dead(), opts("retries 0").dead(), RANGES);
    t.breaks("retries -1", 1, opts("timeout 700\nretries -1\n").dead(), opts("timeout 700\nretries 2").dead(), RANGES);
    t.breaks("more than any number", 1, opts("retries 99999999999999999999\n").dead(), opts("").dead(), RANGES);
    for (name, option) in [
        ("sa_depth 0", "sa_depth 0\n"),
        ("resolve_depth 0", "resolve_depth 0\n"),
        ("send_depth 0", "send_depth 0\n"),
        ("recv_depth 0", "recv_depth 0\n"),
        ("recv_depth -1", "recv_depth -1\n"),
    ] {
        t.breaks(name, 1, opts(format!("{SOON}{option}")).dead(), opts(SOON).dead(), RANGES);
    }
    t.same("addr_prot knows one word", 1, opts("addr_prot sa\n"));
    t.same("addr_fallback", 0, opts(format!("{SOON}addr_fallback neigh\naddr_fallback NONE\n")).dead());
    t.same("addr_fallback that isn't", 1, opts(format!("{SOON}addr_fallback arp\n")).dead());
    t.same("route_prot acm", 0, opts("route_prot ACM\n"));
    t.same("route_prot that isn't", 1, opts("route_prot acm\nroute_prot ip\n"));
    t.same("loopback_prot none", 0, opts("loopback_prot none\n").ask(Ask::Own));
    t.same("loopback_prot local", 1, opts("loopback_prot local\nloopback_prot yes\n").ask(Ask::Own));
    t.same("times in minutes", 0, opts("addr_timeout 5\nroute_timeout 0\naddr_timeout -1\nroute_timeout -1\n"));
    for (name, option) in [
        ("min_mtu 256", "min_mtu 256\n"),
        ("min_mtu 4096", "min_mtu 4096\n"),
        ("min_rate 2", "min_rate 2\n"),
        ("min_rate 2.5 and two groups", "min_rate 2.5\nroute_prot acm\n"),
        ("min_rate 5", "min_rate 5\nmin_mtu 1024\n"),
        ("min_rate 300", "min_rate 300\n"),
    ] {
        t.same(name, 0, opts(format!("{SOON}{option}")).alone());
    }
    for (name, option) in [
        ("one group of one", "multicast_groups 1\n"),
        ("groups for paths of the SA", "min_rate 2.5\nmin_mtu 256\nmulticast_groups 16\n"),
        ("two groups, as always", "min_rate 2.5\nroute_prot acm\nmulticast_groups 2\n"),
    ] {
        t.same(name, 0, opts(format!("{SOON}{option}")).alone());
    }
    for (name, option) in [("no group", "multicast_groups 0\n"), ("seventeen groups", "multicast_groups 17\n")] {
        t.same(name, 1, opts(option));
    }
    let three = opts("route_prot acm\nmin_rate 2.5\nmulticast_groups 3\n").alone();
    t.adds("three groups", 0, three, "ff154001ffff000504", GROUPS);
    t.same("min_mtu and min_rate that aren't", 2, opts("min_mtu 1500\nmin_rate 3\n"));
    t.differs("min_rate 400", 0, opts("min_rate 400\n").alone(), opts("min_rate 200\n").alone(), RATES);
}

/// How clients come to it, and what it leaves where.
fn service(t: &mut Table) {
    t.same("server_mode unix", 0, opts("server_mode Unix\n"));
    t.same("server_mode loop", 0, opts("server_mode LOOP\n"));
    t.same("server_mode open, another port", 0, opts("server_mode open\nserver_port 40000\n"));
    t.same("the last port", 0, opts("server_mode loop\nserver_port 65535\n"));
    t.same("server_mode that isn't", 1, opts("server_mode tcp\n"));
    t.differs("two modes, one isn't", 1, opts("server_mode loop\nserver_mode tcp"), opts("server_mode loop"), EQUALS);
    for (name, port) in [("port 0", "0"), ("port 65536", "65536"), ("port -1", "-1"), ("no port", "http")] {
        let case = opts(format!("server_mode loop\nserver_port {port}\n"));
        t.differs(name, 1, case, opts("server_mode loop\n"), RANGES);
    }
    for (name, value) in [("yes", "yes"), ("true", "TRUE"), ("1", "1"), ("-2", "-2"), ("0x1", "0x1"), ("010", "010")] {
        t.same(name, 0, opts(format!("acme_plus_kernel_only {value}\n")));
    }
    t.same("not for librdmacm, loop", 0, opts("acme_plus_kernel_only yes\nserver_mode loop\n"));
    for (name, value) in [("no", "no"), ("false", "false"), ("0", "0"), ("off", "off")] {
        t.same(name, 0, opts(format!("acme_plus_kernel_only yes\nacme_plus_kernel_only {value}\n")));
    }
    t.differs("on", 0, opts("acme_plus_kernel_only on\n"), opts("acme_plus_kernel_only yes\n"), WORDS);
    t.differs(
        "perhaps",
        1,
        opts("acme_plus_kernel_only 1\nacme_plus_kernel_only perhaps\n"),
        opts("acme_plus_kernel_only 1"),
        EQUALS,
    );
    t.same("lock_file", 0, opts("lock_file /run/other.pid\n"));
    t.same("log_file", 0, opts("log_file /var/log/other.log\n"));
    t.same("log_file stdout", 0, opts("log_file STDOUT\n"));
    t.same("log_file in no directory", 0, opts("log_file /var/log/none/log\n"));
    t.same("log_file stderr", 0, opts("log_file stderr\n"));
    t.same("log_level 0", 0, opts("log_level 0\n").ask(Ask::Chatter));
    t.same("log_level 2", 0, opts("log_level 2\n").ask(Ask::Chatter));
    t.same("log_level 9", 1, opts("log_level 9\n").ask(Ask::Chatter));
    t.same("log_level x", 1, opts("log_level x\n").ask(Ask::Chatter));
    t.differs("log_level -1", 1, opts("log_level -1\n").ask(Ask::Chatter), opts("").ask(Ask::Chatter), RANGES);
    t.same("metrics_file", 0, opts("metrics_file None\nmetrics_interval 60\n"));
    t.same(
        "metrics_file of no use",
        4,
        opts("metrics_file\nmetrics_file m\nmetrics_interval 0\nmetrics_interval 3601\n"),
    );
    t.same("umad_debug_level", 1, opts("umad_debug_level 1\numad_debug_level 7"));
    t.same("plug-ins that are not there", 1, opts("provider none default\n"));
    t.same("a provider for another subnet", 1, opts("provider none 0x1234\nprovider ibacmp 0xfe80000000000000\n"));
    t.same("the usual provider by its name", 0, opts("provider IBACMP 0xfe80000000000000\nprovider ibacmp default\n"));
    t.same("options of plug-ins", 0, opts("builtin_provider yes\nprovider_timeout 1000\n"));
    t.same("options of plug-ins that aren't", 2, opts("builtin_provider x\nprovider_timeout 0\n"));
}

/// The address file.
fn addresses(t: &mut Table) {
    let two = "one mlx5_0 1 default\nTwo mlx5_0 1 0xffff\n";
    t.same("two names", 0, addr(two, &["one", "Two", "three"]));
    t.same(
        "case, tabs, CRLF, a last line",
        0,
        addr("one\tMLX5_0  1\tDEFAULT\r\n \r\n  two mlx5_0 1 DeFault", &["one", "two"]),
    );
    t.same("comments on lines of names", 0, addr("#one mlx5_0 1 default\ntwo mlx5_0 1 default # x\n", &["one", "two"]));
    t.differs(
        "a comment that is a name",
        0,
        addr(" #one mlx5_0 1 default\n", &["#one"]),
        addr("", &["#one"]),
        COMMENTS,
    );
    t.same("keys in hexadecimal", 0, addr("a mlx5_0 1 ffff\nb mlx5_0 1 0xFFFF\nc mlx5_0 1 7fFf\n", &["a", "b", "c"]));
    t.same(
        "two partitions",
        0,
        addr("a mlx5_0 1 default\nb mlx5_0 1 0x8001\nc mlx5_0 1 0x1\nd mlx5_0 1 8001\n", &["a", "b"]).alone(),
    );
    t.same("a partition alone", 0, addr("b mlx5_0 1 0x8001\n", &["b"]).alone());
    t.same("one name in two partitions", 0, addr("a mlx5_0 1 default\na mlx5_0 1 0x8001\n", &["a"]).alone());
    t.same(
        "unknown devices, ports, partitions",
        0,
        addr("a mlx4_0 1 default\nb mlx5_0 2 default\nc mlx5_0 1 0x8002\nd mlx5_ 1 ffff", &["a", "b", "c", "d"]),
    );
    t.same("partition 0", 2, addr("a mlx5_0 1 0\nb mlx5_0 1 0x8000\n", &["a", "b"]));
    t.same("too few words", 4, addr("a\nb mlx5_0\nc mlx5_0 1\ndefault\nd mlx5_0 1 default\n", &["a", "b", "c", "d"]));
    t.same("too many words", 1, addr("a mlx5_0 1 default ib0\n", &["a"]));
    t.same(
        "bad ports",
        4,
        addr(
            "a mlx5_0 x default\nb mlx5_0 1x default\nc mlx5_0 0 default\nd mlx5_0 0x1 default\n",
            &["a", "b", "c", "d"],
        ),
    );
    t.same("odd ports", 0, addr("a mlx5_0 01 default\nb mlx5_0 +1 default\n", &["a", "b"]));
    t.differs(
        "ports that wrap around",
        2,
        addr("a mlx5_0 257 default\nb mlx5_0 -255 default\n", &["a", "b"]),
        addr("", &["a", "b"]),
        ADDRESS,
    );
    t.same("bad keys", 2, addr("a mlx5_0 1 xyz\nb mlx5_0 1 defaul\n", &["a", "b"]));
    t.differs(
        "odd keys",
        4,
        addr("a mlx5_0 1 0x1ffff\nb mlx5_0 1 ffffg\nc mlx5_0 1 defaultx\nd mlx5_0 1 -1\n", &["a", "b", "c", "d"]),
        addr("", &["a", "b", "c", "d"]),
        ADDRESS,
    );
    t.same("NUL in a name", 1, addr("a\0b mlx5_0 1 default\nc mlx5_0 1 default\n", &["a", "c"]));
    t.same("names in Latin-1", 0, addr(b"k\xf6ln mlx5_0 1 default\n", &[]));
    t.same(
        "names like numbers",
        0,
        addr(
            "7 mlx5_0 1 default\n0x7 mlx5_0 1 default\n1.2.3 mlx5_0 1 default\n1.2.3.256 mlx5_0 1 default\n",
            &["7", "1.2.3", "1.2.3.256"],
        ),
    );
    t.same(
        "eight names",
        0,
        addr((1..=8).map(|n| format!("n{n} mlx5_0 1 default\n")).collect::<String>(), &["n1", "n5", "n8"]),
    );
    let twice = "a mlx5_0 1 default\nA mlx5_0 1 default\na mlx5_0 1 default\nb mlx5_0 1 default\n";
    let once = "a mlx5_0 1 default\nb mlx5_0 1 default\n";
    t.differs("a name twice", 0, addr(twice, &["a", "b"]), addr(once, &["a", "b"]), TWICE);
    t.adds("names in another case", 0, addr("Two mlx5_0 1 default\n", &["tWO"]), "Name(\"tWO\"): 0", CASE);
    let ips = "10.1.2.3 mlx5_0 1 default\nfd01::7 mlx5_0 1 default\na mlx5_0 1 default\n";
    let asked = |case: Case| case.ask(Ask::Ip("10.1.2.3")).ask(Ask::Ip("fd01::7"));
    t.same("addresses that are not allowed", 2, asked(addr(ips, &["a", "10.1.2.3"])));
    for (name, value) in [("addresses, 1", "1"), ("addresses, 2", "2")] {
        t.same(name, 0, asked(addr_opts(&format!("support_ips_in_addr_cfg {value}"), ips, &["a"])));
    }
    t.same("addresses, 0", 2, asked(addr_opts("support_ips_in_addr_cfg 0", ips, &["a"])));
    let allowed = || asked(addr_opts("support_ips_in_addr_cfg 1", ips, &["a"]));
    t.differs("addresses, yes", 0, asked(addr_opts("support_ips_in_addr_cfg yes", ips, &["a"])), allowed(), WORDS);
    t.same(
        "an address that an interface has",
        0,
        addr_opts("support_ips_in_addr_cfg 1", "10.77.0.1 mlx5_0 1 default\n10.77.0.1 mlx5_0 1 default\n", &[]),
    );
}

/// Lengths of tokens and lines.
fn lengths(t: &mut Table) {
    const WHOLE: [&str; 5] = ["names of 31", "names of 32", "names of 33", "names of 45", "names of 46"];
    for (name, length) in WHOLE.into_iter().zip([31, 32, 33, 45, 46]) {
        t.same(name, 0, addr(format!("{} mlx5_0 1 default\n", long(length)), &[]));
    }
    let named = |length: usize| addr(format!("{} mlx5_0 1 default\n", long(length)), &[]);
    for (name, length) in [("names of 47", 47), ("names of 62", 62), ("names of 63", 63)] {
        t.adds(name, 0, named(length), format!(",{}\\n", long(length)), NAMES);
    }
    for (name, length) in [("names of 64", 64), ("names of 65", 65), ("names of 119", 119), ("names of 4096", 4096)] {
        t.same(name, 1, named(length));
    }
    for (name, length) in [("names of 120", 120), ("names of 129", 129), ("names of 255", 255), ("names of 257", 257)] {
        t.differs(name, 1, named(length), addr("", &[]), LINES);
    }
    let spaces = " ".repeat(120);
    t.differs(
        "names far from the rest",
        0,
        addr(format!("a {spaces} mlx5_0 1 default\n"), &["a"]),
        addr("a mlx5_0 1 default\n", &["a"]),
        LINES,
    );
    for (name, length) in
        [("options of 31", 31), ("options of 32", 32), ("options of 33", 33), ("options of 4000", 4000)]
    {
        t.same(name, 1, opts(format!("{SOON}{} 1\n", long(length))).dead());
    }
    let lock = |length: usize| opts(format!("lock_file /run/{}x.pid\n", "./".repeat((length - 10) / 2)));
    t.same("paths of 64", 0, lock(64));
    for (name, length) in [("paths of 120", 120), ("paths of 128", 128), ("paths of 256", 256), ("paths of 4000", 4000)]
    {
        t.differs(name, 0, lock(length), opts("lock_file /run/x.pid\n"), LINES);
    }
    t.differs("paths of 5000", 1, lock(5000), opts(""), LINES);
    t.differs(
        "comments longer than a line",
        0,
        opts(format!("{SOON}#{}timeout 1700\n#\n", " ".repeat(118))).dead(),
        opts(SOON).dead(),
        LINES,
    );
    t.same("long comments", 0, opts(format!("{SOON}#{}\n#{}\n", long(117), long(118))).dead());
    t.same("spaces to the end of a line", 0, opts(format!("timeout 100{}\nretries 0\n", " ".repeat(300))).dead());
}

/// Preloaded addresses and paths. H1 has LID 3 and the port GUID 0x100003, and so on by number.
fn preloads(t: &mut Table) {
    let both = "addr_preload acm_hosts\naddr_data_file /etc/rdma/hosts\n\
        route_preload opensm_full_v1\nroute_data_file /etc/rdma/routes\n";
    let hosts =
        "# x\n10.99.0.8 fe80::10:11\nfd99::8\tfe80::10:11\r\nPre8 fe80:0:0:0:0:0:10:11 # x\n10.99.0.9 fe80::99\n";
    let ask = |case: Case| {
        let [a, b, c] = ["10.99.0.8", "fd99::8", "10.99.0.1"].map(Ask::Ip);
        case.ask(a).ask(b).ask(c).ask(Ask::Name("Pre8"))
    };
    let with = |options: &str, hosts: &str, routes: &str| {
        ask(opts(options).file("/etc/rdma/hosts", hosts).file("/etc/rdma/routes", routes))
    };
    let good = routes(|to| format!("0x{:04X} : 0  : 4   : 3   \n", to));
    t.same("addresses and paths", 0, with(both, hosts, &good));
    t.same("preloads that nobody wants", 0, with("route_preload none\naddr_preload no\n", hosts, &good));
    t.same("keywords that aren't", 2, with("route_preload full\naddr_preload hosts\n", hosts, &good));
    t.same("service levels, sizes, speeds", 0, with(both, hosts, &routes(|to| format!("0x{to:04X} : 2 : 5 : 16\n"))));
    t.same("nobody reachable", 0, with(both, "", &routes(|to| format!("0x{to:04X} : UNREACHABLE\n"))));
    t.same("empty preload files", 0, with(both, "", ""));
    t.same("missing preload files", 2, ask(opts(both)));
    t.same("CRLF in paths", 0, with(both, hosts, &good.replace('\n', "\r\n")));
    let odd = "10.99.0.8\nfe80::10:11\n10.99.0.8 10.99.0.8\nfd99::8 fe80::10:11 x\n10.99.0.1 fe80::zz\n";
    t.same("odd lines of addresses", 5, with(both, odd, &good));
    let full = both.replace("opensm_full_v1", "full_opensm_v1");
    t.breaks("the manual's word", 0, with(&full, hosts, &good), with(both, hosts, &good), PRELOAD);
}

/// OpenSM's dump of all paths between the hosts.
fn routes(line: impl Fn(u16) -> String) -> String {
    let block = |n: u16| {
        let header =
            format!("Channel Adapter 0x{:016x}, base LID {}, \"H{n}\", port 1\n", 0x10_0001 + 2 * u64::from(n), n + 2);
        let lines: String = (3..=10).map(&line).collect();
        format!("{header}# LID  : SL : MTU : RATE\n{lines}\n")
    };
    (1..=8).map(block).collect()
}
