//! Database errors and what they mean, decided by SQLSTATE or error number and never by message text:
//! servers answer in other languages, and texts change between versions.

use super::dialect::Dialect;

/// What a database said, or that it did not answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A definite answer of the server.
    #[error("{dialect} error {code}: {message}", dialect = dialect.name())]
    Answer {
        dialect: Dialect,
        /// SQLSTATE on Postgres, error number on MySQL and MariaDB, extended result code on SQLite.
        code: String,
        /// The server's own text. It may hold row values: for logs at debug level and for dead letters only.
        message: String,
        constraint: Option<String>,
        column: Option<String>,
    },
    /// The connection was lost or none could be had: nothing is known of the last statement.
    #[error("database connection: {0}")]
    Connection(#[source] sqlx::Error),
    /// A COMMIT without an answer: it may have taken effect or not.
    #[error("the outcome of a commit is unknown")]
    CommitUnknown(#[source] Box<StoreError>),
    #[error("database answered something unexpected: {0}")]
    Unexpected(String),
    /// Not sent: the server would close the connection, and nobody could tell why.
    #[error("a statement of {bytes} bytes is larger than max_allowed_packet, {most} bytes")]
    TooLarge { bytes: usize, most: usize },
    /// Settings that cannot work.
    #[error("{0}")]
    Setup(String),
}

/// What an error means for the message at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Run the whole transaction again.
    Transient,
    Unique,
    ForeignKey,
    /// Check, not-null and exclusion constraints.
    Check,
    /// Data that the target cannot hold.
    Poison,
    /// Nothing of this lane can work until somebody changes something.
    Fatal,
}

impl StoreError {
    pub fn meaning(&self) -> Meaning {
        match self {
            Self::Answer { dialect, code, .. } => meaning(*dialect, code),
            Self::Connection(_) | Self::CommitUnknown(_) | Self::Unexpected(_) => Meaning::Transient,
            Self::TooLarge { .. } => Meaning::Poison,
            Self::Setup(_) => Meaning::Fatal,
        }
    }

    /// A text that a type's own syntax does not allow, if the statement itself is known to be right.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Answer { dialect: Dialect::Postgres, code, .. } if code == UNREADABLE)
    }

    /// An upsert of many rows met one of them twice.
    pub fn is_repeated_row(&self) -> bool {
        matches!(self, Self::Answer { dialect: Dialect::Postgres, code, .. } if code == "21000")
    }

    /// Two transactions waited for each other, and this one had to give way.
    pub fn is_deadlock(&self) -> bool {
        let Self::Answer { dialect, code, .. } = self else { return false };
        match dialect {
            Dialect::Postgres => code == "40P01",
            Dialect::MySql => code == "1213",
            // One writer at a time.
            Dialect::Sqlite => false,
        }
    }

    /// It speaks of the server's state and not of what was asked: no answer, cancelled, no lock, no memory, a
    /// transaction that was aborted before. Narrower than [`Meaning::Transient`], which every unknown code is.
    pub fn is_interruption(&self) -> bool {
        match self {
            Self::Answer { dialect: Dialect::Postgres, code, .. } => {
                ["08", "25", "40", "53", "55", "57", "58"].iter().any(|class| code.starts_with(class))
            }
            Self::Answer { .. } | Self::TooLarge { .. } | Self::Setup(_) => false,
            Self::Connection(_) | Self::CommitUnknown(_) | Self::Unexpected(_) => true,
        }
    }

    /// The error and, where that is known, what to do.
    pub fn with_advice(&self) -> String {
        match self.advice() {
            Some(advice) => format!("{self}: {advice}"),
            None => self.to_string(),
        }
    }

    /// What went wrong, for dead letters and receipts: the server's text without the value that it quotes.
    pub fn for_people(&self) -> String {
        let Self::Answer { dialect, code, message, column, .. } = self else { return self.to_string() };
        let text = match dialect {
            // `invalid input syntax for type numeric: "abc"`, `value "99999" is out of range for type smallint`
            Dialect::Postgres if quotes_values(code) => match (message.find('"'), message.rfind('"')) {
                (Some(from), Some(to)) if from < to => {
                    format!("{}…{}", &message[..from], &message[to + 1..]).trim_end_matches(": …").to_owned()
                }
                _ => message.clone(),
            },
            // `Incorrect decimal value: 'abc' for column ...`, `Truncated incorrect DECIMAL value: 'abc'`
            Dialect::MySql => match (message.find("value: '"), message.rfind("' for ")) {
                (Some(from), Some(to)) if from < to => format!("{}value{}", &message[..from], &message[to + 1..]),
                (Some(from), _) => format!("{}value", &message[..from]),
                _ => message.clone(),
            },
            Dialect::Postgres | Dialect::Sqlite => message.clone(),
        };
        match column {
            Some(column) => format!("{text} (column {column}, code {code})"),
            None => format!("{text} (code {code})"),
        }
    }

    pub(super) fn from_sqlx(dialect: Dialect, error: sqlx::Error) -> Self {
        let sqlx::Error::Database(answer) = error else {
            return match error {
                sqlx::Error::Configuration(why) => Self::Setup(format!("database address: {why}")),
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::ColumnIndexOutOfBounds { .. }
                | sqlx::Error::ColumnNotFound(_)
                | sqlx::Error::RowNotFound => Self::Unexpected(error.to_string()),
                other => Self::Connection(other),
            };
        };
        let code = match dialect {
            Dialect::Postgres | Dialect::Sqlite => answer.code().map(|code| code.into_owned()).unwrap_or_default(),
            // `code()` is the SQLSTATE there, which is HY000 for most of what matters.
            Dialect::MySql => answer.downcast_ref::<sqlx::mysql::MySqlDatabaseError>().number().to_string(),
        };
        let (column, constraint) = match dialect {
            Dialect::Postgres => {
                let answer = answer.downcast_ref::<sqlx::postgres::PgDatabaseError>();
                (answer.column().map(str::to_owned), answer.constraint().map(str::to_owned))
            }
            Dialect::MySql | Dialect::Sqlite => named_in(dialect, &code, answer.message()),
        };
        Self::Answer { dialect, code, message: answer.message().to_owned(), constraint, column }
    }

    /// A text for operators: the code with what to do, where that is known.
    pub fn advice(&self) -> Option<&'static str> {
        let (dialect, code) = match self {
            Self::Answer { dialect, code, .. } => (dialect, code),
            Self::Connection(sqlx::Error::PoolTimedOut) => {
                return Some("all connections of the pool are in use: raise `[store] pool`, or find what holds them");
            }
            Self::Connection(sqlx::Error::Io(_)) => {
                return Some("start the database, or correct host and port in `[store] url`");
            }
            Self::Connection(_)
            | Self::CommitUnknown(_)
            | Self::Unexpected(_)
            | Self::TooLarge { .. }
            | Self::Setup(_) => return None,
        };
        match (dialect, code.as_str()) {
            (Dialect::Postgres, "26000" | "42P05") => {
                Some("prepared statements vanish behind a transaction pooler: set `[store] pooler = true`")
            }
            (Dialect::Postgres, "28000" | "28P01") | (Dialect::MySql, "1045" | "1698") => {
                Some("check user and password in `[store] url`")
            }
            (Dialect::Postgres, "3D000") | (Dialect::MySql, "1049") => {
                Some("the database in `[store] url` does not exist")
            }
            (Dialect::Postgres, "42P01") | (Dialect::MySql, "1146") => {
                Some("run `countersign migrate` for tables that begin with countersign_, create the others")
            }
            (Dialect::Postgres, "42501") | (Dialect::MySql, "1044" | "1142" | "1143") => {
                Some("grant the user the missing privilege")
            }
            (Dialect::Postgres, "42P18") => Some("say the parameter's type: CAST(:name AS type)"),
            _ => None,
        }
    }
}

/// Whether what Postgres quotes in the message is a value, and no name.
fn quotes_values(code: &str) -> bool {
    code.starts_with("22") || code == UNREADABLE
}

/// How the input functions of ltree, hstore, tsquery and others refuse a text: as a syntax error.
const UNREADABLE: &str = "42601";

/// The column and the constraint that a message names, to show them; nothing is decided by it.
fn named_in(dialect: Dialect, code: &str, message: &str) -> (Option<String>, Option<String>) {
    let first = |quote: char| message.split(quote).nth(1).map(str::to_owned);
    match (dialect, code) {
        // Column 'c' cannot be null; Field 'c' doesn't have a default value
        (Dialect::MySql, "1048" | "1364") => (first('\''), None),
        // Duplicate entry 'value' for key 'name'
        (Dialect::MySql, "1062" | "1586") => {
            (None, message.trim_end_matches('\'').rsplit('\'').next().map(str::to_owned))
        }
        // Check constraint 'name' is violated.
        (Dialect::MySql, "3819") => (None, first('\'')),
        // CONSTRAINT `name` failed for `schema`.`table`
        (Dialect::MySql, "4025") => (None, first('`')),
        // NOT NULL constraint failed: table.column
        (Dialect::Sqlite, "1299") => (message.rsplit('.').next().map(str::to_owned), None),
        // UNIQUE constraint failed: table.a, table.b
        (Dialect::Sqlite, "2067" | "1555" | "275") => (None, message.split_once(": ").map(|(_, name)| name.to_owned())),
        _ => (None, None),
    }
}

/// The closed lists of protocol and database manuals. Every code that is not here is transient: waiting
/// loses nothing, parking a message for an outage does.
///
/// Postgres: appendix "Error Codes". MySQL: "Server Error Message Reference"; MariaDB: "Error Codes".
/// SQLite: "Result and Error Codes" (extended).
fn meaning(dialect: Dialect, code: &str) -> Meaning {
    match dialect {
        Dialect::Postgres => postgres(code),
        Dialect::MySql => mysql(code.parse().unwrap_or(0)),
        Dialect::Sqlite => sqlite(code.parse().unwrap_or(0)),
    }
}

fn postgres(code: &str) -> Meaning {
    match code {
        "23505" => Meaning::Unique,
        "23503" => Meaning::ForeignKey,
        "23502" | "23514" | "23P01" => Meaning::Check,
        // Class 22, data exception, as far as it speaks of the value and not of the server.
        "22000" | "22001" | "22003" | "22007" | "22008" | "22009" | "2200L" | "2200M" | "2200N" | "2200S" | "22012"
        | "22015" | "22018" | "22019" | "2201E" | "2201F" | "2201G" | "22021" | "22023" | "22024" | "22025"
        | "22026" | "22027" | "2202E" | "22030" | "22031" | "22032" | "22033" | "22034" | "22035" | "22036"
        | "22037" | "22038" | "22039" | "2203A" | "2203B" | "2203C" | "2203D" | "2203E" | "2203F" | "2203G"
        | "22P02" | "22P03" | "22P05" | "54000" => Meaning::Poison,
        // Credentials, objects, privileges, and statements that cannot be right as they are written.
        "28000" | "28P01" | "3D000" | "3F000" | "42501" | "42601" | "42602" | "42622" | "42701" | "42702" | "42703"
        | "42704" | "42725" | "42803" | "42804" | "42809" | "42846" | "42883" | "42P01" | "42P02" | "42P05"
        | "42P08" | "42P10" | "42P18" | "42P22" | "428C9" | "26000" => Meaning::Fatal,
        _ => Meaning::Transient,
    }
}

fn mysql(number: u16) -> Meaning {
    match number {
        1062 | 1169 | 1586 => Meaning::Unique,
        1216 | 1217 | 1451 | 1452 => Meaning::ForeignKey,
        // 3819 is MySQL's check constraint, 4025 MariaDB's.
        1048 | 1364 | 3819 | 4025 => Meaning::Check,
        1118 | 1138 | 1264 | 1265 | 1292 | 1366 | 1367 | 1406 | 1411 | 1416 | 1426 | 1525 | 1690 | 3140 | 3141
        | 3156 | 3903 | 4038 | 1365 | 1300 | 3037 | 3616 | 3617 | 3643 => Meaning::Poison,
        1044 | 1045 | 1049 | 1052 | 1054 | 1064 | 1109 | 1110 | 1136 | 1142 | 1143 | 1146 | 1227 | 1305 | 1318
        | 1370 | 1698 | 1111 | 1072 | 1267 => Meaning::Fatal,
        _ => Meaning::Transient,
    }
}

fn sqlite(code: i32) -> Meaning {
    match code {
        // SQLITE_CONSTRAINT_UNIQUE, _PRIMARYKEY, _ROWID
        2067 | 1555 | 2579 => Meaning::Unique,
        // SQLITE_CONSTRAINT_FOREIGNKEY
        787 => Meaning::ForeignKey,
        // SQLITE_CONSTRAINT_CHECK, _NOTNULL, _TRIGGER
        275 | 1299 | 1811 => Meaning::Check,
        // SQLITE_CONSTRAINT_DATATYPE, SQLITE_MISMATCH, SQLITE_TOOBIG, SQLITE_RANGE
        3091 | 20 | 18 | 25 => Meaning::Poison,
        // SQLITE_ERROR: no such table or column, a statement that cannot be right. SQLITE_AUTH, SQLITE_NOTADB.
        1 | 23 | 26 => Meaning::Fatal,
        _ => Meaning::Transient,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outages_locks_and_unknown_codes_are_never_poison() {
        for code in ["40001", "40P01", "55P03", "57014", "57P01", "53300", "53100", "25006", "08006", "XX000", "P0001"]
        {
            assert_eq!(meaning(Dialect::Postgres, code), Meaning::Transient, "{code}");
        }
        for code in ["1205", "1213", "1290", "1836", "1040", "1203", "2006", "2013", "9999", ""] {
            assert_eq!(meaning(Dialect::MySql, code), Meaning::Transient, "{code}");
        }
        for code in ["5", "6", "261", "517", "13", "10", "8", "14", ""] {
            assert_eq!(meaning(Dialect::Sqlite, code), Meaning::Transient, "{code}");
        }
    }

    #[test]
    fn what_speaks_of_the_server_is_an_interruption_and_what_speaks_of_a_value_is_none() {
        let answer = |code: &str| StoreError::Answer {
            dialect: Dialect::Postgres,
            code: code.to_owned(),
            message: String::new(),
            constraint: None,
            column: None,
        };
        for code in ["57014", "55P03", "40001", "40P01", "53200", "25P02", "57P01", "08006"] {
            assert!(answer(code).is_interruption(), "{code}");
        }
        // A domain's own function may raise anything: a message must not be tried for ever because of it.
        for code in ["22P02", "22003", "23514", "42601", "P0001"] {
            assert!(!answer(code).is_interruption(), "{code}");
        }
    }

    #[test]
    fn constraints_are_told_apart_on_every_engine() {
        for (dialect, unique, foreign_key, check) in [
            (Dialect::Postgres, "23505", "23503", "23514"),
            (Dialect::MySql, "1062", "1452", "4025"),
            (Dialect::Sqlite, "2067", "787", "275"),
        ] {
            assert_eq!(meaning(dialect, unique), Meaning::Unique);
            assert_eq!(meaning(dialect, foreign_key), Meaning::ForeignKey);
            assert_eq!(meaning(dialect, check), Meaning::Check);
        }
    }

    #[test]
    fn people_see_no_values() {
        let shown = |dialect, code: &str, message: &str| {
            let (code, message) = (code.to_owned(), message.to_owned());
            StoreError::Answer { dialect, code, message, constraint: None, column: None }.for_people()
        };
        for (code, message, expected) in [
            (
                "22P02",
                "invalid input syntax for type numeric: \"a\"b\"",
                "invalid input syntax for type numeric (code 22P02)",
            ),
            (
                "22003",
                "value \"99\" is out of range for type smallint",
                "value … is out of range for type smallint (code 22003)",
            ),
            (
                "22001",
                "value too long for type character varying(5)",
                "value too long for type character varying(5) (code 22001)",
            ),
        ] {
            assert_eq!(shown(Dialect::Postgres, code, message), expected);
        }
        assert_eq!(
            shown(Dialect::MySql, "1366", "Incorrect integer value: 'it's' for column `s`.`t`.`c` at row 1"),
            "Incorrect integer value for column `s`.`t`.`c` at row 1 (code 1366)"
        );
        assert_eq!(
            shown(Dialect::MySql, "1292", "Truncated incorrect DECIMAL value: 'secret'"),
            "Truncated incorrect DECIMAL value (code 1292)"
        );
    }

    #[test]
    fn messages_name_columns_and_constraints() {
        for (dialect, code, message, column, constraint) in [
            (Dialect::MySql, "1048", "Column 'c' cannot be null", Some("c"), None),
            (Dialect::MySql, "1062", "Duplicate entry 'it's' for key 'by_name'", None, Some("by_name")),
            (Dialect::MySql, "4025", "CONSTRAINT `doc` failed for `db`.`t`", None, Some("doc")),
            (Dialect::Sqlite, "1299", "NOT NULL constraint failed: t.c", Some("c"), None),
            (Dialect::Sqlite, "2067", "UNIQUE constraint failed: t.a, t.b", None, Some("t.a, t.b")),
        ] {
            assert_eq!(named_in(dialect, code, message), (column.map(str::to_owned), constraint.map(str::to_owned)));
        }
    }

    #[test]
    fn what_no_retry_can_mend_is_fatal() {
        for (dialect, code) in [
            (Dialect::Postgres, "42P01"),
            (Dialect::Postgres, "28P01"),
            (Dialect::MySql, "1146"),
            (Dialect::MySql, "1045"),
            (Dialect::Sqlite, "1"),
        ] {
            assert_eq!(meaning(dialect, code), Meaning::Fatal, "{code}");
        }
    }
}
