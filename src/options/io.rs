//! Reads configuration files: the only part of the configuration that touches the file system.

use super::{Finding, Options, parse};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Largest configuration file, in bytes. An address file of 10,000 nodes is under one MiB.
pub const MAX_FILE: u64 = 16 << 20;

/// Why a configuration file could not be read. That it does not exist is no error: see [`read`].
#[derive(Debug)]
pub enum ReadError {
    /// The system refused: no permission, a directory, a broken disk.
    Io(PathBuf, io::Error),
    /// Larger than [`MAX_FILE`].
    TooLarge(PathBuf),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::Io(path, error) => write!(f, "{}: cannot be read: {error}", path.display()),
            ReadError::TooLarge(path) => write!(f, "{}: larger than {MAX_FILE} bytes", path.display()),
        }
    }
}

impl std::error::Error for ReadError {}

/// The bytes of a configuration file; `None` when there is no such file (or no such directory).
///
/// # Errors
/// Everything else that keeps it from being read: a file that exists but is not readable must not count as missing,
/// or a slip in its permissions would silently put the defaults in force.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, ReadError> {
    let failed = |error| ReadError::Io(path.to_owned(), error);
    // A pipe that nobody writes to would be waited for.
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if file.metadata().is_ok_and(|status| status.file_type().is_fifo()) {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(ReadError::TooLarge(path.to_owned()));
    }
    Ok(Some(bytes))
}

/// What [`load`] found.
#[derive(Debug)]
pub struct Loaded {
    /// The options in force.
    pub options: Options,
    /// What is wrong in the file.
    pub findings: Vec<Finding>,
    /// There is no such file: the options are the defaults. Worth a line in the log.
    pub missing: bool,
}

/// Reads and parses an options file; a missing one gives the defaults.
///
/// # Errors
/// A file that exists and cannot be read.
pub fn load(path: &Path) -> Result<Loaded, ReadError> {
    Ok(match read(path)? {
        Some(bytes) => {
            let (options, findings) = parse(&bytes, &path.display().to_string());
            Loaded { options, findings, missing: false }
        }
        None => Loaded { options: Options::default(), findings: Vec::new(), missing: true },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_file_is_the_defaults() {
        let loaded = load(Path::new("/nonexistent/ibacm_opts.cfg")).unwrap();
        assert!(loaded.missing);
        assert_eq!(loaded.options, Options::default());
    }

    #[test]
    fn directory_is_a_clear_error() {
        let error = load(Path::new("/tmp")).unwrap_err().to_string();
        assert!(error.starts_with("/tmp: cannot be read: "), "{error}");
    }

    #[test]
    fn endless_file_is_refused() {
        assert!(matches!(load(Path::new("/dev/zero")), Err(ReadError::TooLarge(_))));
    }

    #[test]
    fn findings_name_the_file() {
        let path = std::env::temp_dir().join(format!("ibacm-opts-{}", std::process::id()));
        std::fs::write(&path, "retries 5\nbogus 1").unwrap();
        let loaded = load(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert!(!loaded.missing);
        assert_eq!(loaded.options.retries, 5);
        assert_eq!(loaded.findings[0].to_string(), format!("{}:2: warning: unknown option 'bogus'", path.display()));
    }
}
