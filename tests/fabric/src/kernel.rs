//! The kernel's part over netlink, played by a test: requests of local path resolution to a host's service.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, getsockname, recvfrom, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike as _};

use crate::paths::StateDir;

/// The multicast group of local services, as a mask.
pub const LOCAL_SERVICES: u32 = 1 << 2;

/// Bytes of answers that may wait to be read.
const RECEIVE_BUFFER: usize = 16 << 20;

/// A socket in a host's network namespace, on the protocol that stands for NETLINK_RDMA there.
#[derive(Debug)]
pub struct Kernel {
    socket: OwnedFd,
    port_id: u32,
    /// Says to the host's programs whom to believe.
    sign: Option<PathBuf>,
}

/// Opens such a socket bound to these groups; what a service manager would hand over to the service.
pub fn netlink_socket(state: &StateDir, host: &str, groups: u32) -> io::Result<OwnedFd> {
    let namespace = crate::host::namespace(state, host, "net")?;
    // A socket belongs to the namespace of the thread that made it.
    let maker = std::thread::spawn(move || -> io::Result<OwnedFd> {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkUserSock)?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(fd)
    });
    maker.join().unwrap_or_else(|_| Err(io::Error::other("the thread in the host ended")))
}

impl Kernel {
    /// Plays the kernel of a host. With `believed`, its messages are what the host's programs take for the kernel's;
    /// without, it is just another process that talks to the group.
    pub fn new(state: &StateDir, host: &str, believed: bool) -> io::Result<Self> {
        let socket = netlink_socket(state, host, LOCAL_SERVICES)?;
        // Thousands of answers may come at once.
        setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
        let port_id = getsockname::<NetlinkAddr>(socket.as_raw_fd())?.pid();
        let sign = believed.then(|| state.host(host).join("netlink-kernel"));
        if let Some(sign) = &sign {
            fs::write(sign, port_id.to_string())?;
        }
        Ok(Kernel { socket, port_id, sign })
    }

    /// Its netlink port id.
    pub fn port_id(&self) -> u32 {
        self.port_id
    }

    /// Sends a message to the group.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        let group = NetlinkAddr::new(0, LOCAL_SERVICES);
        match sendto(self.socket.as_raw_fd(), message, &group, MsgFlags::empty()) {
            // There is no kernel socket behind the group; the group has the message.
            Ok(_) | Err(nix::errno::Errno::ECONNREFUSED) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The next message of somebody else, and its sender's port id; `None` if none comes in time.
    pub fn recv(&self, patience: Duration) -> io::Result<Option<(Vec<u8>, u32)>> {
        let patience = TimeVal::milliseconds(patience.as_millis().max(1) as i64);
        setsockopt(&self.socket, sockopt::ReceiveTimeout, &patience)?;
        let mut buffer = vec![0; 65536];
        match recvfrom::<NetlinkAddr>(self.socket.as_raw_fd(), &mut buffer) {
            Ok((n, from)) => {
                buffer.truncate(n);
                Ok(Some((buffer, from.map_or(0, |a| a.pid()))))
            }
            Err(nix::errno::Errno::EAGAIN) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // The port id may be somebody else's next.
        if let Some(sign) = &self.sign {
            let _ = fs::remove_file(sign);
        }
    }
}
