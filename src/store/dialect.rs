//! The three databases, told apart in one place.

use std::fmt::Write;

/// A kind of database; MariaDB counts as MySQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    Postgres,
    MySql,
    Sqlite,
}

impl Dialect {
    /// From the scheme of a database address.
    pub fn from_url(url: &str) -> Option<Self> {
        Some(match url.split_once(':')?.0 {
            "postgres" | "postgresql" => Self::Postgres,
            "mysql" | "mariadb" => Self::MySql,
            "sqlite" => Self::Sqlite,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::Sqlite => "sqlite",
        }
    }

    /// Bind parameters that one statement may have: the wire formats count in 16 bits, and SQLite's
    /// default `SQLITE_MAX_VARIABLE_NUMBER` is 32,766.
    pub fn max_binds(self) -> usize {
        match self {
            Self::Postgres | Self::MySql => 65_535,
            Self::Sqlite => 32_766,
        }
    }

    /// What a number is cast to, so that it is read as one of 64 bits.
    pub fn bigint(self) -> &'static str {
        match self {
            Self::Postgres | Self::Sqlite => "bigint",
            Self::MySql => "SIGNED",
        }
    }

    /// The database's own clock, to be compared with its columns.
    pub fn now(self) -> &'static str {
        match self {
            Self::Postgres => "now()",
            Self::MySql => "UTC_TIMESTAMP(6)",
            Self::Sqlite => "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
        }
    }

    /// A time column in milliseconds since 1970.
    pub fn since_1970(self, column: &str) -> String {
        match self {
            Self::Postgres => format!("CAST(EXTRACT(EPOCH FROM {column}) * 1000 AS bigint)"),
            Self::MySql => format!("CAST(UNIX_TIMESTAMP({column}) * 1000 AS SIGNED)"),
            Self::Sqlite => format!("CAST((julianday({column}) - 2440587.5) * 86400000 AS INTEGER)"),
        }
    }

    /// The placeholder of the bind parameter with this index, counted from zero.
    pub fn placeholder(self, index: usize) -> String {
        match self {
            Self::Postgres => format!("${}", index + 1),
            Self::MySql | Self::Sqlite => "?".to_owned(),
        }
    }

    /// `name` as a quoted identifier. The caller has checked its characters; the quotes keep its letter case.
    pub fn quote(self, name: &str) -> String {
        match self {
            Self::Postgres | Self::Sqlite => format!("\"{}\"", name.replace('"', "\"\"")),
            Self::MySql => format!("`{}`", name.replace('`', "``")),
        }
    }

    /// Postgres: a text as a value of this type. `money` is read by the server's locale, `numeric` by none.
    pub fn cast(self, text: &str, to: &str) -> String {
        match (self, to) {
            (Self::Postgres, "money") => format!("CAST(CAST(CAST({text} AS text) AS numeric) AS money)"),
            (Self::Postgres, _) => format!("CAST(CAST({text} AS text) AS {to})"),
            (Self::MySql | Self::Sqlite, _) => text.to_owned(),
        }
    }

    /// A qualified name, each part quoted.
    pub fn quote_path(self, parts: &[String]) -> String {
        parts.iter().map(|part| self.quote(part)).collect::<Vec<_>>().join(".")
    }

    /// `(?, ?), (?, ?)`: rows of placeholders for a multi-row statement without arrays.
    pub fn value_rows(self, rows: usize, columns: usize) -> String {
        let mut sql = String::with_capacity(rows * (columns * 3 + 4));
        for row in 0..rows {
            sql.push_str(if row == 0 { "(" } else { ", (" });
            for column in 0..columns {
                let comma = if column == 0 { "" } else { ", " };
                match self {
                    Self::Postgres => {
                        // Writing to a String cannot fail.
                        let _ = write!(sql, "{comma}${}", row * columns + column + 1);
                    }
                    Self::MySql | Self::Sqlite => {
                        sql.push_str(comma);
                        sql.push('?');
                    }
                }
            }
            sql.push(')');
        }
        sql
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_cannot_leave_their_quotes() {
        assert_eq!(Dialect::Postgres.quote("a\"b"), "\"a\"\"b\"");
        assert_eq!(Dialect::MySql.quote("a`b"), "`a``b`");
        assert_eq!(Dialect::Postgres.quote_path(&["s".into(), "t".into()]), "\"s\".\"t\"");
    }

    #[test]
    fn value_rows_number_their_placeholders_through() {
        assert_eq!(Dialect::Postgres.value_rows(2, 2), "($1, $2), ($3, $4)");
        assert_eq!(Dialect::Sqlite.value_rows(2, 1), "(?), (?)");
    }
}
