//! Which columns the parameters of a statement go to, where that can be read off its text.

use super::template::{Part, Template};

/// The table that a statement writes to, and for each parameter the column that takes it as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Targets {
    pub table: Vec<Name>,
    pub columns: Vec<Option<Name>>,
}

/// An identifier as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub text: String,
    /// An unquoted name is folded to lower case on Postgres.
    pub quoted: bool,
}

/// A piece of a statement, as far as it matters here.
#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(Name),
    Sign(char),
    Param(usize),
    /// A number or a text.
    Constant,
}

/// Reads `INSERT INTO t (a, b) VALUES (:a, :b)…` and `UPDATE t SET a = :a, …`; in any other statement, and for a
/// parameter inside an expression, nothing is known.
pub(super) fn targets(template: &Template) -> Targets {
    let tokens = tokens(template);
    let mut targets = Targets { table: Vec::new(), columns: vec![None; template.params().count()] };
    let mut reader = Reader { tokens: &tokens, at: 0 };
    if reader.words(&["insert", "into"]) {
        reader.insert(&mut targets);
    } else if reader.words(&["update"]) {
        reader.update(&mut targets);
    }
    targets
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl Reader<'_> {
    fn insert(&mut self, targets: &mut Targets) {
        let Some(table) = self.path() else { return };
        let Some(columns) = self.columns() else { return };
        if !self.words(&["values"]) {
            return;
        }
        targets.table = table;
        // One row after the other; what follows them (ON CONFLICT …) is not looked at.
        while self.sign('(') {
            for column in &columns {
                self.value(Some(column), targets);
                if !self.sign(',') {
                    break;
                }
            }
            if !self.sign(')') || !self.sign(',') {
                return;
            }
        }
    }

    fn update(&mut self, targets: &mut Targets) {
        let Some(table) = self.path() else { return };
        if !self.words(&["set"]) {
            return;
        }
        targets.table = table;
        loop {
            let Some(Token::Name(column)) = self.tokens.get(self.at).cloned() else { return };
            self.at += 1;
            if !self.sign('=') {
                return;
            }
            self.value(Some(&column), targets);
            if !self.sign(',') {
                return;
            }
        }
    }

    /// Goes to the end of a value; one that is a parameter and nothing else has its column.
    fn value(&mut self, column: Option<&Name>, targets: &mut Targets) {
        let from = self.at;
        let mut depth = 0;
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::Sign('(') => depth += 1,
                Token::Sign(')') if depth == 0 => break,
                Token::Sign(')') => depth -= 1,
                Token::Sign(',') if depth == 0 => break,
                Token::Name(name) if depth == 0 && !name.quoted && ends_value(&name.text) => break,
                _ => {}
            }
            self.at += 1;
        }
        if let [Token::Param(index)] = &self.tokens[from..self.at] {
            targets.columns[*index] = column.cloned();
        }
    }

    fn columns(&mut self) -> Option<Vec<Name>> {
        let mut columns = Vec::new();
        if !self.sign('(') {
            return None;
        }
        loop {
            let Some(Token::Name(column)) = self.tokens.get(self.at).cloned() else { return None };
            columns.push(column);
            self.at += 1;
            if self.sign(')') {
                return Some(columns);
            }
            if !self.sign(',') {
                return None;
            }
        }
    }

    fn path(&mut self) -> Option<Vec<Name>> {
        let mut path = Vec::new();
        loop {
            let Some(Token::Name(name)) = self.tokens.get(self.at).cloned() else { return None };
            path.push(name);
            self.at += 1;
            if !self.sign('.') {
                return Some(path);
            }
        }
    }

    fn words(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(n, word)| {
            matches!(self.tokens.get(self.at + n), Some(Token::Name(name)) if !name.quoted && name.text.eq_ignore_ascii_case(word))
        });
        if found {
            self.at += words.len();
        }
        found
    }

    fn sign(&mut self, sign: char) -> bool {
        let found = self.tokens.get(self.at) == Some(&Token::Sign(sign));
        self.at += usize::from(found);
        found
    }
}

fn ends_value(word: &str) -> bool {
    ["where", "from", "returning", "order", "limit"].iter().any(|end| word.eq_ignore_ascii_case(end))
}

fn tokens(template: &Template) -> Vec<Token> {
    let (mut tokens, mut params) = (Vec::new(), 0);
    for part in template.parts() {
        match part {
            Part::Param(_) => {
                tokens.push(Token::Param(params));
                params += 1;
            }
            Part::Sql(text) => sql_tokens(text, &mut tokens),
        }
    }
    tokens
}

fn sql_tokens(text: &str, tokens: &mut Vec<Token>) {
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = match c {
            _ if c.is_whitespace() => c.len_utf8(),
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' | '`' | '\'' => {
                let (content, end) = quoted(rest, c);
                tokens.push(match c {
                    '\'' => Token::Constant,
                    _ => Token::Name(Name { text: content, quoted: true }),
                });
                end
            }
            _ if c.is_alphanumeric() || c == '_' => {
                let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
                tokens.push(match c.is_numeric() {
                    true => Token::Constant,
                    false => Token::Name(Name { text: rest[..end].to_owned(), quoted: false }),
                });
                end
            }
            sign => {
                tokens.push(Token::Sign(sign));
                sign.len_utf8()
            }
        };
        rest = &rest[end..];
    }
}

/// What stands between quotes, doubled ones inside, and where it ends.
fn quoted(text: &str, quote: char) -> (String, usize) {
    let mut content = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c != quote {
            content.push(c);
        } else if chars.peek().is_some_and(|(_, next)| *next == quote) {
            content.push(quote);
            chars.next();
        } else {
            return (content, at + quote.len_utf8());
        }
    }
    (content, text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> (String, Vec<String>) {
        let targets = targets(&Template::parse(sql).unwrap());
        let name = |name: &Name| if name.quoted { format!("<{}>", name.text) } else { name.text.clone() };
        let table = targets.table.iter().map(name).collect::<Vec<_>>().join(".");
        (table, targets.columns.iter().map(|column| column.as_ref().map_or("-".to_owned(), name)).collect())
    }

    #[test]
    fn parameters_that_are_a_whole_value_have_their_column() {
        for (sql, table, columns) in [
            ("INSERT INTO t (a, b) VALUES (:x, :y)", "t", "a b"),
            (
                "insert into s.t (a, \"B_C\", d) values (:x, 'k', lower(:y)), (:z, :q, 1) ON CONFLICT DO NOTHING",
                "s.t",
                "a - a <B_C>",
            ),
            ("UPDATE `t` SET a = :x, b = b - :y, c = (:z), d = :q WHERE e = :r", "<t>", "a - - d -"),
            ("INSERT INTO t VALUES (:x)", "", "-"),
            ("INSERT INTO t (a) SELECT :x", "", "-"),
            ("DELETE FROM t WHERE a = :x", "", "-"),
            ("WITH w AS (SELECT 1) UPDATE t SET a = :x", "", "-"),
            ("INSERT INTO t (a) VALUES (:x + 1)", "t", "-"),
        ] {
            let expected: Vec<&str> = columns.split(' ').collect();
            let (of, found) = read(sql);
            assert_eq!((of.as_str(), found), (table, expected.iter().map(ToString::to_string).collect()), "{sql}");
        }
    }
}
