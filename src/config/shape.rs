//! Holds a file against the JSON Schema of the configuration, and reports every place where it does not fit.
//!
//! Serde stops at its first error; here what does not fit is reported and taken out, so that the rest can
//! be deserialised and checked in the same run.

use std::collections::BTreeMap;

use serde_json::Value;

use super::document::Document;
use super::fault::Faults;
use super::node::Node;
use super::spelling::nearest;

/// Takes out of `root` all that does not fit. Returns the paths about which nothing more needs saying.
pub(super) fn fit(root: &mut Node, schema: &Value, document: &Document, faults: &mut Faults) -> Vec<String> {
    let mut fitter = Fitter { document, faults, settled: Vec::new() };
    fitter.node(root, schema, "");
    fitter.settled
}

/// Values that are part of the contract, but not of this version.
const LATER: [(&str, &str); 2] = [("kind", "http"), ("format", "avro")];

struct Fitter<'a> {
    document: &'a Document,
    faults: &'a mut Faults,
    settled: Vec<String>,
}

impl Fitter<'_> {
    /// Whether the node may stay.
    fn node(&mut self, node: &mut Node, schema: &Value, path: &str) -> bool {
        if *node == Node::Broken {
            self.settled.push(path.to_owned());
            return false;
        }
        coerce(node, schema);
        let branches = branches(schema);
        let Some(schema) = branches.iter().find(|branch| accepts_kind(branch, node)).copied() else {
            let wanted: Vec<String> = branches.iter().flat_map(|branch| kinds(branch)).collect();
            return self.reject(path, format!("must be {}, not {}", one_of(&wanted), node.kind()));
        };
        match node {
            Node::Table(table) => match tagged(&branches, table) {
                Tagged::No => self.table(table, schema, path),
                Tagged::Branch(schema) => self.table(table, schema, path),
                Tagged::Unknown { tag, allowed } => self.tag(table, tag, &allowed, path),
            },
            Node::List(items) => self.list(items, schema, path),
            Node::Text { text, .. } => {
                let allowed: Vec<&str> = branches.iter().flat_map(|branch| allowed_texts(branch)).collect();
                allowed.is_empty() || allowed.contains(&text.as_str()) || self.reject_text(path, text, &allowed)
            }
            Node::Integer(number) => self.range(*number as f64, schema, path),
            Node::Float(number) => self.range(*number, schema, path),
            Node::Boolean(_) | Node::Broken => true,
        }
    }

    fn table(&mut self, table: &mut BTreeMap<String, Node>, schema: &Value, path: &str) -> bool {
        let known = schema["properties"].as_object();
        table.retain(|key, node| {
            let path = join(path, key);
            match known.and_then(|known| known.get(key)).or(schema.get("additionalProperties")) {
                None | Some(Value::Bool(true)) => true,
                Some(Value::Bool(false)) => {
                    let names = known.into_iter().flat_map(|known| known.keys()).map(String::as_str);
                    let message = match nearest(key, names.clone()) {
                        Some(name) => format!("unknown key: do you mean `{name}`?"),
                        None => format!("unknown key: here stand {}", names.collect::<Vec<_>>().join(", ")),
                    };
                    self.faults.push(self.document.fault(&path, message));
                    false
                }
                Some(schema) => self.node(node, schema, &path),
            }
        });
        for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let path = join(path, key);
            if !table.contains_key(key) && !self.settled.contains(&path) {
                let schema = known.and_then(|known| known.get(key)).unwrap_or(&Value::Null);
                self.reject(&path, format!("is missing: {}{}", remedy(schema, &path), summary(schema)));
            }
        }
        true
    }

    /// A bad item takes its list with it, unless it is a table: those are counted in the paths of later faults.
    fn list(&mut self, items: &mut [Node], schema: &Value, path: &str) -> bool {
        let mut whole = true;
        for (n, item) in items.iter_mut().enumerate() {
            if !self.node(item, &schema["items"], &format!("{path}[{n}]")) {
                *item = Node::Table(BTreeMap::new());
                whole &= schema["items"]["type"] == "object";
            }
        }
        if !whole {
            self.settled.push(path.to_owned());
        } else if schema["minItems"].as_u64().is_some_and(|least| (items.len() as u64) < least) {
            return self.reject(path, "must have at least one entry");
        }
        whole
    }

    fn tag(&mut self, table: &mut BTreeMap<String, Node>, tag: &str, allowed: &[&str], path: &str) -> bool {
        let place = join(path, tag);
        match table.get(tag) {
            None => self.reject(&place, format!("is missing: one of {}", allowed.join(", "))),
            Some(Node::Text { text, .. }) => self.reject_text(&place, text, allowed),
            Some(Node::Broken) => false,
            Some(other) => self.reject(&place, format!("must be a text, not {}", other.kind())),
        };
        self.settled.push(path.to_owned());
        false
    }

    fn range(&mut self, number: f64, schema: &Value, path: &str) -> bool {
        let least = schema["minimum"].as_f64();
        let most = schema["maximum"].as_f64();
        let fits = least.is_none_or(|least| number >= least) && most.is_none_or(|most| number <= most);
        fits || self.reject(
            path,
            match (least, most) {
                (Some(least), Some(most)) => format!("must be from {least} to {most}"),
                (Some(least), None) => format!("must be at least {least}"),
                (None, most) => format!("must be at most {}", most.unwrap_or(f64::MAX)),
            },
        )
    }

    fn reject_text(&mut self, path: &str, text: &str, allowed: &[&str]) -> bool {
        let key = path.rsplit('.').next().unwrap_or(path);
        let quoted = self.document.quote(path);
        let message = if LATER.contains(&(key, text)) {
            format!("{quoted} is not available in this version: use {}", one_of(allowed))
        } else {
            match nearest(text, allowed.iter().copied()) {
                Some(name) => format!("{quoted} is unknown: do you mean `{name}`?"),
                None => format!("{quoted} is unknown: write {}", one_of(allowed)),
            }
        };
        self.reject(path, message)
    }

    fn reject(&mut self, path: &str, message: impl Into<String>) -> bool {
        self.faults.push(self.document.fault(path, message));
        self.settled.push(path.to_owned());
        false
    }
}

/// A text from the environment becomes the number or boolean that is wanted in its place.
fn coerce(node: &mut Node, schema: &Value) {
    let Node::Text { text, substituted: true } = node else {
        return;
    };
    let wanted = kinds_of_type(schema);
    if wanted.contains(&"string") {
        return;
    }
    let value = match wanted.first() {
        Some(&"integer") => text.trim().parse().map(Node::Integer).ok(),
        Some(&"number") => text.trim().parse().map(Node::Float).ok(),
        Some(&"boolean") => text.trim().parse().map(Node::Boolean).ok(),
        _ => None,
    };
    if let Some(value) = value {
        *node = value;
    }
}

/// The alternatives of a schema; one that has none is its own.
fn branches(schema: &Value) -> Vec<&Value> {
    match schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        Some(branches) => branches.iter().collect(),
        None => vec![schema],
    }
}

enum Tagged<'a> {
    /// No alternatives of tables.
    No,
    Branch(&'a Value),
    Unknown {
        tag: &'a str,
        allowed: Vec<&'a str>,
    },
}

/// Which alternative a table is, by the property that is constant in each.
fn tagged<'a>(branches: &[&'a Value], table: &BTreeMap<String, Node>) -> Tagged<'a> {
    let tags: Vec<(&str, &str, &Value)> = branches
        .iter()
        .filter_map(|branch| {
            branch["properties"]
                .as_object()?
                .iter()
                .find_map(|(key, schema)| Some((key.as_str(), schema["const"].as_str()?, *branch)))
        })
        .collect();
    let Some((tag, ..)) = tags.first() else {
        return Tagged::No;
    };
    let kind = match table.get(*tag) {
        Some(Node::Text { text, .. }) => text.as_str(),
        _ => "",
    };
    match tags.iter().find(|(_, name, _)| *name == kind) {
        Some((_, _, branch)) => Tagged::Branch(branch),
        None => Tagged::Unknown { tag, allowed: tags.iter().map(|(_, name, _)| *name).collect() },
    }
}

fn kinds_of_type(schema: &Value) -> Vec<&str> {
    match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn accepts_kind(schema: &Value, node: &Node) -> bool {
    let kinds = kinds_of_type(schema);
    let fits = |kind: &&str| match *kind {
        "object" => matches!(node, Node::Table(_)),
        "array" => matches!(node, Node::List(_)),
        "string" => matches!(node, Node::Text { .. }),
        "integer" => matches!(node, Node::Integer(_)),
        "number" => matches!(node, Node::Integer(_) | Node::Float(_)),
        "boolean" => matches!(node, Node::Boolean(_)),
        _ => false,
    };
    kinds.is_empty() || kinds.iter().any(fits)
}

fn kinds(schema: &Value) -> Vec<String> {
    let name = |kind: &str| match kind {
        "object" => "a table".to_owned(),
        "array" => "a list".to_owned(),
        "string" => "a text".to_owned(),
        "integer" => "an integer".to_owned(),
        other => format!("a {other}"),
    };
    kinds_of_type(schema).into_iter().map(name).collect()
}

fn allowed_texts(schema: &Value) -> Vec<&str> {
    let listed = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
    listed.chain(schema["const"].as_str()).collect()
}

/// How to add what is missing.
fn remedy(schema: &Value, path: &str) -> String {
    match (schema["type"].as_str(), schema["items"]["type"].as_str()) {
        (Some("object"), _) => format!("add [{path}]"),
        (Some("array"), Some("object")) => format!("add a [[{path}]]"),
        _ => "set it".to_owned(),
    }
}

/// The first part of a description, in lower case as messages are.
fn summary(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    let text = text.split(';').next().unwrap_or_default();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => format!(" ({}{})", first.to_lowercase(), letters.as_str()),
        None => String::new(),
    }
}

fn one_of<S: AsRef<str>>(names: &[S]) -> String {
    let mut names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    names.dedup();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        Some((last, _)) => (*last).to_owned(),
        None => "nothing".to_owned(),
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
