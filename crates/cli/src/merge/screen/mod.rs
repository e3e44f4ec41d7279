//! Output of a far end: a live view on a terminal, lines for a log, or JSON objects.

mod json;
mod live;
mod model;
mod plain;
mod posting;

use std::io;

use anabranch_splitter::far_end::INTERFACE;
use anabranch_splitter::merge::{News, Screen};

use super::options::Options;
use crate::screen::has_terminal;
pub(super) use posting::PublishingScreen;

/// Returns the screen that suits `options` and the type of standard output.
///
/// # Errors
/// The writer threads cannot be started.
pub(super) fn of(options: &Options) -> io::Result<Box<dyn Screen>> {
    if options.json {
        return Ok(Box::new(json::Json::new(options.name.clone())?));
    }
    let plain = plain::PlainScreen::new(options.quiet, options.verbose, options.name.as_deref())?;
    if options.quiet || !has_terminal() {
        return Ok(Box::new(plain));
    }
    Ok(Box::new(live::LiveScreen::new(plain, options.name.clone())))
}

/// Describes the event `news` in a line of text.
fn words(news: &News) -> String {
    match news {
        News::Began { client, from, server } if server.is_empty() => {
            format!("client '{client}' connected from {from}")
        }
        News::Began { client, from, server } => {
            format!("client '{client}' connected from {from} to '{server}'")
        }
        News::NoServer { client, server } if server.is_empty() => {
            format!(
                "client '{client}' has not chosen one of the servers: start the client's splitter \
                 with --behind NAME"
            )
        }
        News::NoServer { client, server } if server == INTERFACE => {
            format!(
                "client '{client}' sends IP packets, but this far end has no interface for them: \
                 add --tun NAME"
            )
        }
        News::NoServer { client, server } => {
            format!(
                "client '{client}' asks for the server '{server}', but no --to of this far end \
                 has this name: correct --to, or --behind of the client's splitter"
            )
        }
        News::Ended { client } => format!("client '{client}' disconnected"),
        News::PathUp { client, path, from } => {
            format!("client '{client}': path {path} up, from {from}")
        }
        News::PathDown { client, path } => {
            format!("client '{client}': path {path} down")
        }
        News::ServerRefused { server } => {
            format!("no server listens at {server}: its port is closed")
        }
    }
}

fn is_warning(news: &News) -> bool {
    matches!(news, News::NoServer { .. } | News::ServerRefused { .. })
}
