//! The writer schemas that one decoder has been told.

use std::collections::HashMap;
use std::sync::Arc;

use super::{SchemaRef, WriterSchema};
use crate::debezium::event::Fault;

/// More schemas than this in one lane's topics is unusual; the registry's client has them still.
const MOST: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(in crate::debezium) struct Writers {
    known: HashMap<SchemaRef, Arc<WriterSchema>>,
    /// Those that the record at hand needs and nobody has. Forgotten with it: the registry may learn them.
    missing: Vec<(SchemaRef, Fault)>,
    /// The last one that was read by: most records follow one of their kind.
    last: Option<(SchemaRef, Arc<WriterSchema>)>,
}

impl Writers {
    pub fn learn(&mut self, id: SchemaRef, schema: Result<Arc<WriterSchema>, Fault>) {
        match schema {
            Ok(schema) => {
                if self.known.len() >= MOST {
                    self.known.clear();
                }
                self.known.insert(id, schema);
            }
            Err(fault) => self.missing.push((id, fault)),
        }
    }

    pub fn any_missing(&self) -> bool {
        !self.missing.is_empty()
    }

    pub fn forget_missing(&mut self) {
        self.missing.clear();
    }

    /// The schema, or why there is none. `None` for one that was not asked for yet.
    pub fn get(&mut self, id: SchemaRef) -> Option<Result<&WriterSchema, &Fault>> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != id) {
            match self.known.get(&id) {
                Some(schema) => self.last = Some((id, Arc::clone(schema))),
                None => return self.missing.iter().find(|(missing, _)| *missing == id).map(|(_, fault)| Err(fault)),
            }
        }
        self.last.as_ref().map(|(_, schema)| Ok(&**schema))
    }
}
