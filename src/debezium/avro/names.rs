//! Names as people's topics give them, legal or not.
//!
//! A topic prefix with a hyphen makes Debezium register namespaces such as `my-app.shop.orders`, and a converter
//! without name adjustment passes columns such as `2nd` on. Neither is legal Avro, both are in production, and no
//! byte of a record depends on a name: whatever has one is read.

use std::sync::Once;

use apache_avro::AvroResult;
use apache_avro::validator::{
    EnumSymbolNameValidator, RecordFieldNameValidator, SchemaNameValidator, SchemaNamespaceValidator,
    set_enum_symbol_name_validator, set_record_field_name_validator, set_schema_name_validator,
    set_schema_namespace_validator,
};

struct Lenient;

impl SchemaNameValidator for Lenient {
    /// The name begins after the last dot.
    fn validate(&self, name: &str) -> AvroResult<usize> {
        Ok(name.rfind('.').map_or(0, |dot| dot + 1))
    }
}

impl SchemaNamespaceValidator for Lenient {
    fn validate(&self, _: &str) -> AvroResult<()> {
        Ok(())
    }
}

impl EnumSymbolNameValidator for Lenient {
    fn validate(&self, _: &str) -> AvroResult<()> {
        Ok(())
    }
}

impl RecordFieldNameValidator for Lenient {
    fn validate(&self, _: &str) -> AvroResult<()> {
        Ok(())
    }
}

/// The crate takes its validators once a process, before the first schema.
pub(super) fn accept_any() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that the embedding program has set its own before: then those hold.
        let _ = set_schema_name_validator(Box::new(Lenient));
        let _ = set_schema_namespace_validator(Box::new(Lenient));
        let _ = set_enum_symbol_name_validator(Box::new(Lenient));
        let _ = set_record_field_name_validator(Box::new(Lenient));
    });
}
