//! A running `anabranch client`, `relay`, `authority` or `up` for the tests of the program.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A `DirAuthority` line of an authority that does not run.
pub const NOBODY: &str = "nobody orport=1 no-v2 v3ident=0000000000000000000000000000000000000000 \
                          127.0.0.1:1 1111111111111111111111111111111111111111";

/// A program that prints events as JSON. It is killed at the end of the test.
pub struct Program {
    pub child: Child,
    lines: Receiver<Value>,
}

impl Program {
    /// Starts `anabranch` with these arguments.
    pub fn start(arguments: &[&str]) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        Program::of(command.args(arguments))
    }

    /// Starts `command`, which executes such a program.
    pub fn of(command: &mut Command) -> Program {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, receiver) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        thread::spawn(move || {
            let objects = lines.map_while(Result::ok);
            let objects = objects.filter_map(|line| serde_json::from_str(&line).ok());
            objects.for_each(|object: Value| drop(sender.send(object)));
        });
        Program { child, lines: receiver }
    }

    /// Returns the next object whose event is `name`, and skips others before it.
    pub fn next(&mut self, name: &str) -> Value {
        self.find(name, |_| true)
    }

    /// Returns the next object whose event is `name` and for which `wanted` returns true.
    pub fn find(&mut self, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.search(name, wanted, |_| {})
    }

    /// Returns the next object whose event is `name`. Passes other objects before it to `watch`.
    pub fn until(&mut self, name: &str, watch: impl FnMut(&Value)) -> Value {
        self.search(name, |_| true, watch)
    }

    fn search(
        &mut self,
        name: &str,
        wanted: impl Fn(&Value) -> bool,
        mut watch: impl FnMut(&Value),
    ) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let object = match self.lines.recv_timeout(left) {
                Ok(object) => object,
                Err(RecvTimeoutError::Timeout) => panic!("no '{name}' in {PATIENCE:?}"),
                Err(RecvTimeoutError::Disconnected) => {
                    let (status, errors) = self.ended();
                    panic!("no '{name}' before the program ended: {status}: {errors}");
                }
            };
            assert!(object["time"].is_number(), "an event without its time: {object}");
            if object["event"] == name && wanted(&object) {
                return object;
            }
            watch(&object);
        }
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Waits for the program's end. Returns its exit status, and its output on standard error.
    pub fn ended(&mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the program does not end");
            thread::sleep(Duration::from_millis(10));
        }
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        (self.child.wait().unwrap(), errors)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
