//! `${NAME}` inside strings.

/// What could not be substituted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unresolved {
    /// Neither set nor given a default.
    Missing(String),
    /// `${` that begins no `${NAME}` or `${NAME:-default}`.
    Malformed,
}

/// Replaces `${NAME}` and `${NAME:-default}`; the default also stands for an empty variable, as in a shell.
/// `$${` is a literal `${`; every other `$` stays, because SQL and regular expressions use it.
pub(super) fn substitute(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Vec<Unresolved>> {
    let mut result = String::with_capacity(text.len());
    let mut unresolved = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            result.push_str(&rest[..at - 1]);
            result.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        result.push_str(&rest[..at]);
        let Some(end) = rest[at..].find('}').map(|n| at + n) else {
            unresolved.push(Unresolved::Malformed);
            return Err(unresolved);
        };
        match value(&rest[at + 2..end], env) {
            Ok(value) => result.push_str(&value),
            Err(why) => unresolved.push(why),
        }
        rest = &rest[end + 1..];
    }
    result.push_str(rest);
    if unresolved.is_empty() { Ok(result) } else { Err(unresolved) }
}

fn value(inside: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Unresolved> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let first_is_no_digit = !name.starts_with(|c: char| c.is_ascii_digit());
    if name.is_empty() || !first_is_no_digit || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(Unresolved::Malformed);
    }
    match (env(name), default) {
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(Unresolved::Missing(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Result<String, Vec<Unresolved>> {
        substitute(text, &|name| match name {
            "PW" => Some("s3cret".to_owned()),
            "EMPTY" => Some(String::new()),
            "ODD" => Some("${PW}".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn variables_defaults_and_escapes() {
        assert_eq!(with("a:${PW}@b").unwrap(), "a:s3cret@b");
        assert_eq!(with("${NOT:-x y}|${EMPTY:-z}|${EMPTY}|${PW:-z}").unwrap(), "x y|z||s3cret");
        assert_eq!(with("$${PW} $$ $1 ^a$").unwrap(), "${PW} $$ $1 ^a$");
    }

    #[test]
    fn a_value_is_not_read_again() {
        assert_eq!(with("${ODD}").unwrap(), "${PW}");
    }

    #[test]
    fn all_that_is_missing_is_named() {
        let missing = |name: &str| Unresolved::Missing(name.to_owned());
        assert_eq!(with("${A} ${PW} ${B}"), Err(vec![missing("A"), missing("B")]));
        for text in ["${", "${}", "${a b}", "${1}", "${PW"] {
            assert_eq!(with(text), Err(vec![Unresolved::Malformed]), "{text}");
        }
    }
}
