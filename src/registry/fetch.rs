//! A schema with everything that it refers to, each text once.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use super::address::{Api, Base, Node};
use super::answer::{Text, Unusable, apicurio_references, apicurio_text, avro, confluent_text};
use super::error::RegistryError;
use super::http::{Body, Failed, Http};
use super::options::Missing;
use crate::debezium::event::Fault;

/// A schema with more than this is none that a connector registers.
const MOST_TEXTS: usize = 500;
const MOST_BYTES: usize = 32 << 20;
/// For all requests about one id, beside the pauses for a replica that is behind.
pub(super) const MOST_TIMEOUTS: u32 = 4;

/// One API of one registry.
pub(super) struct Way<'a> {
    pub http: &'a Http,
    pub api: Api,
    pub base: &'a Base,
}

/// The texts of one schema.
#[derive(Debug)]
pub(super) struct Texts {
    pub schema: String,
    pub references: Vec<String>,
}

/// What is left of the tries for things that the registry says it does not have.
pub(super) struct Patience {
    tries: u32,
    asked: u32,
    pause: Duration,
}

impl Patience {
    pub fn new(missing: &Missing) -> Self {
        Self { tries: missing.tries, asked: 0, pause: missing.pause }
    }

    /// Waits before another try; false if there is none left.
    async fn another(&mut self) -> bool {
        self.asked += 1;
        if self.asked >= self.tries {
            return false;
        }
        // Several instances met the same id at the same time.
        tokio::time::sleep(self.pause.mul_f64(rand::random_range(0.8..1.2))).await;
        self.pause *= 2;
        true
    }
}

impl Way<'_> {
    /// Follows references to the end. A text that refers back to an earlier one is not asked for again.
    pub async fn collect(&self, root: Node, patience: &mut Patience) -> Result<Texts, RegistryError> {
        let what = root.to_string();
        let mut seen = HashSet::from([root.clone()]);
        let mut waiting = VecDeque::from([root]);
        let mut texts: Vec<String> = Vec::new();
        let mut bytes = 0;
        while let Some(node) = waiting.pop_front() {
            let text = Box::pin(self.text(&node, &what, patience)).await?;
            bytes += text.schema.len();
            for reference in text.references {
                if seen.insert(reference.clone()) {
                    waiting.push_back(reference);
                }
            }
            if seen.len() > MOST_TEXTS || bytes > MOST_BYTES {
                return Err(bad(format!("{what} refers to more than {MOST_TEXTS} texts or {} MiB", MOST_BYTES >> 20)));
            }
            // One text under two names defines its types once.
            if !texts.contains(&text.schema) {
                texts.push(text.schema);
            }
        }
        let mut texts = texts.into_iter();
        Ok(Texts { schema: texts.next().unwrap_or_default(), references: texts.collect() })
    }

    /// One text and the names in it.
    async fn text(&self, node: &Node, root: &str, patience: &mut Patience) -> Result<Text, RegistryError> {
        let Some(address) = self.api.text_of(self.base, node) else {
            return Err(bad(format!("{root} refers to {node}, which no address can name")));
        };
        let body = self.get(&address, node, root, patience).await?;
        let Some(list) = self.api.references_of(self.base, node) else {
            return confluent_text(&body.bytes).map_err(|why| self.unusable(node, why));
        };
        avro(body.kind.as_deref()).map_err(|why| self.unusable(node, why))?;
        let schema = apicurio_text(body.content_type.as_deref(), body.bytes).map_err(|why| self.unusable(node, why))?;
        let body = self.get(&list, node, root, patience).await?;
        let references = apicurio_references(&body.bytes).map_err(|why| self.unusable(node, why))?;
        Ok(Text { schema, references })
    }

    /// Asks until it is there, as long as the patience lasts.
    async fn get(
        &self,
        address: &str,
        node: &Node,
        root: &str,
        patience: &mut Patience,
    ) -> Result<Body, RegistryError> {
        loop {
            match self.http.get(self.api, address).await {
                Ok(body) => return Ok(body),
                Err(Failed::Other(error)) => return Err(error),
                Err(Failed::Missing) => {}
            }
            if let Some(address) = self.api.deleted_text_of(self.base, node) {
                match self.http.get(self.api, &address).await {
                    Ok(body) => return Ok(body),
                    Err(Failed::Other(error)) => return Err(error),
                    Err(Failed::Missing) => {}
                }
            }
            if !patience.another().await {
                let node = node.to_string();
                let what = if node == root { node } else { format!("{node}, which {root} refers to,") };
                return Err(RegistryError::NotFound { what, address: self.base.shown(), tries: patience.asked });
            }
        }
    }

    fn unusable(&self, node: &Node, why: Unusable) -> RegistryError {
        match why {
            Unusable::NotAvro(why) => bad(format!("{node} {why}")),
            Unusable::NotARegistry(reason) => {
                RegistryError::Misconfigured { address: self.base.shown(), reason: reason.to_owned() }
            }
        }
    }
}

fn bad(detail: String) -> RegistryError {
    RegistryError::BadSchema(Fault::new("bad_schema", detail))
}
