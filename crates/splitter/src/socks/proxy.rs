//! A SOCKS5 proxy as the user writes it, and its password, which is never shown.

use std::env;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use anabranch_os::target::Target;
use anabranch_proxy::client::Credentials;

use super::fault::ProxyFault;

/// Environment variable with the password, used if the proxy names no other source.
pub const PASSWORD_VARIABLE: &str = "ANABRANCH_SOCKS5_PASSWORD";
/// Maximum bytes of a user name or password: their length is one byte (RFC 1929, section 2).
const LONGEST: usize = 255;

/// A SOCKS5 proxy: `[USER[:PASSWORD]@]HOST:PORT`. `@FILE` in place of `PASSWORD` stands for the
/// first line of that file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// TCP address at which the proxy listens.
    pub at: Target,
    /// Our user name and password for the proxy; `None` if the user gave none.
    pub login: Option<Login>,
}

/// User name and password for a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    user: String,
    password: Password,
}

/// Source of a password.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// The password itself.
    Text(String),
    /// The first line of this file, which is read again for each connection.
    File(PathBuf),
    /// The environment variable [`PASSWORD_VARIABLE`].
    Environment,
}

/// Error in the text with which the user names a proxy. Its message does not repeat the text,
/// which may contain a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyError {
    /// The text does not have the form `HOST:PORT`.
    Form,
    /// A user name or password is empty or too long.
    Length,
}

impl Login {
    /// Returns the user name.
    pub(crate) fn user(&self) -> &str {
        &self.user
    }

    /// Returns a login with the user name `user` and the same password.
    ///
    /// # Errors
    /// The errors of [`Login::new`].
    pub(crate) fn of_user(&self, user: &str) -> Result<Login, ProxyError> {
        Login::new(user, self.password.clone())
    }

    /// Creates a login. The user name, and a password given as text, must fit into a message of
    /// RFC 1929.
    ///
    /// # Errors
    /// The user name or the password is empty, or longer than 255 bytes.
    pub fn new(user: &str, password: Password) -> Result<Login, ProxyError> {
        let fits = |text: &str| (1..=LONGEST).contains(&text.len());
        let good = match &password {
            Password::Text(text) => fits(text),
            Password::File(file) => !file.as_os_str().is_empty(),
            Password::Environment => true,
        };
        let good = good && fits(user);
        if good { Ok(Login { user: user.into(), password }) } else { Err(ProxyError::Length) }
    }

    /// Returns the user name and the password, which is read from its source.
    ///
    /// # Errors
    /// The password cannot be read, is empty, or is too long.
    pub fn credentials(&self) -> Result<Credentials, ProxyFault> {
        let missing = |what: String| ProxyFault::Password(what);
        let password = match &self.password {
            Password::Text(text) => text.clone(),
            Password::File(file) => {
                let text = fs::read_to_string(file);
                let text = text.map_err(|e| missing(format!("'{}': {e}", file.display())))?;
                text.lines().next().unwrap_or_default().to_owned()
            }
            Password::Environment => env::var(PASSWORD_VARIABLE).map_err(|_| {
                missing(format!(
                    "set the environment variable {PASSWORD_VARIABLE} to the proxy's password, or \
                     name a file that contains it (USER:@FILE@HOST:PORT)"
                ))
            })?,
        };
        if !(1..=LONGEST).contains(&password.len()) {
            return Err(missing(format!("a password has 1 to {LONGEST} bytes")));
        }
        Ok(Credentials { user: self.user.clone(), password })
    }
}

impl Proxy {
    /// Returns the proxy's credentials as [`Login::credentials`] does; `None` if the proxy has no
    /// login.
    ///
    /// # Errors
    /// The errors of [`Login::credentials`].
    pub fn credentials(&self) -> Result<Option<Credentials>, ProxyFault> {
        self.login.as_ref().map(Login::credentials).transpose()
    }
}

impl FromStr for Proxy {
    type Err = ProxyError;

    fn from_str(text: &str) -> Result<Proxy, ProxyError> {
        let (login, at) = match text.rsplit_once('@') {
            Some((login, at)) => (Some(login), at),
            None => (None, text),
        };
        let at = at.parse().map_err(|_| ProxyError::Form)?;
        Ok(Proxy { at, login: login.map(login_of).transpose()? })
    }
}

fn login_of(text: &str) -> Result<Login, ProxyError> {
    let Some((user, password)) = text.split_once(':') else {
        return Login::new(text, Password::Environment);
    };
    let password = match password.strip_prefix('@') {
        Some(file) => Password::File(file.into()),
        None => Password::Text(password.into()),
    };
    Login::new(user, password)
}

impl fmt::Display for Proxy {
    /// Writes the proxy in the user's notation, with three dots in place of a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Login { user, password }) = &self.login {
            match password {
                Password::Text(_) => write!(f, "{user}:...@")?,
                Password::File(file) => write!(f, "{user}:@{}@", file.display())?,
                Password::Environment => write!(f, "{user}@")?,
            }
        }
        self.at.fmt(f)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Password::Text(_) => f.write_str("Text(...)"),
            Password::File(file) => f.debug_tuple("File").field(file).finish(),
            Password::Environment => f.write_str("Environment"),
        }
    }
}

impl fmt::Display for ProxyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyError::Form => f.write_str(
                "this is not a proxy's address: write HOST:PORT or USER@HOST:PORT, with an IPv6 \
                 address in brackets",
            ),
            ProxyError::Length => {
                write!(f, "a proxy's user name and password have 1 to {LONGEST} bytes each")
            }
        }
    }
}

impl std::error::Error for ProxyError {}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn parse(text: &str) -> Result<Proxy, ProxyError> {
        text.parse()
    }

    #[test]
    fn what_is_written_reads_back_unless_it_holds_a_password() {
        for text in [
            "proxy.example.net:1080",
            "[2001:db8::1]:1080",
            "anna@192.0.2.1:1080",
            "anna:@secrets/proxy@192.0.2.1:1080",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_password_may_hold_what_separates_and_shows_nowhere() {
        let proxy = parse("anna:sec:ret@@example.net:1080").unwrap();
        let credentials = proxy.credentials().unwrap().unwrap();
        assert_eq!((&*credentials.user, &*credentials.password), ("anna", "sec:ret@"));
        assert_eq!(proxy.to_string(), "anna:...@example.net:1080");
        for shown in [format!("{proxy:?}"), format!("{credentials:?}")] {
            assert!(shown.contains("anna") && !shown.contains("sec"), "{shown}");
        }
    }

    #[test]
    fn a_password_is_the_first_line_of_its_file() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"from a file\nsecond line\n").unwrap();
        let proxy = parse(&format!("anna:@{}@192.0.2.1:1080", file.path().display())).unwrap();
        assert_eq!(proxy.credentials().unwrap().unwrap().password, "from a file");
        file.as_file().set_len(0).unwrap();
        assert!(matches!(proxy.credentials(), Err(ProxyFault::Password(_))), "it is empty");
    }

    #[test]
    fn a_file_that_is_not_there_is_told_by_name() {
        let proxy = parse("anna:@/nowhere/at/all@192.0.2.1:1080").unwrap();
        let message = proxy.credentials().unwrap_err().to_string();
        assert!(message.contains("'/nowhere/at/all': No such file"), "{message}");
    }

    #[test]
    fn each_mistake_has_its_own_error_and_repeats_no_password() {
        for text in ["", "1080", "host", "anna:secret@host", "2001:db8::1:1080", "a@b@:1"] {
            assert_eq!(parse(text), Err(ProxyError::Form), "{text}");
        }
        for text in ["@host:1", ":secret@host:1", "anna:@host:1", "anna:@@host:1"] {
            assert_eq!(parse(text), Err(ProxyError::Length), "{text}");
        }
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(parse(&format!("anna:{long}@host:1")), Err(ProxyError::Length));
    }
}
