//! What a misspelt name was meant to be.

/// The name that `text` was probably meant to be: at most a third of its letters differ.
pub(super) fn nearest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    names
        .map(|name| (distance(text, name), name))
        .filter(|(distance, name)| *distance * 3 <= name.len().max(3))
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = usize::from(x != *y);
            let next = (row[j] + 1).min(row[j + 1] + 1).min(diagonal + cost);
            diagonal = row[j + 1];
            row[j + 1] = next;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_told_from_another_word() {
        let names = ["retention", "transaction_timeout", "url", "pool"];
        let near = |text| nearest(text, names.into_iter());
        assert_eq!(near("retentoin"), Some("retention"));
        assert_eq!(near("transaction_time_out"), Some("transaction_timeout"));
        assert_eq!(near("uri"), Some("url"));
        assert_eq!(near("password"), None);
        assert_eq!(near(""), None);
    }
}
