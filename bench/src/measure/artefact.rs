//! The program as a file: how large it is, what it is linked with, what it is made of.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Outcome;
use crate::args::Args;
use crate::lab::Lab;
use crate::report::{Figures, Report};
use crate::service::Program;

/// Libraries that the program may be linked with, the dynamic linker among them.
const EXPECTED: [&str; 6] =
    ["libibverbs.so.1", "libibumad.so.3", "libc.so.6", "libgcc_s.so.1", "libm.so.6", "ld-linux-x86-64.so.2"];

/// Size, libraries, crates.
pub fn program(lab: &Lab, args: &Args, report: &mut Report) -> Outcome<()> {
    let stock = Program::Stock.path(lab);
    let plugin = plugin();
    let size = |path: &Path| Ok::<f64, std::io::Error>(fs::metadata(path)?.len() as f64 / 1e6);
    let mut binary = Figures::ours(size(&lab.ours)?);
    let mut sum = size(&stock)?;
    for path in plugin.iter() {
        sum += size(path)?;
    }
    binary.stock.push(sum);
    report.row("binary", binary);

    let named = needed(&lab.ours)?;
    let more = named.iter().filter(|l| !EXPECTED.contains(&l.as_str())).count();
    let mut libraries = Figures::ours(more as f64);
    let mut all = needed(&stock)?;
    for path in plugin.iter() {
        all.extend(needed(path)?);
    }
    libraries.stock.push(all.iter().filter(|l| !EXPECTED.contains(&l.as_str())).count() as f64);
    libraries.note = Some(format!("ours: {}", named.into_iter().collect::<Vec<_>>().join(" ")));
    report.row("libraries", libraries);

    let direct = crates(args, &["--depth", "1"])?;
    report.row("crates_direct", counted(direct));
    report.row("crates_minimal", counted(crates(args, &["--no-default-features"])?));
    Ok(())
}

fn counted(names: BTreeSet<String>) -> Figures {
    let mut figures = Figures::ours(names.len() as f64);
    figures.note = Some(names.into_iter().collect::<Vec<_>>().join(" "));
    figures
}

/// The distribution's plug-in, which belongs to its program.
fn plugin() -> Option<PathBuf> {
    let architectures = fs::read_dir("/usr/lib").ok()?.flatten();
    architectures.map(|dir| dir.path().join("ibacm/libibacmp.so")).find(|path| path.exists())
}

/// The libraries that a file names itself.
fn needed(path: &Path) -> Outcome<BTreeSet<String>> {
    let output = Command::new("readelf").arg("-dW").arg(path).output()?;
    if !output.status.success() {
        return Err(format!("readelf {}: {}", path.display(), output.status).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|l| l.contains("(NEEDED)"));
    Ok(lines.filter_map(|l| Some(l.split_once('[')?.1.trim_end_matches(']').to_owned())).collect())
}

/// Crates of others that the service runs with.
fn crates(args: &Args, more: &[&str]) -> Outcome<BTreeSet<String>> {
    let output = Command::new("cargo")
        .args(["tree", "--offline", "--locked", "--package", "ibacm", "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}"])
        .args(more)
        .current_dir(&args.root)
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    // Those of this project are shown with their directory.
    let lines = text.lines().filter(|l| !l.is_empty() && !l.contains('/'));
    Ok(lines.filter_map(|l| Some(l.split_whitespace().next()?.to_owned())).collect())
}
