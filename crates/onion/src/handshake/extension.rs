//! What client and relay say inside ntor-v3: extensions (proposal 324, section 10.3).

use super::Refused;
use crate::wire::extend::{self, Extension};

/// What the two ends of a circuit agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Cells that one SENDME stands for, if congestion control is used (proposal 324); `None` for fixed windows.
    pub sendme_inc: Option<u8>,
}

/// A client's message: whether it wants congestion control.
pub fn request(congestion_control: bool) -> Vec<u8> {
    let wanted = congestion_control.then_some(Extension::CongestionRequest);
    extend::put_extensions(wanted.as_slice())
}

/// A relay's answer to a client's message, and what is thereby agreed; `sendme_inc` is the consensus' parameter, `None` where the
/// consensus does not want congestion control.
///
/// # Errors
/// [`Refused::Malformed`], or [`Refused::Unsupported`] for subprotocols, none of which we do.
pub fn answer(message: &[u8], sendme_inc: Option<u8>) -> Result<(Vec<u8>, Agreed), Refused> {
    let asked = extend::read_requests(message).ok_or(Refused::Malformed)?;
    if asked.contains(&Extension::Subprotocols) {
        return Err(Refused::Unsupported);
    }
    let wanted = asked.contains(&Extension::CongestionRequest);
    let agreed = Agreed { sendme_inc: sendme_inc.filter(|_| wanted) };
    let said = agreed.sendme_inc.map(Extension::CongestionAnswer);
    Ok((extend::put_extensions(said.as_slice()), agreed))
}

/// What a relay's message says was agreed. `sendme_inc` is the consensus' parameter, to which the relay's may be at most twice and at least
/// half (proposal 324, section 10.3).
///
/// # Errors
/// [`Refused::Malformed`] if it cannot be read, or says what was not asked for.
pub fn read_answer(message: &[u8], asked: bool, sendme_inc: u8) -> Result<Agreed, Refused> {
    let said = extend::read_answers(message).ok_or(Refused::Malformed)?;
    let granted = said.iter().find_map(|extension| match extension {
        Extension::CongestionAnswer(sendme_inc) => Some(*sendme_inc),
        _ => None,
    });
    let Some(granted) = granted else { return Ok(Agreed::default()) };
    let (low, high) = (sendme_inc.div_ceil(2).max(1), sendme_inc.saturating_mul(2));
    if !asked || !(low..=high).contains(&granted) {
        return Err(Refused::Malformed);
    }
    Ok(Agreed { sendme_inc: Some(granted) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn congestion_control_is_used_where_both_want_it() {
        for (wanted, offered) in [(true, Some(31)), (true, None), (false, Some(31))] {
            let (answer, agreed) = answer(&request(wanted), offered).unwrap();
            assert_eq!(agreed.sendme_inc, offered.filter(|_| wanted));
            assert_eq!(read_answer(&answer, wanted, 31), Ok(agreed));
        }
    }

    #[test]
    fn an_answer_that_was_not_asked_for_or_is_far_off_is_refused() {
        let (said, _) = answer(&request(true), Some(31)).unwrap();
        assert_eq!(read_answer(&said, false, 31), Err(Refused::Malformed));
        let (said, _) = answer(&request(true), Some(63)).unwrap();
        assert_eq!(read_answer(&said, true, 31), Err(Refused::Malformed));
        let (said, _) = answer(&request(true), Some(15)).unwrap();
        assert_eq!(read_answer(&said, true, 31), Err(Refused::Malformed));
    }

    #[test]
    fn a_subprotocol_request_is_refused() {
        let asked = [1, 3, 2, 2, 6];
        assert_eq!(answer(&asked, Some(31)).err(), Some(Refused::Unsupported));
    }
}
