//! SQL with named parameters, taken apart once.
//!
//! `:name` is a parameter where SQL could have a value; it is none inside quotes, comments, dollar quotes
//! and casts (`::type`). Values are bound, never pasted.

use thiserror::Error;

/// A statement as written, with the places of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Sql(String),
    Param(Param),
}

/// What a parameter names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Param {
    /// `:field` of the value (`after`, for a delete `before`); dotted paths go into nested structs.
    Field(String),
    /// `:key.f`
    Key(String),
    /// `:before.f`
    Before(String),
    /// `:header.NAME`
    Header(String),
    /// `:meta.…`
    Meta(Meta),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meta {
    MessageId,
    CorrelationId,
    Topic,
    Partition,
    Offset,
    Op,
    SourceTime,
}

/// As written, without the colon; of the metadata only that it is some.
impl std::fmt::Display for Param {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Field(name) => f.write_str(name),
            Self::Before(name) => write!(f, "before.{name}"),
            Self::Key(name) => write!(f, "key.{name}"),
            Self::Header(name) => write!(f, "header.{name}"),
            Self::Meta(_) => f.write_str("meta"),
        }
    }
}

#[derive(Debug, PartialEq, Eq, Error)]
pub enum TemplateError {
    #[error("the statement is empty")]
    Empty,
    #[error("a quote or comment that begins at byte {0} has no end")]
    Unterminated(usize),
    #[error(
        "`:{0}` is no parameter: `:meta.` takes messageId, correlationId, topic, partition, offset, op or sourceTime"
    )]
    UnknownMeta(String),
    #[error("`:{0}.` is followed by no name")]
    NoName(String),
    #[error("`?` and `$n` cannot be used, write `:field`")]
    Positional,
    #[error("more than one statement: a step is one statement")]
    Several,
}

impl Template {
    pub fn parse(sql: &str) -> Result<Self, TemplateError> {
        let source = sql.trim().trim_end_matches(';').trim_end().to_owned();
        if source.is_empty() {
            return Err(TemplateError::Empty);
        }
        let parts = Scanner { text: &source, at: 0 }.run()?;
        Ok(Self { source, parts })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The parameters in order of appearance, repeats included.
    pub fn params(&self) -> impl Iterator<Item = &Param> {
        self.parts.iter().filter_map(|part| match part {
            Part::Param(param) => Some(param),
            Part::Sql(_) => None,
        })
    }

    /// The statement with each parameter replaced by `placeholder(index, param)`, the index counted from zero.
    pub fn render(&self, mut placeholder: impl FnMut(usize, &Param) -> String) -> String {
        let mut sql = String::with_capacity(self.source.len() + 16);
        let mut index = 0;
        for part in &self.parts {
            match part {
                Part::Sql(text) => sql.push_str(text),
                Part::Param(param) => {
                    sql.push_str(&placeholder(index, param));
                    index += 1;
                }
            }
        }
        sql
    }
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl Scanner<'_> {
    fn run(mut self) -> Result<Vec<Part>, TemplateError> {
        let bytes = self.text.as_bytes();
        let mut parts = Vec::new();
        let mut plain_from = 0;
        while self.at < bytes.len() {
            match bytes[self.at] {
                quote @ (b'\'' | b'"' | b'`') => self.skip_quoted(quote)?,
                b'-' if self.ahead("--") => self.skip_line(),
                b'/' if self.ahead("/*") => self.skip_block()?,
                b'$' => self.skip_dollar()?,
                b'?' => return Err(TemplateError::Positional),
                b';' => return Err(TemplateError::Several),
                b':' if self.ahead("::") => self.at += 2,
                b':' if self.name_end(self.at + 1) > self.at + 1 => {
                    let end = self.name_end(self.at + 1);
                    let param = parse_param(&self.text[self.at + 1..end])?;
                    if plain_from < self.at {
                        parts.push(Part::Sql(self.text[plain_from..self.at].to_owned()));
                    }
                    parts.push(Part::Param(param));
                    self.at = end;
                    plain_from = end;
                }
                _ => self.at += 1,
            }
        }
        if plain_from < bytes.len() {
            parts.push(Part::Sql(self.text[plain_from..].to_owned()));
        }
        Ok(parts)
    }

    fn ahead(&self, what: &str) -> bool {
        self.text[self.at..].starts_with(what)
    }

    /// Doubled quotes end one quoted part and begin the next, which comes to the same. A backslash is no
    /// escape in standard SQL; on MySQL the session runs with NO_BACKSLASH_ESCAPES, so that it is none there either.
    fn skip_quoted(&mut self, quote: u8) -> Result<(), TemplateError> {
        let from = self.at;
        match self.text.as_bytes()[from + 1..].iter().position(|b| *b == quote) {
            Some(length) => self.at = from + length + 2,
            None => return Err(TemplateError::Unterminated(from)),
        }
        Ok(())
    }

    fn skip_line(&mut self) {
        self.at = self.text[self.at..].find('\n').map_or(self.text.len(), |n| self.at + n + 1);
    }

    fn skip_block(&mut self) -> Result<(), TemplateError> {
        match self.text[self.at + 2..].find("*/") {
            Some(length) => self.at += length + 4,
            None => return Err(TemplateError::Unterminated(self.at)),
        }
        Ok(())
    }

    /// `$$…$$` and `$tag$…$tag$` of Postgres; `$1` is refused.
    fn skip_dollar(&mut self) -> Result<(), TemplateError> {
        let rest = &self.text[self.at..];
        if rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
            return Err(TemplateError::Positional);
        }
        let tag_length = rest[1..].find(|c: char| !(c.is_alphanumeric() || c == '_'));
        let Some(tag_length) = tag_length.filter(|n| rest[1 + n..].starts_with('$')) else {
            self.at += 1;
            return Ok(());
        };
        let tag = &rest[..tag_length + 2];
        match rest[tag.len()..].find(tag) {
            Some(length) => self.at += length + 2 * tag.len(),
            None => return Err(TemplateError::Unterminated(self.at)),
        }
        Ok(())
    }

    /// A name is letters, digits, `_`, and inner dots, and begins with a letter or `_`;
    /// after `header.` a `-` may stand inside too.
    fn name_end(&self, from: usize) -> usize {
        let rest = &self.text[from..];
        if !rest.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return from;
        }
        let hyphens = rest.starts_with("header.");
        let end = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.' || (hyphens && c == '-')))
            .unwrap_or(rest.len());
        from + rest[..end].trim_end_matches(['.', '-']).len()
    }
}

fn parse_param(name: &str) -> Result<Param, TemplateError> {
    let (head, rest) = name.split_once('.').unwrap_or((name, ""));
    match (head, rest) {
        ("key" | "before" | "header" | "meta", "") => Err(TemplateError::NoName(head.to_owned())),
        ("key", field) => Ok(Param::Key(field.to_owned())),
        ("before", field) => Ok(Param::Before(field.to_owned())),
        ("header", header) => Ok(Param::Header(header.to_owned())),
        ("meta", what) => Ok(Param::Meta(match what {
            "messageId" => Meta::MessageId,
            "correlationId" => Meta::CorrelationId,
            "topic" => Meta::Topic,
            "partition" => Meta::Partition,
            "offset" => Meta::Offset,
            "op" => Meta::Op,
            "sourceTime" => Meta::SourceTime,
            _ => return Err(TemplateError::UnknownMeta(name.to_owned())),
        })),
        _ => Ok(Param::Field(name.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sql: &str) -> Vec<Param> {
        Template::parse(sql).expect("parses").params().cloned().collect()
    }

    #[test]
    fn parameters_are_found_where_values_stand_and_nowhere_else() {
        let sql =
            "INSERT INTO t VALUES (:a, ':b', \":c\", `:d`, :e.f::numeric, $$ :g $$, $x$ :h $x$ -- :i\n, :j /* :k */)";
        let field = |name: &str| Param::Field(name.to_owned());
        assert_eq!(names(sql), [field("a"), field("e.f"), field("j")]);
    }

    #[test]
    fn the_statement_comes_back_with_placeholders_in_order() {
        let template = Template::parse("UPDATE a SET b = b - :amount WHERE id = :key.id AND b >= :amount;").unwrap();
        let rendered = template.render(|n, _| format!("${}", n + 1));
        assert_eq!(rendered, "UPDATE a SET b = b - $1 WHERE id = $2 AND b >= $3");
    }

    #[test]
    fn scopes_are_told_apart() {
        assert_eq!(
            names("SELECT :key.id, :before.x, :header.ce-id, :meta.messageId"),
            [
                Param::Key("id".into()),
                Param::Before("x".into()),
                Param::Header("ce-id".into()),
                Param::Meta(Meta::MessageId)
            ]
        );
    }

    #[test]
    fn what_cannot_be_bound_is_refused() {
        assert_eq!(Template::parse(" ; "), Err(TemplateError::Empty));
        assert_eq!(Template::parse("SELECT ?"), Err(TemplateError::Positional));
        assert_eq!(Template::parse("SELECT $1"), Err(TemplateError::Positional));
        assert_eq!(Template::parse("SELECT 1; DROP TABLE t"), Err(TemplateError::Several));
        assert_eq!(Template::parse("SELECT 'x"), Err(TemplateError::Unterminated(7)));
        assert_eq!(Template::parse("SELECT :meta.x"), Err(TemplateError::UnknownMeta("meta.x".into())));
        assert_eq!(Template::parse("SELECT :header."), Err(TemplateError::NoName("header".into())));
    }
}
