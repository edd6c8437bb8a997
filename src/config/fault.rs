//! What is wrong with a configuration file, where, and what to do about it.

use std::fmt;

/// One fault, or one warning, of one file.
///
/// A message never holds a secret value: texts are quoted as written in the file (before substitution),
/// and those of secret-bearing settings not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub file: String,
    /// Counted from one; absent where the fault is in no line (a missing file, a clash of two files).
    pub line: Option<usize>,
    /// `route[1].effect.steps[0].sql`; empty for the file itself. Lists count from zero.
    pub path: String,
    /// What is wrong and how to mend it, in lower case.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// All faults of all files; never empty where it is returned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults(Vec<Fault>);

impl Faults {
    pub fn iter(&self) -> std::slice::Iter<'_, Fault> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn append(&mut self, mut other: Faults) {
        self.0.append(&mut other.0);
    }

    /// In the order of the file, so that a reader mends from top to bottom.
    pub(super) fn sort_by_line(&mut self) {
        self.0.sort_by_key(|fault| fault.line.unwrap_or(0));
    }
}

impl<'a> IntoIterator for &'a Faults {
    type Item = &'a Fault;
    type IntoIter = std::slice::Iter<'a, Fault>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One line each.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_one_line_with_its_place() {
        let mut faults = Faults::default();
        faults.push(Fault {
            file: "a.toml".into(),
            line: Some(7),
            path: "kafka.topics".into(),
            message: "is missing".into(),
        });
        faults.push(Fault { file: "b.toml".into(), line: None, path: String::new(), message: "no such file".into() });
        assert_eq!(faults.to_string(), "a.toml:7: kafka.topics: is missing\nb.toml: no such file");
    }
}
