//! What a column of a target table, or a parameter of a statement, can hold.

use super::Dialect;

/// A column of a target table, or a parameter of a statement on Postgres.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// The type as a cast takes it, without length or precision: an explicit cast to `varchar(3)` would cut
    /// silently, an assignment does not. Postgres alone needs it.
    pub cast: String,
    pub holds: Holds,
    pub written: Written,
    /// NULL there becomes something else: the present time in an old `TIMESTAMP NOT NULL`, the next number.
    pub replaces_null: bool,
}

/// Who gives a column its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    Freely,
    /// `GENERATED ALWAYS AS IDENTITY`: takes a value only with `OVERRIDING SYSTEM VALUE`, and only in an INSERT.
    Identity,
    /// `GENERATED ALWAYS AS (…)`: the database alone.
    Generated,
}

/// The values that a column keeps as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holds {
    Bool,
    Int {
        least: i128,
        most: i128,
    },
    /// MySQL's TINYINT(1): a boolean by convention, in truth an integer.
    Flag {
        least: i128,
        most: i128,
    },
    /// MySQL's YEAR, where 1 to 99 mean other years.
    Year,
    /// Fraction digits may be negative on Postgres. Without a precision the digits are unlimited.
    Decimal {
        precision: Option<i64>,
        scale: i64,
    },
    Float32,
    Float64,
    Chars {
        most: Option<u64>,
    },
    /// Text with a limit in bytes.
    Text {
        most: Option<u64>,
    },
    Bytes {
        most: Option<u64>,
        /// BINARY(n): what is shorter is padded with zero bytes.
        padded: bool,
    },
    Bits {
        length: Option<u64>,
        varying: bool,
    },
    Date,
    /// Fraction digits of the second.
    Time(u64),
    TimeTz(u64),
    Timestamp(u64),
    /// An instant.
    TimestampTz(u64),
    Interval(u64),
    Uuid,
    Json,
    /// A binary JSON whose numbers are integers of 64 bits or doubles (MySQL's).
    BinaryJson,
    Geometry,
    /// Postgres' own `point`.
    Point,
    Hstore,
    /// pgvector's types.
    Vector,
    /// MySQL's ENUM and SET, whose texts could be taken for an index.
    Labels(Vec<String>),
    Array(Box<Holds>),
    Affinity(Affinity),
    /// A type that the server reads from its text: inet, ranges, ltree, enums and others.
    Other,
}

/// SQLite's: every column takes every value and converts some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Affinity {
    /// Of columns declared BOOLEAN too, which SQLite counts among the numeric ones.
    Integer,
    Real,
    /// Numeric, and declared with the name of a number: NUMERIC, DECIMAL, NUMBER, MONEY.
    Decimal,
    /// Numeric by the rule for all other names: DATE, TIMESTAMP, UUID, JSON.
    Numeric,
    Text,
    /// Nothing is converted.
    None,
}

/// A column by its name; on MySQL and SQLite letter case tells no two apart.
pub fn find<'a>(columns: &'a [Column], name: &str, dialect: Dialect) -> Option<&'a Column> {
    let exact = columns.iter().find(|column| column.name == name);
    exact.or_else(|| match dialect {
        Dialect::Postgres => None,
        Dialect::MySql | Dialect::Sqlite => columns.iter().find(|column| column.name.eq_ignore_ascii_case(name)),
    })
}

impl Holds {
    /// By the name in `pg_type` and the type modifier, -1 for none.
    pub(super) fn postgres(typname: &str, modifier: i64) -> Self {
        let given = |otherwise: u64| u64::try_from(modifier).unwrap_or(otherwise);
        // Variable-length types count their header of four bytes in.
        let length = || (modifier >= 4).then(|| (modifier - 4).unsigned_abs());
        match typname {
            "bool" => Self::Bool,
            "int2" => int(16),
            "int4" => int(32),
            "int8" => int(64),
            "oid" => Self::Int { least: 0, most: u32::MAX.into() },
            "numeric" if modifier >= 4 => {
                // Eleven bits with a sign since version 15, before that never that large.
                let scale = ((modifier - 4) & 0x7ff ^ 1024) - 1024;
                Self::Decimal { precision: Some((modifier - 4) >> 16 & 0xffff), scale }
            }
            "numeric" => Self::Decimal { precision: None, scale: i64::MAX },
            // Cents in 64 bits.
            "money" => Self::Decimal { precision: Some(19), scale: 2 },
            "float4" => Self::Float32,
            "float8" => Self::Float64,
            "varchar" | "bpchar" => Self::Chars { most: length() },
            "text" | "citext" => Self::Chars { most: None },
            // Cut silently.
            "name" => Self::Text { most: Some(63) },
            "char" => Self::Text { most: Some(1) },
            "bytea" => Self::Bytes { most: None, padded: false },
            "bit" => Self::Bits { length: u64::try_from(modifier).ok(), varying: false },
            "varbit" => Self::Bits { length: u64::try_from(modifier).ok(), varying: true },
            "date" => Self::Date,
            "time" => Self::Time(given(6)),
            "timetz" => Self::TimeTz(given(6)),
            "timestamp" => Self::Timestamp(given(6)),
            "timestamptz" => Self::TimestampTz(given(6)),
            "interval" => Self::Interval((given(6) & 0xffff).min(6)),
            "uuid" => Self::Uuid,
            "json" | "jsonb" => Self::Json,
            "geometry" | "geography" => Self::Geometry,
            "point" => Self::Point,
            "hstore" => Self::Hstore,
            "vector" | "halfvec" => Self::Vector,
            _ => Self::Other,
        }
    }

    /// By what `information_schema.columns` says.
    pub(super) fn mysql(described: &MySqlColumn) -> Self {
        let unsigned = described.column_type.contains("unsigned");
        let whole = |bits: u32| match unsigned {
            true => Self::Int { least: 0, most: (1 << bits) - 1 },
            false => int(bits),
        };
        let most = described.length;
        let digits = described.datetime_precision.unwrap_or(0);
        match described.data_type.as_str() {
            "tinyint" => match whole(8) {
                Self::Int { least, most } if described.column_type.starts_with("tinyint(1)") => {
                    Self::Flag { least, most }
                }
                other => other,
            },
            "smallint" => whole(16),
            "mediumint" => whole(24),
            "int" => whole(32),
            "bigint" => whole(64),
            "year" => Self::Year,
            "decimal" => Self::Decimal { precision: described.precision, scale: described.scale.unwrap_or(0) },
            // FLOAT(m,d) rounds to d digits.
            "float" | "double" if described.scale.is_some() => {
                Self::Decimal { precision: described.precision, scale: described.scale.unwrap_or(0) }
            }
            "float" => Self::Float32,
            "double" => Self::Float64,
            "char" | "varchar" => Self::Chars { most },
            "tinytext" | "text" | "mediumtext" | "longtext" => Self::Text { most },
            "binary" => Self::Bytes { most, padded: true },
            "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Self::Bytes { most, padded: false },
            "bit" => Self::Bits { length: described.precision.and_then(|n| u64::try_from(n).ok()), varying: true },
            "date" => Self::Date,
            "time" => Self::Time(digits),
            "datetime" => Self::Timestamp(digits),
            "timestamp" => Self::TimestampTz(digits),
            "enum" | "set" => Self::Labels(labels(&described.column_type)),
            "json" => Self::BinaryJson,
            "uuid" => Self::Uuid,
            "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring" | "multipolygon"
            | "geometrycollection" | "geomcollection" => Self::Geometry,
            _ => Self::Other,
        }
    }

    /// By the declared type: "Datatypes In SQLite", section 3.1. Three names that contain `INT` by accident are not
    /// taken for integers.
    pub(super) fn sqlite(declared: &str) -> Self {
        let declared = declared.to_ascii_uppercase();
        let has = |part: &str| declared.contains(part);
        Self::Affinity(if has("POINT") || has("INTERVAL") {
            Affinity::Numeric
        } else if has("INT") || has("BOOL") {
            Affinity::Integer
        } else if has("CHAR") || has("CLOB") || has("TEXT") {
            Affinity::Text
        } else if has("BLOB") || declared.is_empty() {
            Affinity::None
        } else if has("REAL") || has("FLOA") || has("DOUB") {
            Affinity::Real
        } else if has("NUM") || has("DEC") || has("MONEY") {
            Affinity::Decimal
        } else {
            Affinity::Numeric
        })
    }
}

fn int(bits: u32) -> Holds {
    Holds::Int { least: -(1 << (bits - 1)), most: (1 << (bits - 1)) - 1 }
}

/// A row of MySQL's and MariaDB's catalogue.
pub(super) struct MySqlColumn {
    pub data_type: String,
    pub column_type: String,
    pub precision: Option<i64>,
    pub scale: Option<i64>,
    pub datetime_precision: Option<u64>,
    /// In characters, for the TEXT types in bytes.
    pub length: Option<u64>,
}

/// The labels of `enum('a','it''s')`.
fn labels(column_type: &str) -> Vec<String> {
    let mut labels = Vec::new();
    let mut chars = column_type.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\'' {
            continue;
        }
        let mut label = String::new();
        while let Some(c) = chars.next() {
            match c {
                '\'' if chars.peek() == Some(&'\'') => {
                    label.push('\'');
                    chars.next();
                }
                '\'' => break,
                other => label.push(other),
            }
        }
        labels.push(label);
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modifiers_of_postgres_are_read() {
        let numeric = |precision: i64, scale: i64| (precision << 16 | scale & 0x7ff) + 4;
        for (name, modifier, holds) in [
            ("numeric", numeric(20, 4), Holds::Decimal { precision: Some(20), scale: 4 }),
            ("numeric", numeric(3, -2), Holds::Decimal { precision: Some(3), scale: -2 }),
            ("numeric", -1, Holds::Decimal { precision: None, scale: i64::MAX }),
            ("varchar", 24, Holds::Chars { most: Some(20) }),
            ("varchar", -1, Holds::Chars { most: None }),
            ("timestamp", 3, Holds::Timestamp(3)),
            ("timestamp", -1, Holds::Timestamp(6)),
            ("interval", 0x7fff_ffff, Holds::Interval(6)),
            ("interval", 0x7fff_0003, Holds::Interval(3)),
            ("bit", 12, Holds::Bits { length: Some(12), varying: false }),
            ("int2", -1, Holds::Int { least: -32768, most: 32767 }),
        ] {
            assert_eq!(Holds::postgres(name, modifier), holds, "{name} {modifier}");
        }
    }

    #[test]
    fn labels_keep_commas_quotes_and_backslashes() {
        assert_eq!(labels(r"enum('a,b','it''s','back\slash','')"), ["a,b", "it's", r"back\slash", ""]);
    }

    #[test]
    fn affinities_follow_the_declared_names() {
        for (declared, affinity) in [
            ("BIGINT UNSIGNED", Affinity::Integer),
            ("varchar(20)", Affinity::Text),
            ("", Affinity::None),
            ("DOUBLE PRECISION", Affinity::Real),
            ("DECIMAL(10,2)", Affinity::Decimal),
            ("NUMBER", Affinity::Decimal),
            ("BOOLEAN", Affinity::Integer),
            ("DATE", Affinity::Numeric),
            ("INTERVAL", Affinity::Numeric),
        ] {
            assert_eq!(Holds::sqlite(declared), Holds::Affinity(affinity), "{declared}");
        }
    }
}
