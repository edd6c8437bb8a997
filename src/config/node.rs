//! The values of a file, loosely typed.

use std::collections::BTreeMap;

use toml::Value;

/// A value of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Table(BTreeMap<String, Node>),
    List(Vec<Node>),
    /// Dates are texts too.
    Text {
        text: String,
        /// From the environment: such a text may stand where a number or a boolean is wanted.
        substituted: bool,
    },
    Integer(i64),
    Float(f64),
    Boolean(bool),
    /// Reported already; nothing more is said about it.
    Broken,
}

impl Node {
    /// What a message calls it.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Table(_) => "a table",
            Self::List(_) => "a list",
            Self::Text { .. } => "a text",
            Self::Integer(_) => "an integer",
            Self::Float(_) => "a number",
            Self::Boolean(_) => "a boolean",
            Self::Broken => "nothing",
        }
    }

    /// For deserialising; broken parts are left out, which checks of the shape have made optional.
    pub(super) fn into_value(self) -> Option<Value> {
        Some(match self {
            Self::Table(table) => {
                Value::Table(table.into_iter().filter_map(|(key, node)| Some((key, node.into_value()?))).collect())
            }
            Self::List(items) => Value::Array(items.into_iter().filter_map(Self::into_value).collect()),
            Self::Text { text, .. } => Value::String(text),
            Self::Integer(number) => Value::Integer(number),
            Self::Float(number) => Value::Float(number),
            Self::Boolean(boolean) => Value::Boolean(boolean),
            Self::Broken => return None,
        })
    }
}

/// Names with dots, which TOML takes apart: put together again where a table's keys are such names.
/// Paths in messages read the same either way.
pub(super) fn with_whole_names(nodes: BTreeMap<String, Node>, path: &str) -> BTreeMap<String, Node> {
    let of_route = |end: &str| path.starts_with("route[") && path.ends_with(end);
    if path == "kafka.options" || [MATCH_HEADER, MATCH_VALUE, "].columns"].into_iter().any(of_route) {
        flatten(nodes)
    } else if of_route("].match") {
        unquoted(nodes)
    } else {
        nodes
    }
}

const MATCH_HEADER: &str = "].match.header";
const MATCH_VALUE: &str = "].match.value";

fn flatten(nodes: BTreeMap<String, Node>) -> BTreeMap<String, Node> {
    let mut flat = BTreeMap::new();
    for (name, node) in nodes {
        match node {
            Node::Table(inner) if !inner.is_empty() => {
                flat.extend(flatten(inner).into_iter().map(|(key, node)| (format!("{name}.{key}"), node)));
            }
            leaf => {
                flat.insert(name, leaf);
            }
        }
    }
    flat
}

/// `"header.x" = …` means `header.x = …`.
fn unquoted(nodes: BTreeMap<String, Node>) -> BTreeMap<String, Node> {
    let mut whole = BTreeMap::new();
    let mut quoted = Vec::new();
    for (name, node) in nodes {
        match name.split_once('.') {
            Some((table @ ("header" | "value"), key)) => quoted.push((table.to_owned(), key.to_owned(), node)),
            Some(_) | None => {
                whole.insert(name, node);
            }
        }
    }
    for (table, key, node) in quoted {
        if let Node::Table(inner) = whole.entry(table).or_insert_with(|| Node::Table(BTreeMap::new())) {
            inner.insert(key, node);
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(entries: &[(&str, Node)]) -> BTreeMap<String, Node> {
        entries.iter().map(|(name, node)| ((*name).to_owned(), node.clone())).collect()
    }

    #[test]
    fn names_with_dots_are_whole_where_names_have_dots() {
        let one = Node::Integer(1);
        let nested = table(&[("a", Node::Table(table(&[("b", Node::Table(table(&[("c", one.clone())])))])))]);
        for path in ["kafka.options", "route[0].match.header", "route[3].match.value", "route[0].columns"] {
            assert_eq!(with_whole_names(nested.clone(), path), table(&[("a.b.c", one.clone())]), "{path}");
        }
        for path in ["", "kafka", "route[0]", "route[0].effect.rename"] {
            assert_eq!(with_whole_names(nested.clone(), path), nested, "{path}");
        }
    }

    #[test]
    fn quoted_names_in_a_match_are_those_of_headers_and_values() {
        let one = Node::Integer(1);
        let quoted = table(&[("header.a.b", one.clone()), ("topic", one.clone()), ("x.y", one.clone())]);
        let header = Node::Table(table(&[("a.b", one.clone())]));
        let wanted = table(&[("header", header), ("topic", one.clone()), ("x.y", one)]);
        assert_eq!(with_whole_names(quoted, "route[0].match"), wanted);
    }
}
