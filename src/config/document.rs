//! A TOML file as a tree of values, with the line of each, its `${ENV}` filled in and its secrets read.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::fault::{Fault, Faults};
use super::node::{Node, with_whole_names};
use super::substitute::{Unresolved, substitute};

/// Where things stand in a file, for messages.
#[derive(Debug)]
pub(super) struct Document {
    file: String,
    lines: BTreeMap<String, usize>,
    /// Strings as written, so that a message can quote one without what the environment put into it.
    written: BTreeMap<String, String>,
}

impl Document {
    /// Reads `text`. A file that is no TOML has no tree.
    pub(super) fn read(
        text: &str,
        file: &str,
        env: &dyn Fn(&str) -> Option<String>,
        faults: &mut Faults,
    ) -> (Self, Option<Node>) {
        let document = Self { file: file.to_owned(), lines: BTreeMap::new(), written: BTreeMap::new() };
        let newlines: Vec<usize> = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(n, _)| n).collect();
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            faults.push(Fault {
                file: file.to_owned(),
                line: error.span().map(|span| line_of(&newlines, span.start)),
                path: String::new(),
                // Only the message: the error's Display shows the line of the file, which may hold a secret.
                message: format!("not valid TOML: {}", error.message().replace('\n', ", ")),
            });
        }
        if !errors.is_empty() {
            return (document, None);
        }
        let mut reader = Reader { document, newlines, env, faults };
        let tree = reader.table(table.get_ref(), "");
        (reader.document, Some(tree))
    }

    /// A fault is one line, whatever stands in a quoted key or in another's message.
    pub(super) fn fault(&self, path: &str, message: impl Into<String>) -> Fault {
        let one_line = |text: &str| text.replace(char::is_control, " ");
        Fault {
            file: self.file.clone(),
            line: self.line(path),
            path: one_line(path),
            message: one_line(&message.into()),
        }
    }

    /// A string as written in the file, between backticks; secret-bearing settings are never quoted.
    pub(super) fn quote(&self, path: &str) -> String {
        match self.written.get(path) {
            Some(_) if is_secret(path) => "this value".to_owned(),
            Some(text) if text.contains('\n') || text.chars().count() > 120 => "this text".to_owned(),
            Some(text) => format!("`{text}`"),
            None => "this value".to_owned(),
        }
    }

    /// The line of a path, or of the nearest part of it that the file has.
    fn line(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// Settings that may hold a secret: never quoted, and read from a file where they say `file:/path`.
pub(super) fn is_secret(path: &str) -> bool {
    matches!(
        path,
        "store.url"
            | "gate.url"
            | "registry.url"
            | "registry.username"
            | "registry.password"
            | "registry.token"
            | "http.read_token"
            | "http.operate_token"
    ) || path.starts_with("kafka.options.")
}

struct Reader<'a> {
    document: Document,
    newlines: Vec<usize>,
    env: &'a dyn Fn(&str) -> Option<String>,
    faults: &'a mut Faults,
}

impl Reader<'_> {
    fn table(&mut self, table: &DeTable<'_>, path: &str) -> Node {
        let mut nodes = BTreeMap::new();
        for (key, value) in table.iter() {
            let name: &str = key.get_ref();
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            self.document.lines.insert(path.clone(), line_of(&self.newlines, key.span().start));
            nodes.insert(name.to_owned(), self.value(value.get_ref(), &path));
        }
        Node::Table(with_whole_names(nodes, path))
    }

    fn value(&mut self, value: &DeValue<'_>, path: &str) -> Node {
        match value {
            DeValue::Table(table) => self.table(table, path),
            DeValue::Array(items) => Node::List(
                items
                    .iter()
                    .enumerate()
                    .map(|(n, item)| {
                        let path = format!("{path}[{n}]");
                        self.document.lines.insert(path.clone(), line_of(&self.newlines, item.span().start));
                        self.value(item.get_ref(), &path)
                    })
                    .collect(),
            ),
            DeValue::String(text) => self.text(text, path),
            DeValue::Datetime(date) => Node::Text { text: date.to_string(), substituted: false },
            DeValue::Boolean(boolean) => Node::Boolean(*boolean),
            DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
                Ok(number) => Node::Integer(number),
                Err(_) => self.broken(path, "the number does not fit in 64 bits"),
            },
            DeValue::Float(digits) => match digits.as_str().parse() {
                Ok(number) => Node::Float(number),
                Err(_) => self.broken(path, "this is no number"),
            },
        }
    }

    fn text(&mut self, written: &str, path: &str) -> Node {
        self.document.written.insert(path.to_owned(), written.to_owned());
        let text = match substitute(written, self.env) {
            Ok(text) => text,
            Err(unresolved) => {
                for why in unresolved {
                    let message = match why {
                        Unresolved::Missing(name) => {
                            format!("the environment has no `{name}`: set it, or write `${{{name}:-default}}`")
                        }
                        Unresolved::Malformed => "`${` begins no `${NAME}` or `${NAME:-default}`: write `$${` for the \
                                                  characters themselves"
                            .to_owned(),
                    };
                    self.broken(path, message);
                }
                return Node::Broken;
            }
        };
        match text.strip_prefix("file:").filter(|_| is_secret(path)) {
            Some(place) => self.secret_file(place, path),
            None => Node::Text { substituted: text != written, text },
        }
    }

    fn secret_file(&mut self, place: &str, path: &str) -> Node {
        let place = place.strip_prefix("//").unwrap_or(place);
        if !Path::new(place).is_absolute() {
            return self.broken(path, "`file:` takes an absolute path: write `file:/path/to/secret`");
        }
        match std::fs::read_to_string(place) {
            Ok(text) if text.trim().is_empty() => self.broken(path, format!("the secret file {place} is empty")),
            Ok(text) => Node::Text { text: text.trim().to_owned(), substituted: true },
            Err(error) => self.broken(path, format!("the secret file {place} cannot be read: {error}")),
        }
    }

    fn broken(&mut self, path: &str, message: impl Into<String>) -> Node {
        self.faults.push(self.document.fault(path, message));
        Node::Broken
    }
}

fn line_of(newlines: &[usize], offset: usize) -> usize {
    newlines.partition_point(|newline| *newline < offset) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Document, Option<Node>, Faults) {
        let mut faults = Faults::default();
        let env = |name: &str| (name == "PW").then(|| "s3cret".to_owned());
        let (document, node) = Document::read(text, "a.toml", &env, &mut faults);
        (document, node, faults)
    }

    #[test]
    fn every_value_knows_its_line() {
        let (document, ..) =
            read("[a]\nb = 1\n\n[[route]]\nx = 1\n[[route]]\nmatch = { t = 1, h.u = 2 }\nl = [\n 1,\n 2,\n]");
        for (path, line) in
            [("a", 1), ("a.b", 2), ("route[0]", 4), ("route[1]", 6), ("route[1].match.h.u", 7), ("route[1].l[1]", 10)]
        {
            assert_eq!(document.line(path), Some(line), "{path}");
        }
        assert_eq!(document.line("route[1].effect.kind"), Some(6));
        assert_eq!(document.line("nowhere"), None);
    }

    #[test]
    fn dotted_names_of_options_stay_whole() {
        let (document, node, _) = read("[kafka.options]\nsecurity.protocol = \"SSL\"\n\"ssl.ca.location\" = \"x\"");
        let value = node.unwrap().into_value().unwrap();
        let options = value["kafka"]["options"].as_table().unwrap();
        assert_eq!(options.keys().collect::<Vec<_>>(), ["security.protocol", "ssl.ca.location"]);
        assert_eq!(document.line("kafka.options.security.protocol"), Some(2));
    }

    #[test]
    fn secrets_come_from_files_and_the_environment_and_are_not_quoted() {
        let place = std::env::temp_dir().join(format!("countersign-secret-{}", std::process::id()));
        std::fs::write(&place, " s3cret\n").unwrap();
        let text = format!("[http]\nread_token = \"file:{}\"\n[store]\nurl = \"x:${{PW}}\"", place.display());
        let (document, node, faults) = read(&text);
        std::fs::remove_file(&place).unwrap();
        let value = node.unwrap().into_value().unwrap();
        assert!(faults.is_empty());
        assert_eq!(value["http"]["read_token"].as_str(), Some("s3cret"));
        assert_eq!(value["store"]["url"].as_str(), Some("x:s3cret"));
        assert_eq!(document.quote("store.url"), "this value");
    }

    #[test]
    fn what_cannot_be_filled_in_is_a_fault() {
        let (_, _, faults) = read(
            "[http]\nread_token = \"file:/nowhere/at/all\"\noperate_token = \"file:x\"\n[a]\nb = \"${A}${B}\"\nc = \"${\"",
        );
        let text = faults.to_string();
        assert_eq!(faults.len(), 5, "{text}");
        assert!(text.contains("a.toml:2: http.read_token: the secret file /nowhere/at/all cannot be read"), "{text}");
        assert!(text.contains("a.toml:3: http.operate_token: `file:` takes an absolute path"), "{text}");
        assert!(text.contains("a.toml:5: a.b: the environment has no `A`"), "{text}");
        assert!(text.contains("a.toml:5: a.b: the environment has no `B`"), "{text}");
        assert!(text.contains("a.toml:6: a.c: `${` begins no"), "{text}");
    }

    #[test]
    fn what_is_no_toml_is_told_with_its_line_and_without_its_text() {
        let (_, node, faults) = read("[a]\nb = \"hunter2\nc = 1\n[a]\n");
        assert!(node.is_none());
        let text = faults.to_string();
        assert!(text.starts_with("a.toml:2: not valid TOML: "), "{text}");
        assert!(text.contains("a.toml:4: not valid TOML: "), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}
