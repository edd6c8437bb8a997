//! The results, as the README shows them.

use super::meter::Score;

pub struct Table {
    title: String,
    rows: Vec<String>,
}

impl Table {
    pub fn new(title: &str) -> Self {
        println!("… {title}");
        Self { title: title.to_owned(), rows: Vec::new() }
    }

    /// With the rate's ratio to another one, where it is compared.
    pub fn row(&mut self, name: &str, score: &Score, to: Option<&Score>) {
        let number =
            |value: Option<f64>, digits: usize| value.map_or("".to_owned(), |value| format!("{value:.digits$}"));
        let ratio = number(to.map(|to| score.rate / to.rate), 2);
        let (cpu, peak) = (number(score.cpu, 3), number(score.peak, 0));
        self.line(format!("| {name} | {:.0} | {ratio} | {cpu} | {peak} |", score.rate));
    }

    pub fn line(&mut self, line: String) {
        println!("{line}");
        self.rows.push(line);
    }

    pub fn print(&self) {
        println!("\n### {}\n", self.title);
        println!("| what | messages/s | ratio | CPU s per 1,000 | peak MB |\n|---|---|---|---|---|");
        self.rows.iter().for_each(|row| println!("{row}"));
        println!();
    }
}
