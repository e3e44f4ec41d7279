//! References in an HTML page to paths on the same site.

use html5gum::{Token, Tokenizer};

/// Returns two lists of paths on the site of the page `html`. The first list has the pictures,
/// scripts, styles and media of the page, and the second list the targets of its `a` elements.
/// Both lists are in document order, without duplicates. `base` is the page's own path.
pub(super) fn parts(base: &str, html: &str) -> (Vec<String>, Vec<String>) {
    let (mut parts, mut links) = (Vec::new(), Vec::new());
    for token in Tokenizer::new(html) {
        let Ok(Token::StartTag(tag)) = token else { continue };
        let name = String::from_utf8_lossy(&tag.name).into_owned();
        let value = |key: &[u8]| {
            let found = tag.attributes.get(key)?;
            Some(String::from_utf8_lossy(found).into_owned())
        };
        let (key, to_page) = match &*name {
            "img" | "script" | "source" | "video" | "audio" | "track" | "embed" => ("src", false),
            "link" => ("href", false),
            "a" => ("href", true),
            _ => continue,
        };
        let Some(path) = value(key.as_bytes()).and_then(|path| local(base, &path)) else {
            continue;
        };
        let list = if to_page { &mut links } else { &mut parts };
        if !list.contains(&path) {
            list.push(path);
        }
    }
    (parts, links)
}

/// Resolves `reference`, found in the page `base`, to a path on the same site, without query and
/// fragment. Returns `None` for references to other sites, and for references to the page itself.
fn local(base: &str, reference: &str) -> Option<String> {
    let path = reference.trim().split(['?', '#']).next().unwrap_or_default();
    if path.is_empty() || path.contains(':') || path.starts_with("//") {
        return None;
    }
    let folder = base.rsplit_once('/').map_or("", |(folder, _)| folder);
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{folder}/{path}") };
    let mut names: Vec<&str> = Vec::new();
    for name in whole.split('/').skip(1) {
        match name {
            "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    Some(format!("/{}", names.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_its_parts_in_order_and_the_pages_that_it_leads_to() {
        let html = "<!doctype html><link rel=stylesheet href=../s.css?v=1><img src='a.jpg'>\
            <script src=\"/js/x.js\"></script><img src=a.jpg><img src=https://b/c.jpg>\
            <a href=next.html#top>on</a><a href='mailto:x'>x</a><img><img src=''><img src=//c/d>";
        let (parts, links) = parts("/blog/one.html", html);
        assert_eq!(parts, ["/s.css", "/blog/a.jpg", "/js/x.js"]);
        assert_eq!(links, ["/blog/next.html"]);
        assert_eq!(local("/", "../../x"), Some("/x".to_owned()));
    }
}
