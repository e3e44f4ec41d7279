//! Paths as a user names them, and the way out of this machine that each of them is.
//!
//! A [`PathSpec`] is what the user wrote (`lte=if:wwan0,ports:4`); [`resolve`] asks the kernel
//! where it leads and gives an [`Egress`]: all that a driver needs to open the path's sockets;
//! [`again`] asks once more when the network has changed; [`anywhere`] asks for no server in
//! particular, [`check`] before the server is known, and [`uplinks`] says which paths there are.
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
