//! Errors of setting up the routes and rules that lead traffic into the interface.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::plan::may_configure;
use super::slot::{MOST_PATHS, SLOTS};

/// Reason why the routes and rules that lead traffic into the interface could not be set. A
/// partial setup has been undone, except after [`SteerError::Lost`].
#[derive(Debug)]
pub enum SteerError {
    /// The process lacks the required permissions.
    Forbidden,
    /// The program `nft` does not exist.
    NoNft,
    /// A running splitter uses the interface. The fields are the interface and the splitter's
    /// process ID.
    Running(String, u32),
    /// Another program's interface has this name.
    Interface(String),
    /// Another program's namespace has this name.
    Namespace(String),
    /// A routing table, a rule priority or a network that the splitter needs is already in use by
    /// another program. The text describes it.
    Occupied(String),
    /// The file for the namespace's name servers exists already, and was not made by a splitter.
    Resolver(PathBuf),
    /// All slots (sets of numbers for tables, rules and marks) are in use by other splitters.
    Slots,
    /// No path uses an interface of this machine, so no connection can be kept on a path.
    NoExit,
    /// There are more paths than `--route` supports.
    Paths,
    /// Another program has removed the splitter's routes or rules, and they could not be restored
    /// because of this error. Traffic stays blocked.
    Lost(io::Error),
    /// The system refused an operation. The fields are the operation and the error.
    System(String, io::Error),
}

impl SteerError {
    /// Returns whether the user's settings are the cause of the error.
    pub fn is_misuse(&self) -> bool {
        !matches!(self, SteerError::System(..) | SteerError::Lost(_))
    }

    pub(crate) fn system(what: &str) -> impl Fn(io::Error) -> SteerError {
        move |error| match error.kind() {
            // If the process has the permissions, the file is the cause (a service manager's
            // sandbox, a foreign owner).
            io::ErrorKind::PermissionDenied if !may_configure() => SteerError::Forbidden,
            _ => SteerError::System(what.to_owned(), error),
        }
    }
}

impl fmt::Display for SteerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SteerError::Forbidden => f.write_str(
                "--tun needs root (CAP_NET_ADMIN, with --netns CAP_SYS_ADMIN too). Without root, \
                 one program at a time can use the splitter through a local port: --listen \
                 127.0.0.1:PORT --to HOST:PORT",
            ),
            SteerError::NoNft => f.write_str(
                "--route needs the program nft: install the package nftables, or remove --route \
                 and route packets into the interface yourself",
            ),
            SteerError::Running(tun, process) => {
                write!(
                    f,
                    "--tun {tun}: process {process} already uses this interface: stop it, or \
                     choose another name"
                )
            }
            SteerError::Interface(name) => write!(
                f,
                "--tun {name}: an interface with this name exists, and no splitter made it: \
                 choose another name, or remove the interface ('ip link delete {name}')"
            ),
            SteerError::Namespace(name) => write!(
                f,
                "--netns {name}: a namespace with this name exists, and no splitter made it: \
                 choose another name, or remove the namespace ('ip netns delete {name}')"
            ),
            SteerError::Occupied(what) => write!(f, "--route: {what}; remove it first"),
            SteerError::Resolver(file) => write!(
                f,
                "--netns: '{}' exists already, and no splitter made it: remove it, or choose \
                 another name",
                file.display()
            ),
            SteerError::Slots => write!(
                f,
                "--tun: this machine already runs {SLOTS} splitters with --tun, the maximum \
                 number: stop one of them"
            ),
            SteerError::NoExit => f.write_str(
                "--route: traffic that is not split needs a path that leaves by an interface of \
                 this machine: add one (if:DEVICE), or remove --route",
            ),
            SteerError::Paths => {
                write!(f, "--route allows {MOST_PATHS} paths at most: remove some")
            }
            SteerError::Lost(error) => write!(
                f,
                "another program removed the splitter's routing rules, and the splitter cannot \
                 restore them ({error}), so the traffic for its interface is dropped: run \
                 'anabranch split --restore', or start the splitter again"
            ),
            SteerError::System(what, error) => write!(f, "{what}: {error}"),
        }
    }
}

impl std::error::Error for SteerError {}
