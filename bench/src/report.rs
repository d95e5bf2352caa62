//! What was measured: a table for people, documents for programs, and the curves.

use std::fs;
use std::path::PathBuf;

use crate::Outcome;
use crate::args::Args;
use crate::chart::Chart;
use crate::json::{Json, short};
use crate::rows::{ROWS, Row};
use crate::service::Program;
use crate::stats::{median, ratio};

/// The runs behind a row.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Of the floor.
    pub floor: Vec<f64>,
    /// Of this service.
    pub ours: Vec<f64>,
    /// Of the distribution's.
    pub stock: Vec<f64>,
    /// Of this service without what the row is about.
    pub other: Vec<f64>,
    /// What the distribution's service does where it gives no figure.
    pub says: Option<String>,
    /// Anything that explains the figure.
    pub note: Option<String>,
}

impl Figures {
    /// One figure.
    pub fn ours(value: f64) -> Figures {
        Figures { ours: vec![value], ..Figures::default() }
    }

    /// The runs of a program.
    pub fn of(&mut self, program: Program) -> &mut Vec<f64> {
        match program {
            Program::Floor => &mut self.floor,
            Program::Ours => &mut self.ours,
            Program::Stock => &mut self.stock,
        }
    }

    /// The runs of a program.
    pub fn get(&self, program: Program) -> &[f64] {
        match program {
            Program::Floor => &self.floor,
            Program::Ours => &self.ours,
            Program::Stock => &self.stock,
        }
    }
}

/// Everything measured in a run.
pub struct Report {
    rows: Vec<(&'static Row, Figures)>,
    charts: Vec<String>,
    machine: Option<Json>,
    out: PathBuf,
    quick: bool,
    repeat: usize,
    options: String,
}

impl Report {
    /// Nothing yet.
    pub fn new(args: &Args) -> Report {
        let (out, quick, repeat, options) = (args.out.clone(), args.quick, args.repeat, args.options.clone());
        Report { rows: Vec::new(), charts: Vec::new(), machine: None, out, quick, repeat, options }
    }

    /// The figures of a row.
    pub fn row(&mut self, name: &str, figures: Figures) {
        if let Some(row) = ROWS.iter().find(|r| r.name == name) {
            let line = Line::new(row, &figures);
            eprintln!("bench:   {name}: {}", line.cells().join("  "));
            self.rows.push((row, figures));
        }
    }

    /// A curve: the picture, and the figures that it is drawn from.
    pub fn chart(&mut self, chart: Chart) -> Outcome<()> {
        fs::create_dir_all(&self.out)?;
        fs::write(self.out.join(format!("{}.svg", chart.name())), chart.svg())?;
        fs::write(self.out.join(format!("{}.json", chart.name())), format!("{}\n", chart.json()))?;
        self.charts.push(chart.name().to_owned());
        Ok(())
    }

    /// What it was measured on.
    pub fn machine(&mut self, machine: Json) {
        self.machine = Some(machine);
    }

    /// Prints the table and writes the document.
    pub fn write(mut self) -> Outcome<()> {
        let place = |row: &Row| ROWS.iter().position(|r| r.name == row.name);
        self.rows.sort_by_key(|(row, _)| place(row));
        let lines: Vec<Line> = self.rows.iter().map(|(row, figures)| Line::new(row, figures)).collect();
        if !self.options.is_empty() {
            println!("this service with: {}", self.options.trim_end().replace('\n', ", "));
        }
        print(&lines);
        let missed = lines.iter().filter(|l| !l.met).count();
        match self.quick {
            true => println!("quick: the figures tell nothing but that it works"),
            false => println!("{} of {} reached; median of {} runs", lines.len() - missed, lines.len(), self.repeat),
        }
        let rows = self.rows.iter().zip(&lines).map(|((row, figures), line)| line.json(row, figures)).collect();
        let document = Json::object([
            ("quick", Json::Bool(self.quick)),
            ("repeat", Json::Number(self.repeat as f64)),
            ("options", Json::Text(self.options.trim_end().to_owned())),
            ("machine", self.machine.unwrap_or(Json::Object(Vec::new()))),
            ("charts", Json::List(self.charts.into_iter().map(Json::Text).collect())),
            ("rows", Json::List(rows)),
        ]);
        fs::create_dir_all(&self.out)?;
        fs::write(self.out.join("results.json"), format!("{document}\n"))?;
        Ok(())
    }
}

/// A line of the table.
struct Line {
    what: String,
    floor: f64,
    ours: f64,
    stock: f64,
    other: f64,
    to_floor: f64,
    to_stock: f64,
    to_other: f64,
    says: Option<String>,
    target: String,
    met: bool,
}

impl Line {
    fn new(row: &Row, figures: &Figures) -> Line {
        let to_floor = ratio(&figures.ours, &figures.floor);
        let to_stock = ratio(&figures.ours, &figures.stock);
        let to_other = ratio(&figures.ours, &figures.other);
        let ours = median(&figures.ours);
        Line {
            what: if row.unit.is_empty() { row.what.to_owned() } else { format!("{} ({})", row.what, row.unit) },
            floor: median(&figures.floor),
            ours,
            stock: median(&figures.stock),
            other: median(&figures.other),
            to_floor,
            to_stock,
            to_other,
            says: figures.says.clone(),
            target: row.goal.words(),
            met: row.goal.met(ours, to_floor, to_stock, to_other),
        }
    }

    fn cells(&self) -> [String; 9] {
        let number = |value: f64| if value.is_finite() { short(value) } else { "-".into() };
        let times = |value: f64| if value.is_finite() { format!("{value:.2}") } else { "-".into() };
        [
            self.what.clone(),
            number(self.floor),
            self.says.clone().unwrap_or_else(|| number(self.stock)),
            number(self.ours),
            times(self.to_floor),
            times(self.to_stock),
            times(self.to_other),
            self.target.clone(),
            if self.met { "met" } else { "MISSED" }.to_owned(),
        ]
    }

    fn json(&self, row: &Row, figures: &Figures) -> Json {
        let mut members = vec![
            ("name", Json::Text(row.name.into())),
            ("what", Json::Text(row.what.into())),
            ("unit", Json::Text(row.unit.into())),
            ("floor", Json::Number(self.floor)),
            ("stock", Json::Number(self.stock)),
            ("ours", Json::Number(self.ours)),
            ("without", Json::Number(self.other)),
            ("to_floor", Json::Number(self.to_floor)),
            ("to_stock", Json::Number(self.to_stock)),
            ("to_without", Json::Number(self.to_other)),
            ("target", Json::Text(self.target.clone())),
            ("met", Json::Bool(self.met)),
        ];
        if let Some(says) = &figures.says {
            members.push(("stock_does", Json::Text(says.clone())));
        }
        if let Some(note) = &figures.note {
            members.push(("note", Json::Text(note.clone())));
        }
        for (name, runs) in [
            ("floor_runs", &figures.floor),
            ("stock_runs", &figures.stock),
            ("ours_runs", &figures.ours),
            ("without_runs", &figures.other),
        ] {
            if !runs.is_empty() {
                members.push((name, Json::numbers(runs.iter().copied())));
            }
        }
        Json::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// A table in Markdown, its columns aligned.
fn print(lines: &[Line]) {
    let head = ["what", "floor", "stock", "ours", "/ floor", "/ stock", "/ without", "target", ""].map(String::from);
    let rows: Vec<[String; 9]> = std::iter::once(head).chain(lines.iter().map(Line::cells)).collect();
    let widths: Vec<usize> = (0..9).map(|c| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0)).collect();
    for (number, row) in rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        println!("| {} |", cells.join(" | "));
        if number == 0 {
            println!("|{}|", widths.iter().map(|w| "-".repeat(w + 2)).collect::<Vec<_>>().join("|"));
        }
    }
}
