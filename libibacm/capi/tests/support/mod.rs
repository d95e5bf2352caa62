//! An installation of the library in a directory of its own, and programs that are built with nothing else.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The project's directory, of whichever package this is a part.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().find(|d| d.join("scripts/install-libibacm").exists());
    root.expect("the package is in the project").to_owned()
}

/// The static library that cargo has made beside this program.
pub fn static_library() -> PathBuf {
    let program = std::env::current_exe().expect("a test is a file");
    let directory = program.parent().expect("in a directory");
    let made = fs::read_dir(directory).expect("that can be read").flatten().map(|e| e.path()).filter(|p| {
        let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("libibacm_c") && name.ends_with(".a")
    });
    made.max_by_key(|p| p.metadata().and_then(|m| m.modified()).ok()).expect("cargo makes it with the tests")
}

/// What a command says that must succeed.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}: {}", output.status, said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Both outputs as text.
pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// An installation, which goes with this value.
pub struct Prefix(pub PathBuf);

impl Drop for Prefix {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Prefix {
    /// Installs as an administrator would, under a name of this test's.
    pub fn install(name: &str) -> Prefix {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libibacm-{name}-{}", std::process::id()));
        let prefix = Prefix(path);
        prefix.command(&[&format!("LIBRARY={}", static_library().display())]);
        prefix
    }

    /// Runs the script that installs and removes.
    pub fn command(&self, arguments: &[&str]) {
        let prefix = format!("PREFIX={}", self.0.display());
        succeed(Command::new(root().join("scripts/install-libibacm")).arg(prefix).args(arguments));
    }

    /// What pkg-config says of it.
    pub fn flags(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.env("PKG_CONFIG_PATH", self.0.join("lib/pkgconfig")).args(arguments).arg("libibacm");
        succeed(&mut command).split_whitespace().map(str::to_owned).collect()
    }

    /// Builds a source file of the project by a compiler, as its users do.
    pub fn build(&self, compiler: &[&str], source: &str, name: &str) -> PathBuf {
        let program = self.0.join(name);
        let mut command = Command::new(compiler[0]);
        command.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        command.arg(root().join(source)).args(self.flags(&["--cflags", "--libs"]));
        succeed(&mut command);
        program
    }

    /// Where the loader has to look.
    pub fn libraries(&self) -> PathBuf {
        self.0.join("lib")
    }
}

/// How a program is run that must neither leak nor touch what it may not.
pub const VALGRIND: [&str; 5] =
    ["valgrind", "-q", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite,indirect"];
