//! Paths in the user's notation, and the egress of each path: the interface, source address and
//! route of its packets.
//!
//! A [`PathSpec`] is the user's text (`lte=if:wwan0,ports:4`). [`resolve`] asks the kernel for the
//! path's route and returns an [`Egress`], which has all parameters that a driver needs to open
//! the path's sockets. [`again`] resolves the paths again after a change of the network.
//! [`anywhere`] resolves paths for no particular server, [`check`] checks paths before the server
//! is known, and [`uplinks`] lists a path for each uplink of this machine. None of these functions
//! sends packets on a path or opens a UDP socket.

mod egress;
mod error;
mod resolve;
mod spec;
mod stream;

pub use egress::{Egress, Intermediary, Mtu, recommended};
pub use error::{Fault, PathError, SpecError};
pub(crate) use resolve::refuse_same;
pub use resolve::{Names, again, anywhere, check, redirect, resolve, resolve_by, uplinks};
pub use spec::{MAX_NAME, MAX_PORTS, PathSpec, distinct};
pub use stream::{Circuits, MAX_CIRCUITS, SshHost, StreamKind, circuits};
