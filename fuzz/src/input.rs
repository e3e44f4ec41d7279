//! Choices from a fuzzer's bytes, and checks that several targets share.

use anabranch_onion::wire::message::RelayCommand;
use anabranch_os::toml_keys::TomlError;

/// A relay command that no protocol defines.
const UNKNOWN: RelayCommand = RelayCommand(77);

/// Reader of choices from the front of an input. After the end of the input, it reads zeros.
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// Returns a number below `end`, which is at most 256.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    pub(crate) fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns fewer than `end` bytes; their number is also read from the input. `end` is at most
    /// 256.
    pub(crate) fn piece(&mut self, end: usize) -> &'a [u8] {
        let count = self.below(end);
        self.take(count)
    }

    /// Returns `count` bytes, or fewer if the input ends.
    pub(crate) fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// Returns any known relay command, or an unknown one.
pub(crate) fn any_command(input: &mut Input<'_>) -> RelayCommand {
    let known = RelayCommand::ALL;
    known.get(input.below(known.len() + 1)).map_or(UNKNOWN, |(command, _)| *command)
}

/// Checks that an error in a file is one printable line with a line number of the file.
pub(crate) fn check_message(error: &TomlError, text: &str) {
    let lines = 1 + text.bytes().filter(|&byte| byte == b'\n').count();
    assert!((1..=lines).contains(&error.line), "line {} of {lines}", error.line);
    assert!(!error.message.is_empty(), "a message says something");
    let message = error.to_string();
    assert!(!message.contains(char::is_control), "not one plain line: {message:?}");
}
