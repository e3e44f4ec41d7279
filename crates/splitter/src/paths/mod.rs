//! Paths in the user's notation, and the egress from this machine of each.
//!
//! A [`PathSpec`] is the user's text (`lte=if:wwan0,ports:4`). [`resolve`] asks the kernel for its
//! route and returns an [`Egress`], which has all parameters for a driver to open the path's
//! sockets. [`again`] repeats this after a change of the network. [`anywhere`] needs no particular
//! server, [`check`] runs before the server is known, and [`uplinks`] lists the available paths.
//! Resolving sends nothing and opens no UDP socket.

mod egress;
mod error;
mod resolve;
mod spec;
mod stream;

pub use egress::{Apart, Egress, Mtu, recommended};
pub use error::{Fault, PathError, SpecError};
pub(crate) use resolve::refuse_same;
pub use resolve::{Names, again, anywhere, check, redirect, resolve, resolve_by, uplinks};
pub use spec::{MAX_NAME, MAX_PORTS, PathSpec, distinct};
pub use stream::{Circuits, MAX_CIRCUITS, SshHost, StreamKind, circuits};
