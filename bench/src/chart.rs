//! Curves as SVG, readable on light and dark ground, and as the figures that they are drawn from.

use std::fmt::Write as _;

use crate::json::{Json, short};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 84.0;

/// How programs are drawn, in all pictures alike: colours on light and on dark ground, dashes of the first and the second
/// curve.
const INKS: [(&str, &str, &str, &str, &str); 3] = [
    ("floor", "#1b7a3d", "#67d38d", "2 3", "2 6"),
    ("ours", "#0b62c4", "#6cb2ff", "none", "14 4"),
    ("stock", "#b3420a", "#ff9d5c", "7 4", "9 3 2 3"),
];

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    Linear,
    Log,
    /// Shares of all: each nine takes as much room as the last.
    Shares,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    label: String,
    scale: Scale,
}

impl Axis {
    /// The shares that a distribution is drawn at.
    pub const SHARES: [f64; 20] = [
        0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9998,
        0.9999,
    ];

    /// Even steps, from zero on.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.into(), scale: Scale::Linear }
    }

    /// Each step so many times the last.
    pub fn log(label: &str) -> Axis {
        Axis { label: label.into(), scale: Scale::Log }
    }

    /// Shares of all that was measured.
    pub fn shares() -> Axis {
        Axis { label: "share of all, %".into(), scale: Scale::Shares }
    }

    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(1e-9).log10(),
            Scale::Shares => -(1.0 - value.clamp(0.0, 0.999_999)).log10(),
        }
    }

    /// Values that are named on the axis.
    fn ticks(&self, low: f64, high: f64) -> Vec<f64> {
        match self.scale {
            Scale::Shares => vec![0.5, 0.9, 0.99, 0.999, 0.9999],
            Scale::Log => {
                let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
                let all: Vec<f64> = decades.flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d))).collect();
                let within = |v: &f64| *v >= low * 0.999 && *v <= high * 1.001;
                let fine: Vec<f64> = all.iter().copied().filter(within).collect();
                if fine.len() <= 10 { fine } else { all.into_iter().step_by(3).filter(within).collect() }
            }
            Scale::Linear => {
                let rough = high / 6.0;
                let power = 10f64.powf(rough.log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough);
                (0..=(high / step) as usize).map(|n| n as f64 * step).collect()
            }
        }
    }

    fn name(&self, value: f64) -> String {
        match self.scale {
            Scale::Shares => short(value * 100.0),
            _ if value >= 1e6 => format!("{}M", short(value / 1e6)),
            _ if value >= 1e4 => format!("{}k", short(value / 1e3)),
            _ => short(value),
        }
    }
}

/// A picture with curves.
#[derive(Clone, Debug)]
pub struct Chart {
    name: String,
    title: String,
    x: Axis,
    y: Axis,
    series: Vec<(String, Vec<(f64, f64)>)>,
}

impl Chart {
    /// An empty one.
    pub fn new(name: &str, title: &str, x: Axis, y: Axis) -> Chart {
        Chart { name: name.into(), title: title.into(), x, y, series: Vec::new() }
    }

    /// What its files are called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds a curve.
    pub fn series(&mut self, name: &str, mut points: Vec<(f64, f64)>) {
        points.retain(|(x, y)| x.is_finite() && y.is_finite());
        self.series.push((name.into(), points));
    }

    /// The style of a curve: its program's, and whether it is that one's first.
    fn class(&self, number: usize) -> String {
        let program = |at: usize| INKS.iter().find(|ink| self.series[at].0.starts_with(ink.0)).map_or("", |ink| ink.0);
        let before = (0..number).filter(|&at| program(at) == program(number)).count();
        format!("{}{}", program(number), before.min(1))
    }

    /// The figures.
    pub fn json(&self) -> Json {
        let series = self.series.iter().map(|(name, points)| {
            Json::object([
                ("name", Json::Text(name.clone())),
                ("x", Json::numbers(points.iter().map(|p| p.0))),
                ("y", Json::numbers(points.iter().map(|p| p.1))),
            ])
        });
        Json::object([
            ("title", Json::Text(self.title.clone())),
            ("x", Json::Text(self.x.label.clone())),
            ("y", Json::Text(self.y.label.clone())),
            ("series", Json::List(series.collect())),
        ])
    }

    /// Least and greatest value along an axis.
    fn range(&self, axis: &Axis, of: impl Fn(&(f64, f64)) -> f64) -> (f64, f64) {
        let values = self.series.iter().flat_map(|(_, points)| points.iter().map(&of));
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        match axis.scale {
            _ if low > high => (1.0, 10.0),
            Scale::Linear => (0.0, if high > 0.0 { high * 1.05 } else { 1.0 }),
            Scale::Log if high <= low => (low / 2.0, high * 2.0),
            Scale::Log | Scale::Shares => (low, high),
        }
    }

    /// The picture.
    pub fn svg(&self) -> String {
        let (x_range, mut y_range) = (self.range(&self.x, |p| p.0), self.range(&self.y, |p| p.1));
        if self.y.scale == Scale::Log {
            // Off the edges.
            y_range = (y_range.0 / 1.2, y_range.1 * 1.2);
        }
        let along = |axis: &Axis, value: f64, (low, high): (f64, f64)| {
            let (from, to) = (axis.place(low), axis.place(high));
            ((axis.place(value) - from) / (to - from).max(1e-12)).clamp(0.0, 1.0)
        };
        let x = |value: f64| LEFT + along(&self.x, value, x_range) * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - along(&self.y, value, y_range) * (HEIGHT - TOP - BOTTOM);
        let mut body = String::new();
        for tick in self.x.ticks(x_range.0, x_range.1) {
            let (at, name) = (x(tick), self.x.name(tick));
            let _ = writeln!(body, r#"<path class="grid" d="M{at:.1} {TOP}V{:.1}"/>"#, HEIGHT - BOTTOM);
            let below = HEIGHT - BOTTOM + 18.0;
            let _ = writeln!(body, r#"<text x="{at:.1}" y="{below}" text-anchor="middle">{name}</text>"#);
        }
        for tick in self.y.ticks(y_range.0, y_range.1) {
            let (at, name) = (y(tick), self.y.name(tick));
            let _ = writeln!(body, r#"<path class="grid" d="M{LEFT} {at:.1}H{:.1}"/>"#, WIDTH - RIGHT);
            let (beside, at) = (LEFT - 8.0, at + 4.0);
            let _ = writeln!(body, r#"<text x="{beside}" y="{at:.1}" text-anchor="end">{name}</text>"#);
        }
        for (number, (name, points)) in self.series.iter().enumerate() {
            let class = self.class(number);
            let places: Vec<String> = points.iter().map(|p| format!("{:.1} {:.1}", x(p.0), y(p.1))).collect();
            if !places.is_empty() {
                let _ = writeln!(body, r#"<path class="line {class}" d="M{}"/>"#, places.join("L"));
            }
            let (at, low) = (LEFT + 150.0 * number as f64, HEIGHT - 16.0);
            let _ = writeln!(body, r#"<path class="line {class}" d="M{at} {:.1}h30"/>"#, low - 4.0);
            let _ = writeln!(body, r#"<text x="{}" y="{low}">{name}</text>"#, at + 36.0);
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        let _ = writeln!(
            body,
            r#"<text x="{middle}" y="{}" text-anchor="middle">{}</text>"#,
            HEIGHT - BOTTOM + 40.0,
            self.x.label
        );
        let _ = writeln!(body, r#"<text x="{LEFT}" y="{}" text-anchor="end">{}</text>"#, TOP - 10.0, self.y.label);
        let _ = writeln!(body, r#"<text class="title" x="{middle}" y="22" text-anchor="middle">{}</text>"#, self.title);
        format!("{}{}{body}</svg>\n", head(), style())
    }
}

fn head() -> String {
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">"#
    ) + "\n"
}

/// A ground of its own, so that it does not matter what the picture lies on.
fn style() -> String {
    let series = |dark: bool| {
        INKS.iter().fold(String::new(), |mut out, (name, light_ink, dark_ink, first, second)| {
            let ink = if dark { dark_ink } else { light_ink };
            for (number, dashes) in [first, second].iter().enumerate() {
                let _ = write!(out, ".{name}{number}{{stroke:{ink};stroke-dasharray:{dashes}}}");
            }
            out
        })
    };
    format!(
        "<style>text{{font:13px sans-serif;fill:#222}}.title{{font-size:16px}}.ground{{fill:#fff}}\
         .grid{{stroke:#ddd}}.line{{fill:none;stroke-width:2.2}}{}\
         @media(prefers-color-scheme:dark){{text{{fill:#e6e6e6}}.ground{{fill:#16181d}}.grid{{stroke:#3a3f49}}{}}}</style>\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
        series(false),
        series(true)
    )
}
