//! The names in the run directory by which clients find the service.
//!
//! A unix service is the socket `ibacm-unix.sock` and a link to it; a TCP service is a file
//! with the port number and a link to that. Everything appears by a rename, so that no client
//! ever sees a socket that does not listen yet, has not its mode yet, or half a number. A name
//! is only taken away again while it still is the file that was put there.

use std::fmt;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use crate::sock;

/// The socket of a unix service.
pub const UNIX_SOCKET: &str = "ibacm-unix.sock";
/// The link to it that librdmacm looks for.
pub const UNIX_LINK: &str = "ibacm.sock";
/// The file with the port number of a TCP service, as text.
pub const TCP_PORT: &str = "ibacm-tcp.port";
/// The link to it that librdmacm looks for.
pub const TCP_LINK: &str = "ibacm.port";

/// Connections that may wait to be accepted.
pub const BACKLOG: i32 = 4096;

/// Why the service could not be published.
#[derive(Debug)]
pub enum PublishError {
    /// Another service answers at this socket; nothing was touched.
    Live(PathBuf),
    /// Another service listens on this address; nothing was touched.
    InUse(SocketAddr),
    /// A file that is no stream socket has the name; nothing was touched.
    NotASocket(PathBuf),
    /// A system call failed: what was being done, with which file or address, and the error.
    Io(&'static str, String, io::Error),
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PublishError::Live(path) => {
                write!(f, "another service answers at {}", path.display())
            }
            PublishError::InUse(addr) => write!(f, "another service listens on {addr}"),
            PublishError::NotASocket(path) => {
                write!(f, "{} is in the way: it is no stream socket", path.display())
            }
            PublishError::Io(what, name, error) => write!(f, "cannot {what} {name}: {error}"),
        }
    }
}

impl std::error::Error for PublishError {}

/// Adds to an I/O error what was being done, and to what.
fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PublishError {
    move |error| PublishError::Io(what, path.display().to_string(), error)
}

/// Names that are ours, until dropped or withdrawn.
#[derive(Debug, Default)]
pub struct Published {
    /// Path, device, inode.
    names: Vec<(PathBuf, u64, u64)>,
}

impl Published {
    /// Remembers what stands at `path` now as ours.
    fn add(&mut self, path: PathBuf) -> Result<(), PublishError> {
        let meta = fs::symlink_metadata(&path).map_err(at("look at", &path))?;
        self.names.push((path, meta.dev(), meta.ino()));
        Ok(())
    }

    /// Removes the names that are still the files that were put there; others stay.
    pub fn withdraw(&mut self) {
        for (path, dev, ino) in self.names.drain(..).rev() {
            let ours = fs::symlink_metadata(&path).is_ok_and(|meta| meta.dev() == dev && meta.ino() == ino);
            if ours {
                // A name that cannot be removed is harmless: a client that uses it is refused.
                let _ = fs::remove_file(&path);
            }
        }
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Opens the unix service in `dir`, mode 0777, and takes the names of a TCP service away. With
/// `link` the link for librdmacm is made as well, without it a stale one is removed.
///
/// # Errors
/// See [`PublishError`]. A socket file that nobody answers at is replaced.
pub fn unix(dir: &Path, link: bool) -> Result<(UnixListener, Published), PublishError> {
    let path = dir.join(UNIX_SOCKET);
    refuse_live(&path)?;
    let temp = temp_name(dir, UNIX_SOCKET);
    remove(&temp)?;
    let listener = UnixListener::bind(&temp).map_err(at("bind", &temp))?;
    let prepared = fs::set_permissions(&temp, Permissions::from_mode(0o777))
        .and_then(|()| sock::listen(listener.as_fd(), BACKLOG))
        .and_then(|()| listener.set_nonblocking(true))
        .and_then(|()| fs::rename(&temp, &path));
    if let Err(error) = prepared {
        let _ = fs::remove_file(&temp);
        return Err(at("publish", &path)(error));
    }
    let mut names = Published::default();
    names.add(path)?;
    publish_link(dir, UNIX_LINK, UNIX_SOCKET, link, &mut names)?;
    remove_tcp_names(dir)?;
    Ok((listener, names))
}

/// Opens a TCP service at `addr`, publishes its port in `dir`, and takes the names of a unix
/// service away. With `link` the link for librdmacm is made as well.
///
/// # Errors
/// See [`PublishError`]; a unix service that is alive in `dir` is not disturbed either.
pub fn tcp(dir: &Path, addr: SocketAddr, link: bool) -> Result<(TcpListener, Published), PublishError> {
    refuse_live(&dir.join(UNIX_SOCKET))?;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => PublishError::InUse(addr),
        _ => PublishError::Io("listen on", addr.to_string(), error),
    };
    // The standard library sets SO_REUSEADDR, so lingering connections don't keep us out.
    let listener = TcpListener::bind(addr).map_err(failed)?;
    let port = sock::listen(listener.as_fd(), BACKLOG)
        .and_then(|()| prepare_tcp(&listener))
        .and_then(|()| listener.set_nonblocking(true))
        .and_then(|()| listener.local_addr())
        .map_err(failed)?
        .port();
    let mut names = Published::default();
    let path = dir.join(TCP_PORT);
    write_file(&temp_name(dir, TCP_PORT), &path, format!("{port}\n").as_bytes())?;
    names.add(path)?;
    publish_link(dir, TCP_LINK, TCP_PORT, link, &mut names)?;
    remove(&dir.join(UNIX_LINK))?;
    remove(&dir.join(UNIX_SOCKET))?;
    Ok((listener, names))
}

/// Options that accepted connections inherit: replies leave at once, and a peer host that died
/// is noticed in the end.
pub(crate) fn prepare_tcp(listener: &impl AsFd) -> io::Result<()> {
    sock::set_int(listener.as_fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
    sock::set_int(listener.as_fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)
}

/// Takes the names of a TCP service away, for a unix service whose socket was inherited.
///
/// # Errors
/// [`PublishError::Io`] for a name that is there and cannot be removed.
pub fn remove_tcp_names(dir: &Path) -> Result<(), PublishError> {
    remove(&dir.join(TCP_LINK))?;
    remove(&dir.join(TCP_PORT))
}

/// Fails when somebody answers at the socket, or when the name is not a socket's.
fn refuse_live(path: &Path) -> Result<(), PublishError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(at("look at", path)(error)),
        Ok(meta) if meta.file_type().is_socket() || meta.file_type().is_symlink() => {}
        Ok(_) => return Err(PublishError::NotASocket(path.to_path_buf())),
    }
    // Without waiting: a service that hangs with a full backlog is alive too.
    match sock::try_connect(path) {
        Ok(()) => Err(PublishError::Live(path.to_path_buf())),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => Err(PublishError::Live(path.to_path_buf())),
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(()),
            _ if error.raw_os_error() == Some(libc::EPROTOTYPE) => Err(PublishError::NotASocket(path.to_path_buf())),
            _ => Err(at("ask who is at", path)(error)),
        },
    }
}

/// The name under which a file is prepared; one left over from a crash is overwritten.
fn temp_name(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!(".{name}.new"))
}

/// Removes a file that may not be there.
fn remove(path: &Path) -> Result<(), PublishError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Makes (or, where it is not wanted, removes) the link `name` to `target`.
fn publish_link(dir: &Path, name: &str, target: &str, wanted: bool, names: &mut Published) -> Result<(), PublishError> {
    let path = dir.join(name);
    if !wanted {
        return remove(&path);
    }
    let temp = temp_name(dir, name);
    remove(&temp)?;
    symlink(target, &temp).map_err(at("make the link", &temp))?;
    if let Err(error) = fs::rename(&temp, &path) {
        let _ = fs::remove_file(&temp);
        return Err(at("publish", &path)(error));
    }
    names.add(path)
}

/// Writes a whole file under a temporary name, mode 0644 whatever the umask, and renames it.
fn write_file(temp: &Path, path: &Path, content: &[u8]) -> Result<(), PublishError> {
    remove(temp)?;
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(temp)
        .and_then(|mut file| {
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.write_all(content)
        })
        .and_then(|()| fs::rename(temp, path));
    written.map_err(|error| {
        let _ = fs::remove_file(temp);
        at("write", path)(error)
    })
}
