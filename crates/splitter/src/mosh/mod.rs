//! Mosh's login, as described in mosh(1). An ssh login starts mosh-server and obtains its address,
//! port and key. Then mosh-client connects to an address that this program chooses.
//!
//! Both programs are unmodified. The login's answer contains the key, and mosh-client receives it
//! in its environment. The key is never on a command line, where every user of the machine could
//! read it.

mod answer;
mod client;
mod login;
mod proxy;
mod words;

pub use answer::{Answer, AnswerLine, Key, KeyError};
pub use client::{Client, ClientEnd, Running, Terminal};
pub use login::{Bind, Family, Login, LoginError, MoshServer, RemoteIp};
pub use proxy::carry;
pub use words::{Words, WordsError};
