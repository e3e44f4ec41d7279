//! A pseudo terminal for tests of the program, with a screen that supports the control sequences of
//! live views (ECMA-48).

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

pub const PATIENCE: Duration = Duration::from_secs(20);

/// A program with its own controlling terminal. It is killed at the end of its test.
pub struct Terminal {
    outer: File,
    inner: OwnedFd,
    modes: LocalModes,
    pub child: Child,
    screen: Arc<Mutex<Screen>>,
}

impl Terminal {
    /// Starts `anabranch` with these arguments and environment variables, on a terminal of
    /// `columns` columns and 30 lines.
    pub fn start(columns: u16, arguments: &[&str], variables: &[(&str, &str)]) -> Terminal {
        let outer = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outer).unwrap();
        unlockpt(&outer).unwrap();
        let name = ptsname(&outer, Vec::new()).unwrap();
        let inner = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let size = Winsize { ws_row: 30, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&outer, size).unwrap();
        let modes = tcgetattr(&inner).unwrap().local_modes;
        let stdio = || Stdio::from(inner.try_clone().unwrap());
        let child = Command::new("setsid")
            .args(["--ctty", env!("CARGO_BIN_EXE_anabranch")])
            .args(arguments)
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(stdio())
            .stdout(stdio())
            .stderr(stdio())
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(Screen::new(columns, 30)));
        let outer = File::from(outer);
        let (mut reading, mut answering) = (outer.try_clone().unwrap(), outer.try_clone().unwrap());
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading fails when the other end is closed.
            while let Ok(length @ 1..) = reading.read(&mut buffer) {
                let answer = shown.lock().unwrap().take(&buffer[..length]);
                if answering.write_all(answer.as_bytes()).is_err() {
                    return;
                }
            }
        });
        Terminal { outer, inner: inner.into(), modes, child, screen }
    }

    /// Types these keys.
    pub fn types(&mut self, keys: &str) {
        self.outer.write_all(keys.as_bytes()).unwrap();
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Waits until a line of the screen contains `text`. Returns all lines.
    pub fn shows(&self, text: &str) -> Vec<String> {
        self.until(text, |lines| lines.iter().any(|line| line.contains(text)))
    }

    /// Waits until no line of the screen contains `text`. Returns all lines.
    pub fn hides(&self, text: &str) -> Vec<String> {
        self.until(text, |lines| !lines.iter().any(|line| line.contains(text)))
    }

    fn until(&self, what: &str, is_so: impl Fn(&[String]) -> bool) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lines = self.look(Screen::lines);
            if is_so(&lines) {
                return lines;
            }
            assert!(Instant::now() < deadline, "{what:?}:\n{}", lines.join("\n"));
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until nothing was written to the screen for `quiet`. Returns all lines.
    pub fn stands_still(&self, quiet: Duration) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let (mut lines, mut since) = (self.look(Screen::lines), Instant::now());
        while since.elapsed() < quiet {
            assert!(Instant::now() < deadline, "it moves:\n{}", lines.join("\n"));
            thread::sleep(Duration::from_millis(10));
            let now = self.look(Screen::lines);
            if now != lines {
                (lines, since) = (now, Instant::now());
            }
        }
        lines
    }

    /// Returns the result of `of` for the current screen.
    pub fn look<T>(&self, of: impl FnOnce(&Screen) -> T) -> T {
        of(&self.screen.lock().unwrap())
    }

    /// Waits for the end of the program. Returns its exit code; `None` if a signal ended it.
    pub fn ended(&mut self) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the program does not end");
            thread::sleep(Duration::from_millis(10));
        }
        self.child.wait().unwrap().code()
    }

    /// Returns whether the terminal was restored after the program ended: echo, line buffering and
    /// cursor.
    pub fn is_given_back(&self) -> bool {
        let modes = tcgetattr(&self.inner).unwrap().local_modes;
        self.has_cursor_soon(true) && modes == self.modes
    }

    /// Returns whether the terminal has the mode of a live view.
    pub fn is_taken(&self) -> bool {
        let modes = tcgetattr(&self.inner).unwrap().local_modes;
        !modes.intersects(LocalModes::ECHO | LocalModes::ICANON) && self.has_cursor_soon(false)
    }

    /// Waits until the cursor is visible, or hidden, as `expected`. Returns false after a timeout.
    /// The wait is needed because a view draws before it hides the cursor, and the program's output
    /// is read by another thread.
    fn has_cursor_soon(&self, expected: bool) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let is_so = || self.look(|screen| screen.has_cursor) == expected;
        while !is_so() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        is_so()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Content of a terminal's screen.
pub struct Screen {
    cells: Vec<Vec<char>>,
    /// Line and column of the cursor, from 0.
    cursor: (usize, usize),
    pub has_cursor: bool,
    /// Number of times that a view was drawn. A view hides the cursor each time.
    pub drawn: usize,
    /// Whether anything was written in colour.
    pub has_colours: bool,
    /// Start of an incomplete control sequence or character.
    rest: Vec<u8>,
}

impl Screen {
    fn new(columns: u16, lines: usize) -> Screen {
        Screen {
            cells: vec![vec![' '; columns.into()]; lines],
            cursor: (0, 0),
            has_cursor: true,
            drawn: 0,
            has_colours: false,
            rest: Vec::new(),
        }
    }

    /// Returns the lines without trailing spaces.
    pub fn lines(&self) -> Vec<String> {
        let line = |cells: &Vec<char>| cells.iter().collect::<String>().trim_end().to_owned();
        self.cells.iter().map(line).collect()
    }

    /// Processes the output of a program. Returns the terminal's answer.
    fn take(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8(self.rest.drain(..whole).collect()).unwrap();
        let (mut left, mut answer) = (text.as_str(), String::new());
        while let Some(letter) = left.chars().next() {
            if letter != '\x1b' {
                self.put(letter);
                left = &left[letter.len_utf8()..];
                continue;
            }
            let Some(end) = end_of_sequence(left) else { break };
            answer += &self.execute(&left[2..end]);
            left = &left[end..];
        }
        self.rest.splice(..0, left.bytes());
        answer
    }

    fn put(&mut self, letter: char) {
        let (lines, columns) = (self.cells.len(), self.cells[0].len());
        match letter {
            '\r' => self.cursor.1 = 0,
            '\n' => self.feed(lines),
            _ if letter.is_control() => {}
            _ => {
                if self.cursor.1 == columns {
                    self.cursor.1 = 0;
                    self.feed(lines);
                }
                self.cells[self.cursor.0][self.cursor.1] = letter;
                self.cursor.1 += 1;
            }
        }
    }

    fn feed(&mut self, lines: usize) {
        if self.cursor.0 + 1 < lines {
            self.cursor.0 += 1;
            return;
        }
        let mut first = self.cells.remove(0);
        first.fill(' ');
        self.cells.push(first);
    }

    /// Executes a control sequence, given without its introducer. Returns the terminal's answer.
    fn execute(&mut self, sequence: &str) -> String {
        let (parameters, what) = sequence.split_at(sequence.len() - 1);
        let numbers: Vec<usize> =
            parameters.split(';').map(|number| number.parse().unwrap_or(0)).collect();
        let number = |place: usize| numbers.get(place).copied().unwrap_or(0);
        let (lines, columns) = (self.cells.len(), self.cells[0].len());
        let (line, column) = self.cursor;
        match (what, parameters) {
            ("H", _) => {
                let place = |number: usize, most: usize| number.max(1).min(most) - 1;
                self.cursor = (place(number(0), lines), place(number(1), columns));
            }
            ("A", _) => self.cursor.0 = line.saturating_sub(number(0).max(1)),
            ("B", _) => self.cursor.0 = (line + number(0).max(1)).min(lines - 1),
            ("C", _) => self.cursor.1 = (column + number(0).max(1)).min(columns - 1),
            ("J", "" | "0") => {
                self.cells[line][column.min(columns)..].fill(' ');
                self.cells[line + 1..].iter_mut().for_each(|cells| cells.fill(' '));
            }
            ("J", "2") => self.cells.iter_mut().for_each(|cells| cells.fill(' ')),
            ("K", "" | "0") => self.cells[line][column.min(columns)..].fill(' '),
            ("K", "2") => self.cells[line].fill(' '),
            ("l", "?25") => {
                self.has_cursor = false;
                self.drawn += 1;
            }
            ("h", "?25") => self.has_cursor = true,
            ("n", "6") => return format!("\x1b[{};{}R", line + 1, column.min(columns - 1) + 1),
            ("m", _) => self.has_colours |= matches!(number(0), 30..=38 | 40..=48 | 90..=107),
            other => panic!("a sequence that this terminal does not know: {other:?}"),
        }
        String::new()
    }
}

/// Returns the end of a control sequence; `None` if it is incomplete.
fn end_of_sequence(text: &str) -> Option<usize> {
    let body = text.get(2..)?;
    assert!(text.starts_with("\x1b["), "no control sequence: {text:?}");
    body.find(|letter: char| matches!(letter, '@'..='~')).map(|place| place + 3)
}
