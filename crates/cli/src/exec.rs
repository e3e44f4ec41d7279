//! `anabranch exec`: runs a program inside the network namespace of `anabranch split --netns`.

use std::env;
use std::ffi::OsString;
use std::io::{self, ErrorKind};

use anabranch_splitter::steer::{self, MountPoint, RunAs};

use crate::failure::Failure;
use crate::sudo;

/// Text at the end of `--help`.
const EXAMPLES: &str = "\
EXAMPLES
  A browser over all paths. In another terminal, first run:
    sudo anabranch split --tun any0 --netns browse --route --path auto
  Then start the browser:
    sudo anabranch exec browse chromium

  A root shell in the namespace:
    sudo anabranch exec --user root browse bash

WHAT IT DOES
  Like 'ip netns exec NAME', this command enters the network of the namespace, and mounts the
  files of /etc/netns/NAME over those of /etc. It also hides /run/nscd, /run/dbus,
  /run/systemd/resolve, /run/avahi-daemon, /run/nslcd and /var/lib/sss/pipes. The machine's own
  name resolvers listen there, on Unix sockets, and would look up names outside the namespace.

EXIT CODES
  the exit code of COMMAND   2 COMMAND could not be started";

/// Start a program in the network namespace of 'anabranch split --netns NAME' (needs root).
///
/// The program cannot reach this machine's own name resolvers, because they look up names outside
/// the namespace.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, after_help = "--help shows examples.")]
pub(crate) struct ExecArgs {
    /// Run the program as this user [default: the user who called sudo; without sudo the current
    /// user].
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    /// Use the network namespace with this name, as given to 'anabranch split --netns'.
    #[arg(value_name = "NAME")]
    name: String,

    /// Start this program with these arguments.
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl ExecArgs {
    /// Replaces this process by the program, inside the namespace.
    pub(crate) fn run(self) -> Result<(), Failure> {
        let names = steer::namespaces();
        if !names.contains(&self.name) {
            return Err(Failure::misuse(unknown(&self.name, &names)));
        }
        let user = self.user.or_else(|| env::var("SUDO_UID").ok());
        let user = user.as_deref().map(RunAs::of).transpose().map_err(Failure::misuse)?;
        let (program, arguments) =
            self.command.split_first().expect("clap requires at least one word of the command");
        let error = steer::launch(&self.name, program, arguments, user.as_ref());
        let place = steer::place(&self.name).unwrap_or(MountPoint::Here);
        Err(Failure::misuse(why(&error, place, &self.name, &program.to_string_lossy())))
    }
}

fn unknown(name: &str, names: &[String]) -> String {
    let there = match names {
        [] => format!("create it with 'anabranch split --tun any0 --netns {name} ...'"),
        names => format!("choose one of {}", names.join(", ")),
    };
    format!("there is no network namespace '{name}': {there}")
}

fn why(error: &io::Error, place: MountPoint, name: &str, program: &str) -> String {
    let denied = error.kind() == ErrorKind::PermissionDenied || place == MountPoint::Nowhere;
    if denied && !rustix::process::geteuid().is_root() {
        return format!(
            "only root can enter the network namespace '{name}': run {}",
            sudo::command_line([])
        );
    }
    match place {
        MountPoint::MountsOf(process) => format!(
            "the network namespace '{name}' exists only inside another mount namespace, where it \
             was created (for example by 'ip netns exec'): run 'sudo nsenter --target {process} \
             --mount anabranch exec {name} {program}'"
        ),
        MountPoint::Nowhere => format!(
            "the network namespace '{name}' has ended, and only its name is left: remove the name \
             with 'sudo ip netns delete {name}', and start the splitter again"
        ),
        MountPoint::Here if error.kind() == ErrorKind::NotFound => {
            format!("there is no program '{program}': install it, or give its path")
        }
        MountPoint::Here => {
            format!("cannot start '{program}' in the network namespace '{name}': {error}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_namespace_has_is_told_with_those_there_are() {
        let there = ["browse".to_owned(), "work".to_owned()];
        let message = "there is no network namespace 'b': choose one of browse, work";
        assert_eq!(unknown("b", &there), message);
        assert!(unknown("b", &[]).contains("--netns b "));
        let missing = io::Error::from(ErrorKind::NotFound);
        let gone = why(&missing, MountPoint::Here, "browse", "firefx");
        assert_eq!(gone, "there is no program 'firefx': install it, or give its path");
        let elsewhere =
            why(&io::Error::from_raw_os_error(22), MountPoint::MountsOf(17), "b", "bash");
        let cure = "run 'sudo nsenter --target 17 --mount anabranch exec b bash'";
        assert!(elsewhere.ends_with(cure), "{elsewhere}");
    }
}
