//! Compatibility test of `--json`. Programs that read the lines of earlier versions
//! (`tests/formats`) must be able to read the lines of this version.

use std::collections::BTreeMap;

use serde_json::Value;

/// Asserts that the lines `now` contain each event of `earlier`, with all members of that event.
///
/// Each line of `earlier` is compared with the first line of `now` that has the same event and the
/// same `state`. An event may have further members.
pub(crate) fn assert_readable(earlier: &str, now: &[Value]) {
    let lines = earlier.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut compared = BTreeMap::new();
    for line in lines {
        let is_same = |other: &&Value| ["event", "state"].iter().all(|m| line[m] == other[m]);
        let today = now.iter().find(is_same);
        let today = today.unwrap_or_else(|| panic!("no line of today is like {line}"));
        assert_has(&line, today, &line["event"].to_string());
        *compared.entry(line["event"].to_string()).or_insert(0) += 1;
    }
    assert!(compared.len() > 2, "{compared:?}");
}

/// Asserts that `now` has every member of `earlier`, at any depth, with a value of the same type.
/// A null on either side matches any type. Of arrays, only the first items are compared. `place`
/// is the member's position, for error messages.
fn assert_has(earlier: &Value, now: &Value, place: &str) {
    match (earlier, now) {
        (Value::Object(earlier), Value::Object(now)) => {
            for (name, value) in earlier {
                let place = format!("{place}.{name}");
                let today = now.get(name).unwrap_or_else(|| panic!("{place} is gone"));
                assert_has(value, today, &place);
            }
        }
        (Value::Array(earlier), Value::Array(now)) => {
            if let (Some(earlier), Some(now)) = (earlier.first(), now.first()) {
                assert_has(earlier, now, &format!("{place}[]"));
            }
        }
        (Value::Null, _) | (_, Value::Null) => {}
        _ => assert_eq!(type_of(earlier), type_of(now), "{place}: {earlier}, {now}"),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const EARLIER: &str = "{\"event\":\"a\",\"paths\":[{\"name\":\"x\"}]}\n{\"event\":\"b\"}\n\
        {\"event\":\"c\",\"state\":\"up\"}\n";

    fn today(path: Value, state: &str) -> [Value; 3] {
        let a = json!({"event": "a", "more": 1, "paths": [path]});
        [a, json!({"event": "b"}), json!({"event": "c", "state": state})]
    }

    #[test]
    fn further_members_are_no_breach() {
        assert_readable(EARLIER, &today(json!({"name": "y", "more": 1}), "up"));
    }

    #[test]
    #[should_panic(expected = "\"a\".paths[].name is gone")]
    fn a_member_that_is_gone_is_found() {
        assert_readable(EARLIER, &today(json!({}), "up"));
    }

    #[test]
    #[should_panic(expected = "\"a\".paths[].name: ")]
    fn a_member_of_another_type_is_found() {
        assert_readable(EARLIER, &today(json!({"name": 7}), "up"));
    }

    #[test]
    #[should_panic(expected = "no line of today is like")]
    fn an_event_that_is_gone_is_found() {
        assert_readable(EARLIER, &today(json!({"name": "y"}), "down"));
    }
}
