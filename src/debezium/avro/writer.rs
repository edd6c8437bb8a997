//! A writer's schema, compiled once into a plan by which bytes are read.

use crate::debezium::event::Fault;

/// A schema from a registry, ready to read with.
#[derive(Debug)]
pub struct WriterSchema {
    #[expect(dead_code, reason = "the plan comes next")]
    schema: apache_avro::Schema,
}

impl WriterSchema {
    /// From the text of a schema and of those that it refers to, in any order.
    ///
    /// # Errors
    /// `bad_schema`: not Avro, or a name that no text defines.
    pub fn compile(schema: &str, references: &[String]) -> Result<Self, Fault> {
        let references: Vec<&str> = references.iter().map(String::as_str).collect();
        let bad = |error: apache_avro::Error| Fault::new("bad_schema", format!("no avro schema: {error}"));
        let (schema, _) = apache_avro::Schema::parse_str_with_list(schema, references).map_err(bad)?;
        Ok(Self { schema })
    }
}
