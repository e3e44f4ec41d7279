//! Single-use tokens: the first bytes of a later connection, with which it joins a link.
//!
//! Both ends derive the tokens from the link's keys: token *n* is the first 16 bytes of
//! HMAC-SHA256 over *n*. To third parties, tokens are random bytes. A server looks up awaited
//! tokens in a table, so it needs no public-key operations for a token or for a stranger's bytes.

use std::collections::BTreeMap;
use std::ops::Range;

use aws_lc_rs::hmac;

use crate::secrets::Key;

/// Length of a token in bytes: 128 bits, like the tags of blocks. An attacker has one guess per
/// request. With 1,000 links, half a million of the 2^128 tokens are awaited. More bytes would
/// only make requests longer.
pub(crate) const TOKEN: usize = 16;
/// Number of tokens that a server accepts after the received token with the greatest index. It is
/// also the maximum number of earlier tokens that the server still accepts. After this many failed
/// connections in a row, a client sends its tokens again.
const AHEAD: u32 = 256;

/// A token as sent on the wire: the single-use bytes with which a later connection joins a link.
pub(crate) type Token = [u8; TOKEN];

/// HMAC key from which the tokens of a link are derived.
#[derive(Clone)]
pub(crate) struct TokenKey(hmac::Key);

impl TokenKey {
    pub(crate) fn new(key: &Key) -> TokenKey {
        TokenKey(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// Derives the token with the index `number`.
    pub(crate) fn token(&self, number: u32) -> Token {
        let tag = hmac::sign(&self.0, &number.to_be_bytes());
        std::array::from_fn(|place| tag.as_ref()[place])
    }
}

/// A client's token allocator. It issues each token once, unless 256 consecutive connections fail.
pub(crate) struct TokenAllocator {
    token_key: TokenKey,
    next: u32,
    /// One more than the greatest index of the tokens that the server has certainly accepted.
    taken: u32,
}

impl TokenAllocator {
    pub(crate) fn new(key: &Key) -> TokenAllocator {
        TokenAllocator { token_key: TokenKey::new(key), next: 0, taken: 0 }
    }

    /// Issues the next token. Returns the token's index and the token.
    ///
    /// After 256 tokens that were not accepted, issues the same tokens again. After 256 failures
    /// in a row, the server has received none of these tokens, and it awaits no others.
    pub(crate) fn allocate(&mut self) -> (u32, Token) {
        if self.next - self.taken >= AHEAD {
            self.next = self.taken;
        }
        let number = self.next;
        self.next += 1;
        (number, self.token_key.token(number))
    }

    /// Records that the server accepted the token with the index `number`.
    pub(crate) fn mark_accepted(&mut self, number: u32) {
        self.taken = self.taken.max(number.saturating_add(1));
        self.next = self.next.max(self.taken);
    }
}

/// A server's token table: the tokens that the server accepts, for all links.
#[derive(Default)]
pub(crate) struct TokenTable {
    tokens: BTreeMap<Token, (u64, u32)>,
}

/// The range of the tokens that a server accepts for a link.
pub(crate) struct LinkTokens {
    token_key: TokenKey,
    link: u64,
    /// Index below which no token of the link is accepted.
    begin: u32,
    /// One more than the greatest index of the link's accepted tokens.
    end: u32,
}

impl TokenTable {
    /// Removes a token. Returns the identifier of the token's link, and the token's index; `None`
    /// if the table has no such token.
    pub(crate) fn take(&mut self, token: &Token) -> Option<(u64, u32)> {
        self.tokens.remove(token)
    }

    /// Adds the tokens that later connections of a new link may use.
    pub(crate) fn add(&mut self, link: u64, key: &Key) -> LinkTokens {
        let mut tokens = LinkTokens { token_key: TokenKey::new(key), link, begin: 0, end: 0 };
        tokens.extend(self, AHEAD);
        tokens
    }

    /// Records that the token of a link with the index `number` was received. Adds the tokens up
    /// to 256 after it, and removes those whose index is lower by 256 or more.
    pub(crate) fn mark_received(&mut self, tokens: &mut LinkTokens, number: u32) {
        tokens.extend(self, number.saturating_add(1).saturating_add(AHEAD));
    }

    /// Keeps only the tokens whose indices differ by at most `kept` from the greatest received
    /// index. Used for a finished link.
    pub(crate) fn trim(&mut self, tokens: &mut LinkTokens, kept: u32) {
        let greatest = tokens.end.saturating_sub(AHEAD);
        let kept = greatest.saturating_sub(kept)..greatest + kept;
        for number in tokens.awaited().filter(|number| !kept.contains(number)) {
            self.tokens.remove(&tokens.token_key.token(number));
        }
        (tokens.begin, tokens.end) = (kept.start, kept.end);
    }

    /// Returns the number of tokens that the server accepts now.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Removes all tokens of a link.
    pub(crate) fn remove(&mut self, tokens: &LinkTokens) {
        for number in tokens.awaited() {
            self.tokens.remove(&tokens.token_key.token(number));
        }
    }
}

impl LinkTokens {
    /// Returns the indices of the accepted tokens. The range also contains the indices of tokens
    /// that have already arrived.
    fn awaited(&self) -> Range<u32> {
        self.begin.max(self.end.saturating_sub(2 * AHEAD))..self.end
    }

    fn extend(&mut self, awaited: &mut TokenTable, end: u32) {
        while self.end < end {
            awaited.tokens.insert(self.token_key.token(self.end), (self.link, self.end));
            if let Some(old) = self.end.checked_sub(2 * AHEAD) {
                awaited.tokens.remove(&self.token_key.token(old));
            }
            self.end += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_once() {
        let (mut awaited, mut allocator) = (TokenTable::default(), TokenAllocator::new(&[1; 32]));
        let mut tokens = awaited.add(9, &[1; 32]);
        for turn in 0..2_000 {
            let (number, token) = allocator.allocate();
            assert_eq!(number, turn);
            assert_eq!(awaited.take(&token), Some((9, number)));
            assert_eq!(awaited.take(&token), None);
            awaited.mark_received(&mut tokens, number);
            allocator.mark_accepted(number);
        }
        assert!(awaited.tokens.len() <= 2 * AHEAD as usize);
        awaited.remove(&tokens);
        assert!(awaited.tokens.is_empty());
    }

    #[test]
    fn a_link_that_is_done_awaits_few_tokens_and_takes_the_next() {
        let (mut awaited, mut allocator) = (TokenTable::default(), TokenAllocator::new(&[1; 32]));
        let mut tokens = awaited.add(9, &[1; 32]);
        let spent: Vec<_> = (0..100).map(|_| allocator.allocate()).collect();
        let (last, token) = spent[99];
        awaited.take(&token);
        awaited.mark_received(&mut tokens, last);
        awaited.trim(&mut tokens, 8);
        assert_eq!(awaited.tokens.len(), 15, "of 16 one has come");
        let (late, token) = spent[95];
        assert_eq!(awaited.take(&token), Some((9, late)));
        let (next, token) = allocator.allocate();
        assert_eq!(awaited.take(&token), Some((9, next)));
        awaited.remove(&tokens);
        assert!(awaited.tokens.is_empty());
    }

    #[test]
    fn tokens_come_in_any_order() {
        let (mut awaited, mut allocator) = (TokenTable::default(), TokenAllocator::new(&[1; 32]));
        let mut tokens = awaited.add(9, &[1; 32]);
        let mut spent: Vec<_> = (0..AHEAD).map(|_| allocator.allocate()).collect();
        spent.reverse();
        for (number, token) in spent {
            assert_eq!(awaited.take(&token), Some((9, number)));
            awaited.mark_received(&mut tokens, number);
        }
    }

    #[test]
    fn a_link_is_found_however_many_connections_came_to_nothing() {
        let (mut awaited, mut allocator) = (TokenTable::default(), TokenAllocator::new(&[1; 32]));
        let mut tokens = awaited.add(9, &[1; 32]);
        // The server accepted 40 tokens, but its answers were lost.
        for _ in 0..40 {
            let (number, token) = allocator.allocate();
            awaited.take(&token).unwrap();
            awaited.mark_received(&mut tokens, number);
        }
        (0..1_000).for_each(|_| _ = allocator.allocate());
        let tries =
            (0..2 * AHEAD).take_while(|_| awaited.take(&allocator.allocate().1).is_none()).count();
        assert!(tries < 256, "{tries}");
    }

    #[test]
    fn links_have_tokens_of_their_own() {
        let mut awaited = TokenTable::default();
        let (one, _two) = (awaited.add(1, &[1; 32]), awaited.add(2, &[2; 32]));
        assert_eq!(awaited.take(&TokenKey::new(&[2; 32]).token(3)), Some((2, 3)));
        awaited.remove(&one);
        assert_eq!(awaited.take(&TokenKey::new(&[1; 32]).token(3)), None);
        assert_eq!(awaited.take(&TokenKey::new(&[2; 32]).token(4)), Some((2, 4)));
    }
}
