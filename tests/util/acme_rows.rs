//! The table of `acme_compat`: command lines, and how `ib_acme` of this package and the distribution's compare.

use super::run::Ran;
use super::util::Program;

/// What is there when a command line is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// A service that has found its peer before.
    Warm,
    /// A service that has just started, for each of the two.
    Cold,
    /// A service on TCP.
    Loop,
    /// Nobody serves.
    Nobody,
    /// Nobody serves, and the file for the port has no number in it.
    Junk,
}

/// What is so of ours and the other one.
pub type Check = fn(&Ran, &Ran) -> bool;

/// How the two compare.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// Alike.
    Same,
    /// As the function has it, ours before the other; for the reason that is under this heading of docs/differences.md.
    Differs(&'static str, Check),
}

/// A line of the table. `''` is an empty word; what starts with `@` stands for something of the subnet.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub setup: Setup,
    pub line: &'static str,
    /// With this service alone, where it makes a difference.
    pub service: Option<Program>,
    /// Set for getopt(3), which reads lines as POSIX has them then.
    pub posix: bool,
    pub expect: Expect,
}

/// Headings of docs/differences.md.
pub mod why {
    pub const FAILED: &str = "Every failed item counts";
    pub const NOT_THERE: &str = "Endpoints and counters that are not there";
    pub const NUMBER: &str = "Numbers of endpoints are whole";
    pub const ADDRESSES: &str = "All addresses of a service's name are tried";
    pub const RESOLVER: &str = "Names of services that cannot be resolved";
    pub const PATHS: &str = "Sockets without a slash in front";
    pub const APART: &str = "Arguments that stand apart";
    pub const EMPTY: &str = "Lists that are empty";
    pub const UNSPECIFIED: &str = "The format u";
    pub const NEW: &str = "Options and words that are new";
    pub const NAMES: &str = "Names that do not fit";
}

/// Lines for a service that knows its peer, where both do the same.
const WARM: &str = "
# Nothing to do.
@nothing | -v | -c | -V | -vcV | -f i | -S /run/ibacm-unix.sock | -C 3 | -D /tmp | -s 10.77.0.1 | foo | -
--
# What getopt has to say.
-x | -vx -e | -ex -x | -: | -? | -d | -s | -f | -S | -D | -C | -e -d | -vd | -e -1 | -P -1 | -;
-d 10.77.0.2 -x | -f x | -f '' | -f X -e | -f x -f i -e | -f i -fx -e | -fx -e
# Endpoints.
-e | -e 1 | -e1 | -e 2 | -e 0 | -e0 | -e-1 | -e x | -ex | -e 1x | -e +1 | -e '' -v | -ev | -e -v | -ve | -ve1
-e - 1 | -ve - -P | -e- | -e- -P | -e 1 -P - | -P 1 -e - | -P - col | -P- | -P s -s 10.77.0.1 -e -
-Ve | -e 1 -e | -e -e 1 | -e 2 -e 1 | -e - | -e foo bar | foo -e 2 | foo -e | -e -- 2 | -- -e
-e -S /run/ibacm-unix.sock | -S/run/ibacm-unix.sock -e | -c -e | -e -C 3 | -e -f i | -e -f n | -e -s 10.77.0.1
-e -D /nonexistent
# Counters.
-P | -P 1 | -P1 | -P 0 | -P x | -Px | -Pv | -P '' | -P col | -Pcol | -P COL | -P column | -P co
-P all | -Pall | -P ALLX | -P S | -PS -s 10.77.0.1 | -P s | -Ps | -P sx | -P -s 10.77.0.1 | -P s -s 10.77.0.1
-Ps -s fd77::1 | -P s -s 10.77.0.1 -V | -VPs -s fd77::1 | -P s -f i -s 10.77.0.1 | -P s -f n -s h1
-P s -f n -s h1 -V | -P s -f n -s H1 | -P s -f n -s other | -P s -s h1 | -P s -s @46 -f n | -P all -P col
-P col -P all | -P 1 -P | -P s -P -s 10.77.0.1 | -P -P s -s 10.77.0.1 | -P 2 -P s -s 10.77.0.1 | -P -c | -cP
-Pcol -v | -P -S /run/svc1 | -P col -S /run/svc1
# Both: there is one number.
-e -P | -P -e | -e 1 -P | -P 1 -e | -P 2 -e 1 | -P all -e 1 | -e 2 -P s -s 10.77.0.1 | -eP | -Pe | -e 2 -P x | -P all -e
# IP addresses.
-d 10.77.0.2 | -d10.77.0.2 | -vd 10.77.0.2 | -vcd10.77.0.2 | -d 10.77.0.2 -v | -cd 10.77.0.2 | -V -d 10.77.0.2
-d 10.77.0.2 -s 10.77.0.1 | -s 10.77.0.1 -d 10.77.0.2 -v | -d fd77::2 | -d fd77::2 -s fd77::1 -v
-d FD77:0::2 | -d 10.77.0.1 | -d 10.77.0.1 -v | -d fd77::1 | -s 10.78.0.1 -d 10.78.0.1
-d 10.78.0.1 -s 10.77.0.1 | -d 10.77.0.9 -c | -d 10.77.0.2 -s 10.77.0.9 | -d 10.77.0.2 -s fd77::1
-d fd77::2 -s 10.77.0.1 | -d 10.77.0.2 -s h1 | -d 127.0.0.1 | -d ::1 | -d 0.0.0.0
-d 255.255.255.255 | -d 10.77.255.255 | -d 224.0.0.1 | -d ff02::1 | -d :: | -d ::ffff:10.77.0.2 | -d 8.8.8.8
-d fe80::1 | -d 10.77.0.02 | -d 0x0a4d0002 | -d 3 | -d 65541 | -d 0x3 | -d 10.77.0.2 foo -v
foo -d 10.77.0.2 bar | -d 10.77.0.2 -- | -d 10.77.0.2 -- -v | -d 10.77.0.9 -d 10.77.0.2
-s fd77::1 -s 10.77.0.1 -d 10.77.0.2 | -f i -d 10.77.0.2 | -fi -d 10.77.0.2 | -fip -d fd77::2 | -f i -d h2
-f i -d 3 | -f i -d 10.77.0.2/16 | -f i -d 10.77.0.2 -s h1 | -f i -d fe80::1 | -f n -f i -d 10.77.0.2
-f i -d -1 | -f i -d 10.77.0.02 | -d 10.77.9.9 | -d fd77::99
# Repetitions.
-C 3 -d 10.77.0.2 | -C3 -d 10.77.0.2 -v | -C 0 -d 10.77.0.2 | -C x -d 10.77.0.2 | -C '' -d 10.77.0.2
-C -1 -d 10.77.0.2 | -C +2 -d 10.77.0.2 | -C 2x -d fd77::2 | -C 2 -d 10.77.0.2 -s 10.77.0.9 | -C 3 -d h2 -f i
-C 2 -d 10.77.0.[1-2] | -C 3 -C 1 -d 10.77.0.2 | -C -1 -d 10.77.0.[1-2] | -C 2 -f l -d @lid2 -v
# Names that the host knows, and such that it does not.
-d h2 | -d h2 -v | -d H2 | -d h2 -s fd77::1 | -d h1 | -d localhost | -d nosuch | -d nosuch -v | -d -1
-d -- -v | -d - | -d h2. | -d 5x | -d 65541x
# Names that the service knows.
-f n -s h1 -d h2 | -f n -s h1 -d h2 -v | -fname -s h1 -d H2 | -f n -s h1 -d h1 | -f n -s other -d h2
-f n -d h2 | -f n -s nobody -d h2 | -f n -s h1 -d nobody | -f n -s h1 -d nobody -c
-f n -s h1 -d 10.77.0.2 -c | -f n -s @46 -d h2 | -f n -s @63 -d h2 | -f n -s h1 -d @63 -c
# LIDs.
-f l -d @lid2 | -f l -d @lid2 -v | -f l -s @lid1 -d @lid2 | -f l -d @lid1 | -f l -d 0 | -f l -d x
-f l -d ''x | -f l -s 99 -d @lid2 | -f l -s x -d @lid2 | -f l -d 0x3 | -f l -d -1 | -f l -d 65536 | -f l -d 99
-fl -cd @lid2 | -f l -d @lid2x | -f l -d 10.77.0.2 | -f l -d @lid2 -c | -f l -d 49152 -c
# GIDs.
-f g -d @gid2 | -f g -d @gid2 -v | -f g -s @gid1 -d @gid2 -v | -f g -d @gid1 | -f g -s @gid2 -d @gid1
-f g -d :: | -f g -d x | -f g -d 10.77.0.2 | -f g -s 10.77.0.1 -d @gid2 | -f g -d fe80::1 | -f g -d fd77::2
-d @gid2 | -f gid -cd @gid2
# Lists.
-d 10.77.0.[1-2] | -d 10.77.0.[1,2] -v | -d 10.77.0.[01-02] | -d fd77::[1-2] | -f n -s h1 -d h[1,2]
-d h[1-2] | -d [1-3] | -d [10] | -d h[02] | -d x[a] | -d x[ | -d x[] | -d ] | -d x] | -d h]2 | -d h[2
-d h[2]x -v | -d h[2]] | -d h[1][2] | -d h[,2] | -d h[1,,2,] | -d 10.77.0.2[ | -d 10.77.0.[2-2] | -d x[-2]
-s 10.77.0.[1,1] -d 10.77.0.2 | -s 10.77.0.[1] -d 10.77.0.[1,2] | -s 10.77.0.[9,9] -d 10.77.0.2
-f l -d [@lid1,@lid2] | -f g -d fe80::[1-2] | -d [h2] | -d h[+2] | -d h[1-2-3] | -d h[2-1,2] | -d h[1-+2]
# Services.
-S /run/svc[1-2] -e | -S /run/svc[1,2] -P col | -S /run/svc[1-2] -d 10.77.0.2 | -S /run/svc[1-2] -P all -e 1
-S /nosuch -S /run/svc1 -e | -S /run/svc1[ -e | -S /run/../run/svc1 -e | -S /nosuch -e
-S /nosuch -d 10.77.0.2 | -S /nosuch -P -e | -S /run/stale.sock -e | -S /run -e | -S /run/stale.sock -d h2
-S /nosuch[1-2] -e | -S /@64@64 -d h2 | -S /run/ibacm-unix.sock/ -e | -S / -e | -S 127.0.0.1 -e
-S 127.0.0.1 -d h2 -v | -S 0x7f.1 -e
# Mixed.
-e -P all -d 10.77.0.1 -c -S /nosuch
";

/// As [`WARM`], where the service has to know endpoint 2 by its number: ours does.
const SECOND: &str = "
-P 2 | -P2 | -e 2 -P | -P 2 -e | -e 1 -P 2 | -e 2 -P col | -P all -P 2 | -e1 -P2 -c
";

/// As [`WARM`], where the service counts what is asked: each of the two has a new one.
const COLD: &str = "
-d 10.77.0.2 -P | -d 10.77.0.2 -P col -e | -d 10.77.0.9 -c -P | -d 10.77.0.2 -C 5 -P | -d h2 -v -P -e1
-d fd77::[1-2] -P s -s fd77::1 | -f l -d @lid2 -c
";

/// As [`WARM`], for a service on TCP.
const LOOP: &str = "
-S 127.0.0.1 -e | -S127.0.0.1 -P | -S 127.0.0.1 -d 10.77.0.2 -v | -S 127.0.0.[1-2] -e | -S ::1 -e
-S 127.1 -e | -S 2130706433 -P col | -S h1 -e | -e | -d h2 | -S /run/ibacm-unix.sock -e
";

/// As [`WARM`], where nobody serves.
const NOBODY: &str = "
-e | -P | -d 10.77.0.2 | -d h2 -v | -d 10.77.0.[1-2] | -S 127.0.0.1 -P | -f n -d h2
";

/// As [`WARM`], in the way of POSIX.
const POSIX: &str = "
-P - -e | -P -e - | -P -e 1 | foo -e | -e -- -P | -d 10.77.0.2 foo -v | -v -d 10.77.0.2 | -e foo
";

const JUNK: &str = "
-S 127.0.0.1 -e | -S 127.0.0.[1-2] -P | -e
";

/// The other one reports success for what it could not show.
fn fails(ours: &Ran, stock: &Ran) -> bool {
    let expected = stock.stdout.replace("return status 0x0\n", "return status 0xffffffff\n");
    stock.code() == 0 && ours.code() == 255 && ours.stdout == expected && ours.stdout != stock.stdout
}

/// The other one has gone where no memory is.
fn survives(ours: &Ran, stock: &Ran) -> bool {
    stock.has_crashed() && ours.code() == 255 && ours.stdout.ends_with("return status 0xffffffff\n")
}

/// The other one takes nothing for an item.
fn is_empty(ours: &Ran, stock: &Ran) -> bool {
    stock.stdout.contains("\nDestination: \n")
        && !ours.stdout.contains("Destination: ")
        && ours.code() == 255
        && ours.stdout.ends_with("return status 0xffffffff\n")
}

/// The same lines, and as many of them; ours has found that something failed.
fn last_alone(ours: &Ran, stock: &Ran) -> bool {
    let [o, s] = [ours, stock].map(|ran| ran.stdout.lines().filter(|l| !l.starts_with("return ")).collect::<Vec<_>>());
    o == s && stock.code() == 0 && ours.code() != 0
}

/// It is a failure to both; the reason that the other one gives is whatever was in its memory.
fn says_why(ours: &Ran, stock: &Ran) -> bool {
    let [o, s] = [ours, stock].map(|ran| ran.stdout.lines().filter(|l| !l.contains("failed")).collect::<Vec<_>>());
    o == s && stock.code() != 0 && ours.code() == stock.code()
}

/// What the resolver has to say is neither printed nor kept by the other one.
fn names_the_fault(ours: &Ran, stock: &Ran) -> bool {
    let reason =
        |ran: &Ran| ran.stdout.lines().next().unwrap_or_default().split(": ").last().unwrap_or_default().to_owned();
    let words = ["name resolution", "not known", "No address"];
    ours.code() != 0
        && stock.code() != 0
        && reason(ours) != reason(stock)
        && words.iter().any(|w| reason(ours).contains(w))
}

fn reaches_it(ours: &Ran, stock: &Ran) -> bool {
    stock.stdout.contains("Connection refused") && ours.stdout.contains(",ibacmp,") && ours.code() == 0
}

/// What is no endpoint of this number is shown under it by the other one.
fn no_such_endpoint(ours: &Ran, stock: &Ran) -> bool {
    stock.code() == 0 && ours.code() == 255 && ours.stdout.lines().count() == 2 && ours.stdout != stock.stdout
}

/// Below zero is no number to ours, and 255 to the other one.
fn no_number(ours: &Ran, stock: &Ran) -> bool {
    let totals = |ran: &Ran| ran.stdout.contains("Error Count") && ran.code() == 0;
    totals(ours) && !totals(stock)
}

/// What has a slash in it is asked of the resolver by the other one.
fn is_a_file(ours: &Ran, stock: &Ran) -> bool {
    ours.code() == 2 && ours.stdout.contains("No such file or directory") && [253, 254].contains(&stock.code())
}

/// An argument that stands apart is the first word behind the options to the other one.
fn ends_options(ours: &Ran, stock: &Ran) -> bool {
    let both = |ran: &Ran| ran.stdout.contains("Error Count") && ran.stdout.contains(",ibacmp,") && ran.code() == 0;
    both(ours) && !both(stock)
}

fn understood(ours: &Ran, stock: &Ran) -> bool {
    stock.is_usage() && stock.code() == 1 && ours.code() == 0 && ours.stdout.contains("return status 0x0\n")
}

fn helps(ours: &Ran, stock: &Ran) -> bool {
    stock.is_usage() && stock.code() == 1 && ours.code() == 0 && !ours.stdout.is_empty()
}

/// A word that is a command of ours is passed over by the other one.
fn is_command(ours: &Ran, stock: &Ran) -> bool {
    stock.stdout.contains(",ibacmp,") && stock.code() == 0 && !ours.stdout.contains(",ibacmp,")
}

/// Lines, the heading under which a difference is explained, and how it shows.
const DIFFERENT: &[(Setup, &str, &str, Check)] = &[
    (Setup::Warm, "-e 99", why::NOT_THERE, fails),
    (Setup::Warm, "-P 99", why::NOT_THERE, fails),
    (Setup::Warm, "-e99 -P 99", why::NOT_THERE, fails),
    (Setup::Warm, "-P 99 -P col", why::NOT_THERE, fails),
    (Setup::Warm, "-P s -s 10.77.0.9", why::NOT_THERE, fails),
    (Setup::Warm, "-P s -s h2 -V", why::NOT_THERE, fails),
    (Setup::Warm, "-P s -f n -s nobody", why::NOT_THERE, fails),
    (Setup::Warm, "-P s -f i -s h1 -V", why::NOT_THERE, |o, s| fails(&before_reason(o), &before_reason(s))),
    (Setup::Warm, "-P s -f l -s 1", why::NOT_THERE, |o, s| fails(&before_reason(o), &before_reason(s))),
    (Setup::Warm, "-e 256", why::NUMBER, fails),
    (Setup::Warm, "-e 257", why::NUMBER, no_such_endpoint),
    (Setup::Warm, "-P 256", why::NUMBER, no_such_endpoint),
    (Setup::Warm, "-P 257", why::NUMBER, no_such_endpoint),
    (Setup::Warm, "-P-1", why::NUMBER, no_number),
    (Setup::Warm, "-e-1 -P", why::NUMBER, no_number),
    (Setup::Warm, "-d ''", why::EMPTY, survives),
    (Setup::Warm, "-S '' -e", why::EMPTY, survives),
    (Setup::Warm, "-d x[,]", why::EMPTY, survives),
    (Setup::Warm, "-s '' -d 10.77.0.2", why::EMPTY, survives),
    (Setup::Warm, "-d [", why::EMPTY, is_empty),
    (Setup::Warm, "-d []", why::EMPTY, is_empty),
    (Setup::Warm, "-d x[3-1]", why::EMPTY, is_empty),
    (Setup::Warm, "-d h[2-", why::EMPTY, is_empty),
    (Setup::Warm, "-f n -d [3-1] -s h1", why::EMPTY, is_empty),
    (Setup::Warm, "-d 10.77.0.[9,2] -c", why::FAILED, last_alone),
    (Setup::Warm, "-d 10.77.0.2 -s 10.77.0.[9,1]", why::FAILED, last_alone),
    (Setup::Warm, "-S /run/none[0,1] -e -S /run/svc[0-1]", why::FAILED, last_alone),
    (Setup::Warm, "-S /run/svc[0,1] -d 10.77.0.2", why::FAILED, last_alone),
    (Setup::Warm, "-f n -s h1 -d @64", why::NAMES, says_why),
    (Setup::Warm, "-f n -s @64 -d h2", why::NAMES, says_why),
    (Setup::Warm, "-S nosuch.invalid -e", why::RESOLVER, names_the_fault),
    (Setup::Loop, "-S nosuch.invalid -d h2", why::RESOLVER, names_the_fault),
    (Setup::Warm, "-S nosuch/svc1 -e", why::PATHS, is_a_file),
    (Setup::Warm, "-f u -d 10.77.0.2", why::UNSPECIFIED, understood),
    (Setup::Warm, "-f n -f u -d 10.77.0.2", why::UNSPECIFIED, understood),
    (Setup::Warm, "-h", why::NEW, helps),
    (Setup::Warm, "--help", why::NEW, helps),
    (Setup::Warm, "--version", why::NEW, helps),
    (Setup::Warm, "--json -e", why::NEW, helps),
    (Setup::Nobody, "completions bash", why::NEW, helps),
    (Setup::Warm, "check -e", why::NEW, is_command),
    (Setup::Loop, "-S localhost -e", why::ADDRESSES, reaches_it),
];

/// With a reason that the other one does not have, since nothing has set it.
fn before_reason(ran: &Ran) -> Ran {
    let cut = |line: &str| line.split("perf data: ").next().unwrap_or_default().to_owned() + "\n";
    Ran { stdout: ran.stdout.lines().map(cut).collect(), ..ran.clone() }
}

/// The lines of a piece of text, in their order.
fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).flat_map(|l| l.split(" | "))
}

/// The whole table.
pub fn table() -> Vec<Row> {
    let row = |setup, line, expect| Row { setup, line, expect, service: None, posix: false };
    let of_setup =
        [(Setup::Warm, WARM), (Setup::Cold, COLD), (Setup::Loop, LOOP), (Setup::Nobody, NOBODY), (Setup::Junk, JUNK)];
    let mut rows: Vec<Row> =
        of_setup.iter().flat_map(|(setup, text)| lines(text).map(|line| row(*setup, line, Expect::Same))).collect();
    for (service, expect) in [(Program::Ours, Expect::Same), (Program::Stock, Expect::Differs(why::NOT_THERE, fails))] {
        rows.extend(lines(SECOND).map(|line| Row { service: Some(service), ..row(Setup::Warm, line, expect) }));
    }
    rows.extend(lines(POSIX).map(|line| Row { posix: true, ..row(Setup::Warm, line, Expect::Same) }));
    let apart = Expect::Differs(why::APART, ends_options);
    rows.push(Row { posix: true, ..row(Setup::Warm, "-e foo -P", apart) });
    rows.extend(DIFFERENT.iter().map(|(setup, line, why, check)| row(*setup, line, Expect::Differs(why, *check))));
    rows
}
