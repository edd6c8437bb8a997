//! The writer schemas that one decoder has been told.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Part, SchemaRef, WriterSchema};
use crate::debezium::event::Fault;

/// More schemas than this in one lane's topics is unusual; the registry's client has them still.
const MOST: usize = 1024;

/// A schema as a record names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Named {
    schema: SchemaRef,
    /// What a bare number means may differ from topic to topic; an id means one schema everywhere.
    topic: Option<Arc<str>>,
}

impl Named {
    fn new(schema: SchemaRef, topic: &Arc<str>) -> Self {
        let topic = match schema {
            SchemaRef::Id(_) => None,
            SchemaRef::Number { .. } => Some(Arc::clone(topic)),
        };
        Self { schema, topic }
    }

    fn is(&self, schema: SchemaRef, topic: &str) -> bool {
        self.schema == schema && self.topic.as_deref().is_none_or(|of| of == topic)
    }
}

#[derive(Clone, Debug, Default)]
pub(in crate::debezium) struct Writers {
    known: HashMap<Named, Arc<WriterSchema>>,
    /// Those that the record at hand needs and nobody has. Forgotten with it: the registry may learn them.
    missing: Vec<(Named, Fault)>,
    /// The last one that a key, and a value, was read by: most records follow one of their kind.
    last: [Option<(Named, Arc<WriterSchema>)>; 2],
}

impl Writers {
    pub fn learn(&mut self, topic: &Arc<str>, schema: SchemaRef, answer: Result<Arc<WriterSchema>, Fault>) {
        let named = Named::new(schema, topic);
        match answer {
            Ok(schema) => {
                if self.known.len() >= MOST {
                    self.known.clear();
                }
                self.known.insert(named, schema);
            }
            Err(fault) => self.missing.push((named, fault)),
        }
    }

    pub fn any_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    pub fn forget_missing(&mut self) {
        self.missing.clear();
    }

    /// The schema, or why there is none. `None` for one that was not asked for yet.
    pub fn get(&mut self, topic: &Arc<str>, part: Part, schema: SchemaRef) -> Option<Result<&WriterSchema, &Fault>> {
        let last = match part {
            Part::Key => &mut self.last[0],
            Part::Value => &mut self.last[1],
        };
        if last.as_ref().is_none_or(|(named, _)| !named.is(schema, topic)) {
            let named = Named::new(schema, topic);
            match self.known.get(&named) {
                Some(schema) => *last = Some((named, Arc::clone(schema))),
                None => return self.missing.iter().find(|(missing, _)| *missing == named).map(|(_, fault)| Err(fault)),
            }
        }
        last.as_ref().map(|(_, schema)| Ok(&**schema))
    }
}
