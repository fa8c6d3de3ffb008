//! `spread`: where the ids of a source land, over time and over the regions of a table or the residues of a modulo.
//!
//! The ids are those that the source makes, on a store in memory and a clock that this file moves. The picture is drawn as
//! TiDB's Key Visualizer draws load: time to the right, regions upwards. The more ids a cell has, the fuller it is in a terminal, and the
//! darker in the file.

use std::fmt::Write as _;
use std::path::Path;

use keymill::scatter::Scatter;
use keymill::{Error, Kind, Mill, Result, Source};
use plotters::prelude::*;
use serde_json::json;

use crate::layout::now_ms;
use crate::print;

/// Columns of the picture; each is a second.
const SLICES: usize = 60;
/// How often a second ids are taken, and how many of each worker: single ids show whether low digits are even.
const TURNS: usize = 250;
const IDS_AT_ONCE: usize = 1;
/// The most rows of the picture in a terminal.
const MOST_ROWS: usize = 32;
/// From nothing to the hottest region of all.
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];

/// What is to be drawn.
#[derive(Clone, Copy, Debug)]
pub struct SpreadOptions<'a> {
    /// How many regions, for which `scatter` has a default.
    pub regions: Option<u32>,
    /// Residues instead of regions.
    pub modulo: Option<u32>,
    /// How many processes make ids, each with a worker of its own.
    pub workers: u16,
    /// The file for the picture.
    pub svg: Option<&'a Path>,
}

/// Ids by slice and region.
struct Picture {
    counts: Vec<Vec<u64>>,
    regions: usize,
    divided_into: String,
}

/// Makes ids and shows where they land.
pub fn show(spec: &str, wanted: SpreadOptions<'_>, json: bool) -> Result<()> {
    let slices = ids(spec, wanted.workers)?;
    let picture = Picture::of(spec, &slices, wanted)?;
    if let Some(file) = wanted.svg {
        picture.draw(spec, file)?;
    }
    let ids: u64 = picture.counts.iter().flatten().sum();
    let shares: Vec<f64> = picture.counts.iter().map(|slice| hottest_share(slice)).collect();
    let fields = [
        ("source", spec.to_owned()),
        ("ids", ids.to_string()),
        (if wanted.modulo.is_some() { "residues" } else { "regions" }, picture.regions.to_string()),
        ("even share", percent(1.0 / picture.regions as f64)),
        ("hottest share of a second", percent(shares.iter().sum::<f64>() / shares.len() as f64)),
        ("hottest share of any second", percent(shares.iter().copied().fold(0.0, f64::max))),
        ("chi-square", format!("{:.1}, {} degrees of freedom", picture.chi_square(), picture.regions - 1)),
    ];
    if json {
        let fields = fields.iter().map(|(name, value)| (name.replace(' ', "_"), value.clone().into()));
        let mut answer: serde_json::Map<_, _> = fields.collect();
        answer.insert("counts".to_owned(), json!(picture.counts));
        return print::json(&answer.into());
    }
    print::text(&picture.in_text())?;
    print::fields(false, &fields)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn hottest_share(slice: &[u64]) -> f64 {
    *slice.iter().max().unwrap_or(&0) as f64 / slice.iter().sum::<u64>().max(1) as f64
}

/// The ids of each second, of all workers.
fn ids(spec: &str, workers: u16) -> Result<Vec<Vec<u64>>> {
    let start_ms = now_ms();
    let mut slices = vec![Vec::new(); SLICES];
    let shared = Mill::open("memory:?clock=manual")?;
    let base = shared.source(spec)?;
    if base.kind() == Kind::Business {
        return Err(Error::argument(format!(
            "where ids of `{}` land depends on their keys, not on the spec; `keymill heat` shows how many each range of genes has reserved",
            base.label()
        )));
    }
    if let Some(layout) = base.layout()
        && u64::from(workers) > layout.max_worker() + 1
    {
        return Err(Error::argument(format!(
            "--workers {workers} do not fit layout {layout}: it has {}",
            layout.max_worker() + 1
        )));
    }
    for worker in 0..u64::from(workers) {
        let source = match base.layout() {
            // Marks of workers are rows of their own, so that one store serves them all.
            Some(layout) => {
                let first = base
                    .settings()
                    .iter()
                    .find(|(name, _)| *name == "worker")
                    .and_then(|(_, n)| n.parse().ok());
                let worker = (first.unwrap_or(0) + worker) % (layout.max_worker() + 1);
                let mill = Mill::open("memory:?clock=manual")?;
                mill.source(&with_worker(spec, worker))?
            }
            None => Mill::open("memory:?clock=manual")?.source(spec)?,
        };
        make(&source, start_ms, &mut slices)?;
        source.mill().close();
    }
    Ok(slices)
}

fn make(source: &Source, start_ms: i64, slices: &mut [Vec<u64>]) -> Result<()> {
    let mill = source.mill();
    for (second, slice) in slices.iter_mut().enumerate() {
        for turn in 0..TURNS {
            mill.set_clock(start_ms + (second * 1000 + turn * 1000 / TURNS) as i64)?;
            slice.extend(source.take(IDS_AT_ONCE)?);
        }
    }
    Ok(())
}

/// The spec with a worker of its own, which is given and not leased.
fn with_worker(spec: &str, worker: u64) -> String {
    let (name, options) = spec.split_once('?').unwrap_or((spec, ""));
    let of_leases = ["worker=", "lease=", "pool=", "slots="];
    let others = options
        .split('&')
        .filter(|option| !option.is_empty() && !of_leases.iter().any(|name| option.starts_with(name)));
    let options: Vec<String> = others.map(str::to_owned).chain([format!("worker={worker}")]).collect();
    format!("{name}?{}", options.join("&"))
}

impl Picture {
    fn of(spec: &str, slices: &[Vec<u64>], wanted: SpreadOptions<'_>) -> Result<Picture> {
        let layout = Mill::open("memory:?clock=manual")?.source(spec)?.layout();
        let scatter = layout.map_or(Scatter::None, |layout| layout.scatter());
        let (regions, divided_into): (usize, String) = match (wanted.modulo, wanted.regions) {
            (Some(modulo), _) => (modulo as usize, format!("id modulo {modulo}")),
            (None, Some(regions)) => (regions as usize, format!("{regions} regions of the table")),
            (None, None) => {
                let regions = if scatter == Scatter::None { MOST_ROWS as u64 } else { scatter.regions() };
                (regions as usize, format!("{regions} regions of the table"))
            }
        };
        if regions < 2 {
            return Err(Error::argument("a picture has 2 regions or residues at least"));
        }
        let ids = || slices.iter().flatten().copied();
        // Scattered ids fill their window; others only what lies between the first and the last.
        let window = layout.and_then(|layout| layout.window(now_ms()));
        let lo = window.map_or_else(|| ids().min().unwrap_or(0), |window| window.lo);
        let hi = window.map_or_else(|| ids().max().unwrap_or(0) + 1, |window| window.hi);
        let region_of = |id: u64| match wanted.modulo {
            Some(modulo) => (id % u64::from(modulo)) as usize,
            None => {
                let part = u128::from(id.clamp(lo, hi - 1) - lo) * regions as u128 / u128::from(hi - lo);
                part as usize
            }
        };
        let counts = slices.iter().map(|slice| {
            let mut counts = vec![0; regions];
            for id in slice {
                counts[region_of(*id)] += 1;
            }
            counts
        });
        Ok(Picture { counts: counts.collect(), regions, divided_into })
    }

    /// How far the counts of all seconds together are from even ones.
    fn chi_square(&self) -> f64 {
        let totals: Vec<u64> =
            (0..self.regions).map(|region| self.counts.iter().map(|slice| slice[region]).sum()).collect();
        let expected = totals.iter().sum::<u64>() as f64 / self.regions as f64;
        totals.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum()
    }

    fn hottest(&self) -> u64 {
        self.counts.iter().flatten().copied().max().unwrap_or(0).max(1)
    }

    /// The highest region first; neighbours share a row where there are too many.
    fn in_text(&self) -> String {
        let in_row = self.regions.div_ceil(MOST_ROWS);
        let rows: Vec<Vec<u64>> = (0..self.regions)
            .step_by(in_row)
            .map(|first| {
                let range = first..(first + in_row).min(self.regions);
                self.counts.iter().map(|slice| slice[range.clone()].iter().sum()).collect()
            })
            .collect();
        let most = rows.iter().flatten().copied().max().unwrap_or(0).max(1);
        let mut text = format!("{}, {SLICES} seconds\n", self.divided_into);
        for row in rows.iter().rev() {
            let cells =
                row.iter().map(|count| SHADES[(*count * (SHADES.len() as u64 - 1)).div_ceil(most) as usize]);
            let _ = writeln!(text, "│{}│", cells.collect::<String>());
        }
        text
    }

    fn draw(&self, spec: &str, file: &Path) -> Result<()> {
        let failed = |error: &dyn std::fmt::Display| {
            Error::argument(format!("`{}` cannot be drawn: {error}", file.display()))
        };
        let area = SVGBackend::new(file, (760, 360)).into_drawing_area();
        let drawn = area.fill(&WHITE).map_err(|error| failed(&error)).and_then(|()| {
            let mut chart = ChartBuilder::on(&area)
                .caption(spec, ("sans-serif", 15))
                .margin(10)
                .x_label_area_size(36)
                .y_label_area_size(50)
                .build_cartesian_2d(0..SLICES, 0..self.regions)
                .map_err(|error| failed(&error))?;
            chart
                .configure_mesh()
                .disable_mesh()
                .x_desc("seconds")
                .y_desc(&self.divided_into)
                .draw()
                .map_err(|error| failed(&error))?;
            let most = self.hottest() as f64;
            let cells = self.counts.iter().enumerate().flat_map(|(second, slice)| {
                slice.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(region, count)| {
                    let heat = *count as f64 / most;
                    // From light to dark blue.
                    let colour = RGBColor(
                        (225.0 - 217.0 * heat) as u8,
                        (236.0 - 188.0 * heat) as u8,
                        (247.0 - 140.0 * heat) as u8,
                    );
                    Rectangle::new([(second, region), (second + 1, region + 1)], colour.filled())
                })
            });
            chart.draw_series(cells).map_err(|error| failed(&error)).map(drop)
        });
        drawn.and_then(|()| area.present().map_err(|error| failed(&error)))
    }
}
