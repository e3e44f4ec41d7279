//! Signals that end the program, or make it read its settings again.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

use anabranch_os::hangup::{Hangup, is_ignored};

/// Exit status after SIGINT, as shells define it.
const INTERRUPTED: i32 = 128 + SIGINT;

/// Returns a stream that becomes readable when the program should end. If `rereads` is true, also
/// returns a watch on SIGHUP, on which the program reads its settings again.
///
/// SIGINT and SIGTERM end the program. If `rereads` is false, SIGHUP ends it, too, unless it was
/// ignored at the start (nohup). Near the end of the program, when only work is left that may be
/// interrupted, the caller sets `hasty`. SIGINT then ends the program at once.
pub(crate) fn signals(
    rereads: bool,
    hasty: &Arc<AtomicBool>,
) -> io::Result<(UnixStream, Option<Hangup>)> {
    let (stop, signalled) = UnixStream::pair()?;
    flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(hasty))?;
    let ends = (!rereads && !is_ignored(SIGHUP)).then_some(SIGHUP);
    let hangup = rereads.then(Hangup::watch).transpose()?;
    for signal in [SIGINT, SIGTERM].into_iter().chain(ends) {
        pipe::register(signal, signalled.try_clone()?)?;
    }
    Ok((stop, hangup))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::time::{Duration, Instant};

    use anabranch_comps::{Config, Event, Snapshot};
    use anabranch_multipath::Time;

    use super::*;
    use crate::split::{ActiveSettings, Entrance, Screen, Settings, run};

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A screen that prints the state of the run, and blocks at the end for this time, like a
    /// hanging disk.
    struct Slow(Duration);

    impl Screen for Slow {
        fn listening(&mut self, _: &ActiveSettings) {
            println!("\nlistening");
        }
        fn event(&mut self, _: Time, _: &Event) {}
        fn snapshot(&mut self, _: Time, _: &Snapshot) {}
        fn finish(&mut self, _: Time, _: &Snapshot) {
            println!("\nending");
            std::thread::sleep(self.0);
        }
        fn reloaded(&mut self, _: Time, _: &ActiveSettings) {
            println!("\nreloaded");
        }
        fn far_end(&mut self, _: Time, _: &crate::split::FarEndNews) {}
        fn warn(&mut self, text: &str) {
            println!("\nwarning: {text}");
        }
    }

    /// Runs a splitter in a separate process. The tests below send signals to it.
    #[test]
    #[ignore = "started by the tests below, alone it does nothing"]
    fn a_run() {
        let Ok(seconds) = std::env::var("SECONDS_TO_END") else { return };
        let settings = Settings {
            entrance: Entrance::Port {
                listen: "127.0.0.1:0".parse().unwrap(),
                to: "127.0.0.1:9".parse().unwrap(),
            },
            specs: vec!["a=addr:127.0.0.2".parse().unwrap()],
            core: Config::of(1),
            to_tcp: None,
            tls: None,
            stream_age: crate::streams::AGE,
            fwmark: None,
            same_egress: false,
            far_end: None,
            trace: None,
            pcap: None,
            pcap_limits: anabranch_capture::PcapLimits::default(),
        };
        run(settings, &mut Slow(Duration::from_secs(seconds.parse().unwrap()))).unwrap();
    }

    fn start(shell: &str, seconds_to_end: u64) -> (Child, BufReader<ChildStdout>) {
        let mut command = Command::new("sh");
        let exec = format!(
            "{shell} exec \"$0\" split::signals::tests::a_run --exact --ignored --nocapture"
        );
        command.args(["-c", &exec]).arg(std::env::current_exe().unwrap());
        command.env("SECONDS_TO_END", seconds_to_end.to_string());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        until(&mut lines, "listening");
        (child, lines)
    }

    fn until(lines: &mut BufReader<ChildStdout>, wanted: &str) {
        let mut line = String::new();
        while line.trim() != wanted {
            line.clear();
            assert_ne!(lines.read_line(&mut line).unwrap(), 0, "ended without '{wanted}'");
        }
    }

    fn signal(child: &Child, name: &str) {
        let status = Command::new("kill").args([name, &child.id().to_string()]).status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn each_of_three_signals_ends_a_run_in_order() {
        let ignored = is_ignored(SIGHUP);
        if ignored {
            println!("skipped: SIGHUP, which these tests were told to ignore (nohup)");
        }
        let names = ["-INT", "-TERM"].into_iter().chain((!ignored).then_some("-HUP"));
        for name in names {
            let (mut child, mut lines) = start("", 0);
            signal(&child, name);
            until(&mut lines, "ending");
            assert!(child.wait().unwrap().success(), "{name}");
        }
    }

    #[test]
    fn an_interrupt_while_ending_ends_at_once() {
        for first in ["-INT", "-TERM"] {
            let (mut child, mut lines) = start("", PATIENCE.as_secs());
            signal(&child, first);
            until(&mut lines, "ending");
            let interrupted = Instant::now();
            signal(&child, "-INT");
            assert_eq!(child.wait().unwrap().code(), Some(INTERRUPTED));
            assert!(interrupted.elapsed() < PATIENCE / 2);
        }
    }

    #[test]
    fn nohup_keeps_a_run_from_hanging_up() {
        let (mut child, mut lines) = start("trap '' HUP;", 0);
        signal(&child, "-HUP");
        std::thread::sleep(Duration::from_millis(200));
        assert!(child.try_wait().unwrap().is_none(), "it goes on");
        signal(&child, "-TERM");
        until(&mut lines, "ending");
        assert!(child.wait().unwrap().success());
    }
}
