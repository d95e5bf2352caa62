//! scripts/install: what it lays down is where Debian's package has it, and is found there.

#[path = "../libibacm/capi/tests/support/mod.rs"]
mod library;
#[path = "util/manager.rs"]
mod manager;
mod util;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use manager::{Notify, kernel_socket, stream_socket};
use util::{Shared, acme, compile, run, sa, succeed, text};

static SUBNET: Shared = Shared::new(|o| o.hosts = 2);

/// A directory to install into, which goes with this value.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Root {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("install-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Root(path)
    }

    /// Installs without the library, whatever else is said.
    fn install(&self, more: &[&str]) -> String {
        succeed(self.command(more).arg("LIBRARY=no"))
    }

    /// Installs all that there is.
    fn install_all(&self, more: &[&str]) -> String {
        succeed(self.command(more).arg(format!("LIBRARY={}", library::static_library().display())))
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/install"));
        command.arg(format!("DESTDIR={}", self.0.display()));
        command.arg(format!("BINARY={}", env!("CARGO_BIN_EXE_ibacm")));
        command.arg(format!("ACME_BINARY={}", acme::ours().display())).args(more);
        command
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name.trim_start_matches('/'))
    }

    /// A file's name on the machine.
    fn name(&self, path: &Path) -> String {
        format!("/{}", path.strip_prefix(&self.0).unwrap().display())
    }

    /// Every file, as its name on the machine.
    fn files(&self) -> BTreeSet<String> {
        fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if fs::symlink_metadata(&path).unwrap().is_dir() { walk(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        walk(&self.0, &mut found);
        found.iter().map(|path| self.name(path)).filter(|n| !n.starts_with("/var/lib/dpkg/")).collect()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const CONFIGURATION: &str = "/etc/rdma/ibacm_opts.cfg";

#[test]
fn everything_is_where_the_package_has_it() {
    let root = Root::new("layout");
    root.install_all(&[]);
    let ours = root.files();
    let stock = succeed(Command::new("dpkg").args(["-L", "ibacm"]));
    let stock: BTreeSet<String> = stock.lines().map(str::to_owned).collect();
    // What of the package is replaced.
    let replaced = [
        "/lib/systemd/system/ibacm.service",
        "/lib/systemd/system/ibacm.socket",
        "/usr/bin/ib_acme",
        "/usr/include/infiniband/acm.h",
        "/usr/include/infiniband/acm_prov.h",
        "/usr/sbin/ibacm",
        "/usr/share/doc/ibacm/copyright",
        "/usr/share/man/man1/ib_acme.1.gz",
        "/usr/share/man/man7/ibacm.7.gz",
        "/usr/share/man/man7/ibacm_prov.7.gz",
        "/usr/share/man/man8/ibacm.8.gz",
    ];
    for name in replaced {
        assert!(ours.contains(name), "{name} is not installed");
        assert!(stock.contains(name), "{name} is not the package's name");
        let [own, theirs] = [root.file(name), PathBuf::from(name)].map(|p| fs::metadata(p).unwrap());
        assert_eq!(own.permissions().mode(), theirs.permissions().mode(), "{name}");
        assert_eq!((own.uid(), own.gid()), (theirs.uid(), theirs.gid()), "{name}");
    }
    // A page for each function of the library, which other tests look at.
    let is_function = |name: &&str| name.starts_with("/usr/share/man/man3/ib_acm_");
    let (functions, more): (Vec<&str>, Vec<&str>) =
        ours.difference(&stock).map(String::as_str).partition(|name| is_function(name));
    assert!(functions.len() > 26 && functions.contains(&"/usr/share/man/man3/ib_acm_resolve_name.3.gz"));
    let wanted = [
        CONFIGURATION,
        "/usr/include/infiniband/ib_acm.h",
        "/usr/lib/libibacm.a",
        "/usr/lib/libibacm.so",
        "/usr/lib/libibacm.so.1",
        "/usr/lib/pkgconfig/libibacm.pc",
        "/usr/share/bash-completion/completions/ib_acme",
        "/usr/share/doc/ibacm/LICENSES/GPL-2.0-only.txt",
        "/usr/share/doc/ibacm/LICENSES/Linux-OpenIB.txt",
        "/usr/share/doc/ibacm/examples/ibacm_addr.cfg",
        "/usr/share/doc/ibacm/examples/ibacm_opts.cfg",
        "/usr/share/doc/ibacm/examples/static_provider.c",
        "/usr/share/doc/ibacm/ib_acme-check.schema.json",
        "/usr/share/doc/ibacm/ib_acme-json.md",
        "/usr/share/doc/ibacm/ib_acme.schema.json",
        "/usr/share/doc/ibacm/providers.md",
        "/usr/share/doc/libibacm/LICENSES/GPL-2.0-only.txt",
        "/usr/share/doc/libibacm/LICENSES/Linux-OpenIB.txt",
        "/usr/share/doc/libibacm/copyright",
        "/usr/share/fish/vendor_completions.d/ib_acme.fish",
        "/usr/share/man/man3/ib_acm.3.gz",
        "/usr/share/zsh/vendor-completions/_ib_acme",
    ];
    assert_eq!(more, wanted);
    // What is read where it is installed leads nowhere else.
    let page = fs::read_to_string(root.file("/usr/share/doc/ibacm/providers.md")).unwrap();
    for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let target = Path::new("/usr/share/doc/ibacm").join(link.split('#').next().unwrap());
        assert!(link.starts_with("https:") || root.file(&target.display().to_string()).exists(), "{link}");
    }
    let version = succeed(Command::new(root.file("/usr/bin/ib_acme")).arg("--version"));
    assert_eq!(version, concat!("ib_acme ", env!("CARGO_PKG_VERSION"), "\n"));
    for page in ["man1/ib_acme.1.gz", "man7/ibacm_prov.7.gz", "man8/ibacm.8.gz"] {
        let page = root.file(&format!("/usr/share/man/{page}"));
        let manual = succeed(Command::new("mandoc").args(["-T", "ascii"]).arg(page));
        let manual = manual.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(manual.contains("InfiniBand communication management assistant"), "{manual}");
    }
    // A provider can be built where nothing of rdma-core's package is.
    let sample = root.file("/usr/share/doc/ibacm/examples/static_provider.c");
    let include = root.file("/usr/include");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", "/dev/null", "-I"]).arg(&include).arg(&sample);
    succeed(cc.arg("-libverbs"));
    let used = succeed(Command::new("cc").args(["-M", "-I"]).arg(&include).arg(&sample));
    assert!(used.contains(&*include.join("infiniband/acm_prov.h").to_string_lossy()), "{used}");
    let plugins = ours.iter().find(|name| name.contains("/ibacm/") && name.starts_with("/usr/lib"));
    assert_eq!(plugins, None, "the directory of plug-ins is not ours");
    // The same again is the same.
    let before = fs::read(root.file("/usr/share/man/man8/ibacm.8.gz")).unwrap();
    root.install_all(&[]);
    assert_eq!(root.files(), ours);
    assert_eq!(fs::read(root.file("/usr/share/man/man8/ibacm.8.gz")).unwrap(), before);
    // And all of it goes again, but for the configuration.
    root.install(&["REMOVE=yes"]);
    let library = |name: &&String| name.contains("libibacm") || name.contains("ib_acm.") || name.contains("/man3/");
    let left: BTreeSet<String> = ours.iter().filter(library).cloned().chain([CONFIGURATION.to_owned()]).collect();
    assert_eq!(root.files(), left, "without the library it stays");
    // A directory that somebody else uses stays.
    let theirs = root.file("/usr/share/zsh/vendor-completions/_theirs");
    fs::create_dir_all(theirs.parent().unwrap()).unwrap();
    fs::write(&theirs, "").unwrap();
    root.install_all(&["REMOVE=yes"]);
    assert_eq!(root.files(), BTreeSet::from([CONFIGURATION.to_owned(), root.name(&theirs)]));
    // Of directories only those stay that every system has.
    let kept = ["/usr/share/doc", "/usr/share/man", "/usr/include", "/usr/lib", "/usr/bin", "/usr/sbin", "/etc/rdma"];
    for name in kept.into_iter().chain(["/lib/systemd/system", "/usr/share/zsh/vendor-completions"]) {
        assert!(root.file(name).is_dir(), "{name}");
    }
    for name in ["bash-completion", "fish", "doc/ibacm", "doc/libibacm", "man/man1", "man/man3", "man/man7", "man/man8"]
    {
        assert!(!root.file(&format!("/usr/share/{name}")).exists(), "{name}");
    }
    for name in ["/usr/include/infiniband", "/usr/lib/pkgconfig"] {
        assert!(!root.file(name).exists(), "{name}");
    }
}

#[test]
fn configuration_is_kept() {
    let root = Root::new("kept");
    fs::create_dir_all(root.file("/etc/rdma")).unwrap();
    fs::write(root.file(CONFIGURATION), "retries 9\n").unwrap();
    root.install(&[]);
    assert_eq!(fs::read_to_string(root.file(CONFIGURATION)).unwrap(), "retries 9\n");
    assert!(!root.file("/etc/rdma/ibacm_addr.cfg").exists(), "a file without names would hide the host's own");
    // A link that leads nowhere yet is somebody's too.
    fs::remove_file(root.file(CONFIGURATION)).unwrap();
    std::os::unix::fs::symlink("/nonexistent/opts", root.file(CONFIGURATION)).unwrap();
    root.install(&[]);
    assert_eq!(fs::read_link(root.file(CONFIGURATION)).unwrap(), Path::new("/nonexistent/opts"));
}

#[test]
fn another_prefix_and_mistakes() {
    let root = Root::new("prefix");
    root.install(&["PREFIX=/usr/local", "UNITDIR=/etc/systemd/system"]);
    for name in ["sbin/ibacm", "bin/ib_acme", "share/zsh/site-functions/_ib_acme"] {
        assert!(root.file(&format!("/usr/local/{name}")).exists(), "{name}");
    }
    assert!(!root.file("/usr/local/lib").exists(), "the library was not wanted");
    let unit = fs::read_to_string(root.file("/etc/systemd/system/ibacm.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/local/sbin/ibacm --systemd\n"), "{unit}");
    let before = root.files();
    for (wrong, reason) in [
        ("PREFX=/usr", "not understood"),
        ("PREFIX=usr", "not an absolute path"),
        ("PREFIX=/opt/a&b", "has a character"),
        ("LIBDIR=/usr/a|b", "has a character"),
        ("SBINDIR=/usr/a\\b", "has a character"),
        ("INCLUDEDIR=/usr/a b", "has a character"),
        ("UNITDIR=/usr/a\nb", "has a character"),
        ("SBINDIR=/usr/%n", "has a character"),
        ("DIVERT=perhaps", "yes or no"),
        ("BINARY=/nonexistent", "no program"),
        ("ACME_BINARY=/etc", "no program"),
        ("LIBRARY=/nonexistent", "no library"),
    ] {
        let output = run(&mut root.command(&["LIBRARY=no", wrong]));
        assert!(!output.status.success() && text(&output).contains(reason), "{wrong}: {}", text(&output));
        assert_eq!(root.files(), before, "{wrong}: nothing is laid down");
    }
}

#[test]
fn files_of_the_package_are_put_aside_and_back() {
    let root = Root::new("divert");
    let dpkg = root.file("/var/lib/dpkg");
    for directory in ["info", "updates", "triggers"] {
        fs::create_dir_all(dpkg.join(directory)).unwrap();
    }
    // A package database that knows of the one package, with its files.
    let files = [
        "/usr/sbin/ibacm",
        "/usr/bin/ib_acme",
        "/lib/systemd/system/ibacm.service",
        "/lib/systemd/system/ibacm.socket",
        "/usr/include/infiniband/acm_prov.h",
        "/usr/share/doc/ibacm/copyright",
        "/usr/share/man/man1/ib_acme.1.gz",
    ];
    let status = "Package: ibacm\nStatus: install ok installed\nMaintainer: nobody\nArchitecture: all\nVersion: 44\n\
                  Description: stock\n";
    fs::write(dpkg.join("status"), status).unwrap();
    fs::write(dpkg.join("info/ibacm.list"), format!("{}\n", files.join("\n"))).unwrap();
    for file in files {
        fs::create_dir_all(root.file(file).parent().unwrap()).unwrap();
        fs::write(root.file(file), "stock").unwrap();
    }
    root.install(&["DIVERT=yes"]);
    for file in files {
        assert_eq!(fs::read_to_string(root.file(&format!("{file}.packaged"))).unwrap(), "stock", "{file}");
        assert_ne!(fs::read(root.file(file)).unwrap(), b"stock", "{file}");
    }
    let list = format!("--root={}", root.0.display());
    let diverted = succeed(Command::new("dpkg-divert").args([&list, "--list", "*"]));
    assert_eq!(diverted.lines().count(), files.len(), "{diverted}");
    // Once more is no trouble.
    root.install(&["DIVERT=yes"]);
    root.install(&["REMOVE=yes"]);
    for file in files {
        assert_eq!(fs::read_to_string(root.file(file)).unwrap(), "stock", "{file}");
    }
    assert_eq!(succeed(Command::new("dpkg-divert").args([&list, "--list", "*"])), "");
}

#[test]
fn programs_find_the_installed_service() {
    let lab = SUBNET.enter();
    let root = Root::new("run");
    root.install(&[]);
    for host in ["H1", "H2"] {
        fs::copy(root.file(CONFIGURATION), lab.file(host, CONFIGURATION)).unwrap();
    }
    let binary = root.file("/usr/sbin/ibacm");
    let binary = binary.to_str().unwrap();
    // As much as the unit lets it have: two capabilities, no new ones.
    let unit = fs::read_to_string(root.file("/lib/systemd/system/ibacm.service")).unwrap();
    let kept = unit.lines().find_map(|l| l.strip_prefix("CapabilityBoundingSet=")).expect("it says");
    let kept: String = kept.split(' ').map(|c| format!(",+{}", c.trim_start_matches("CAP_").to_lowercase())).collect();
    let around = ["setpriv", "--no-new-privs", "--inh-caps=-all", &format!("--bounding-set=-all{kept}")];
    let mut services = Vec::new();
    for host in ["H1", "H2"] {
        lab.inject(&format!("leave {host}")).unwrap();
        let mut notify = Notify::new(&lab, host);
        let sockets = vec![stream_socket(&lab, host), kernel_socket(&lab, host)];
        services.push(manager::start_around(&lab, host, &around, binary, sockets, &[]));
        notify.wait("READY=1\n");
        lab.wait_joined(host);
    }
    // ib_acme looks for /run/ibacm-unix.sock, librdmacm for /run/ibacm.port and /run/ibacm.sock.
    let said = lab.acme("H1", &["-f", "n", "-s", "h1", "-d", "h2", "-v"]);
    assert!(said.contains("SA verification: success"), "{said}");
    let utility = root.file("/usr/bin/ib_acme").display().to_string();
    assert_eq!(succeed(lab.exec("H1", &utility).args(["-f", "n", "-s", "h1", "-d", "h2", "-v"])), said);
    let said = succeed(lab.exec("H1", &utility).args(["check", "-d", "10.77.0.2"]));
    assert!(said.ends_with("\nhealthy\n"), "{said}");
    let [one, two] = lab.hosts(["H1", "H2"]);
    let path = sa::path(&lab, one.lid, two.lid);
    let program = compile("rdma_resolve", &["-lrdmacm", "-libverbs"]);
    let said = succeed(lab.exec("H1", &program).args(["4", "-", "10.77.0.2"]));
    fs::remove_file(&program).unwrap();
    let digits: String = path.0.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(said, format!("path {digits}\nsource 10.77.0.1\n"));
    let log = fs::read_to_string(lab.file("H1", "/var/log/ibacm.log")).unwrap();
    assert!(!log.contains("cannot"), "{log}");
    for service in &mut services {
        assert_eq!(service.stop(), Some(0), "{}", service.said());
    }
}
