//! `cargo xtask bench`: what Composer does, beside what PostgreSQL does on the same machine in the same minutes.
//!
//! A rate by itself says little: machines differ, and drift. So each round measures everything once, one after the
//! other, each in a database of its own after a checkpoint, and what counts is the median over the rounds of the
//! *ratio* to the baseline of the same round:
//!
//! * throughput to `pgbench` with 64 clients that insert one prepared row a transaction, each row with the key and the
//!   payload of a journal row;
//! * the latency of a lone run to as many single-row inserts as it needs commits, by the same driver on a kept
//!   connection (`composer-bench inserts`).
//!
//! The server keeps its default durability; checkpoints are kept out of the measurements. Its data lie under `TMPDIR`,
//! which should be on a real disk.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cargo, run as run_command};
use crate::servers::Servers;
use crate::{Result, postgres};

/// As one would set a server that is written to a lot; no checkpoint falls into a measurement.
const SETTINGS: [&str; 2] = ["max_wal_size=8GB", "checkpoint_timeout=30min"];

/// One line of the table: how it is measured and what it is held against.
struct Measurement {
    name: &'static str,
    /// What `composer-bench` is asked for; nothing for `pgbench`.
    arguments: &'static [&'static str],
    /// The figure that is compared, larger or smaller being better.
    figure: Figure,
    baseline: Option<Baseline>,
}

#[derive(Clone, Copy)]
enum Figure {
    PerSecond,
    P50,
    FirstProgress,
}

struct Baseline {
    name: &'static str,
    times: f64,
    goal: &'static str,
}

const PGBENCH: &str = "pgbench, 64 clients, single inserts";
const INSERTS: &str = "inserts, one kept connection";

const MEASUREMENTS: [Measurement; 9] = [
    Measurement { name: PGBENCH, arguments: &[], figure: Figure::PerSecond, baseline: None },
    Measurement {
        name: "throughput, C=64, K=10",
        arguments: &["throughput", "--c", "64", "--k", "10"],
        figure: Figure::PerSecond,
        baseline: Some(Baseline { name: PGBENCH, times: 1.0, goal: "at least 1.5" }),
    },
    Measurement {
        name: "throughput, C=256, K=10",
        arguments: &["throughput", "--c", "256", "--k", "10"],
        figure: Figure::PerSecond,
        baseline: Some(Baseline { name: PGBENCH, times: 1.0, goal: "at least 3" }),
    },
    Measurement { name: INSERTS, arguments: &["inserts"], figure: Figure::P50, baseline: None },
    Measurement {
        name: "latency, lone run, K=10",
        arguments: &["latency", "--k", "10"],
        figure: Figure::P50,
        baseline: Some(Baseline { name: INSERTS, times: 11.0, goal: "at most 1.8 of 11 inserts" }),
    },
    Measurement {
        name: "latency, lone run, K=1",
        arguments: &["latency", "--k", "1"],
        figure: Figure::P50,
        baseline: Some(Baseline { name: INSERTS, times: 2.0, goal: "(of 2 inserts)" }),
    },
    Measurement {
        name: "fan-out, one run joins 1000",
        arguments: &["fanout"],
        figure: Figure::PerSecond,
        baseline: Some(Baseline { name: PGBENCH, times: 1.0, goal: "" }),
    },
    Measurement {
        name: "recovery, a worker killed",
        arguments: &["recovery"],
        figure: Figure::FirstProgress,
        baseline: None,
    },
    // Last, so that a comparison with the first shows how far the machine drifted within a round.
    Measurement { name: "pgbench again", arguments: &[], figure: Figure::PerSecond, baseline: None },
];

/// Measures, and prints every line that was measured and then the table.
///
/// # Errors
/// When the server does not start or the benchmark does not compile; a workload that fails is left out of the table.
pub fn run(args: &[String]) -> Result<()> {
    let options = Options::parse(args)?;
    run_command(&mut cargo(&["build", "--release", "--package", "composer-bench"]))?;
    let mut servers = Servers::start(&SETTINGS)?;
    let pgbench = postgres::find()?.map(|bin| bin.join("pgbench")).filter(|program| program.is_file());
    let pgbench =
        pgbench.ok_or("pgbench is missing beside the server: install PostgreSQL's contrib programs")?;
    let mut session = Session::begin(&mut servers, pgbench, &options)?;
    let mut results = Results::default();
    for round in 1..=options.rounds {
        for measurement in MEASUREMENTS.iter().filter(|it| options.wants(it)) {
            match session.measure(measurement) {
                Ok(line) => {
                    println!("round {round}: {line}");
                    results.add(measurement.name, line);
                }
                Err(why) => eprintln!("xtask: {}, round {round}: {why}", measurement.name),
            }
        }
    }
    println!("\n{}", results.table());
    Ok(())
}

struct Options {
    rounds: u32,
    seconds: u32,
    workloads: Vec<String>,
    /// For every call of `composer-bench`.
    passed_on: Vec<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self> {
        let mut options = Self { rounds: 3, seconds: 5, workloads: Vec::new(), passed_on: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = || -> Result<u32> {
                let value = args.next().and_then(|value| value.parse().ok()).filter(|value| *value > 0);
                value.ok_or(format!("bench: {arg} needs a number"))
            };
            match arg.as_str() {
                "--rounds" => options.rounds = number()?,
                "--secs" => options.seconds = number()?,
                "--" => options.passed_on = args.by_ref().cloned().collect(),
                option if option.starts_with('-') => {
                    return Err(format!(
                        "bench: no option {option}; what follows `--` goes to composer-bench"
                    ));
                }
                workload => options.workloads.push(workload.to_owned()),
            }
        }
        Ok(options)
    }

    /// Baselines are always measured: without them there is no ratio.
    fn wants(&self, measurement: &Measurement) -> bool {
        let named = |workload: &String| measurement.arguments.first().is_some_and(|name| name == workload);
        self.workloads.is_empty() || measurement.baseline_for_others() || self.workloads.iter().any(named)
    }
}

impl Measurement {
    fn baseline_for_others(&self) -> bool {
        self.name == PGBENCH || self.name == INSERTS
    }
}

/// A server to measure on.
struct Session<'a> {
    servers: &'a mut Servers,
    pgbench: PathBuf,
    options: &'a Options,
    scripts: Scripts,
    databases: u32,
}

impl<'a> Session<'a> {
    fn begin(servers: &'a mut Servers, pgbench: PathBuf, options: &'a Options) -> Result<Self> {
        Ok(Self { servers, pgbench, options, scripts: Scripts::make()?, databases: 0 })
    }

    /// In a database of its own, which is dropped afterwards.
    fn measure(&mut self, measurement: &Measurement) -> Result<Line> {
        self.databases += 1;
        let database = format!("bench_{}", self.databases);
        self.sql("postgres", &format!("create database {database}"))?;
        self.sql("postgres", "checkpoint")?;
        let measured = if measurement.arguments.is_empty() {
            self.single_inserts(&database)
        } else {
            self.composer_bench(&database, measurement.arguments)
        };
        self.sql("postgres", &format!("drop database {database} with (force)"))?;
        measured
    }

    fn single_inserts(&mut self, database: &str) -> Result<Line> {
        self.sql(
            database,
            "create table inserts (run_id uuid, seq bigint, payload bytea, primary key (run_id, seq))",
        )?;
        let insert = "\\set s random(1, 1000000000)\n\
             insert into inserts (run_id, seq, payload) values (gen_random_uuid(), :s, '{\"step\":\"charge_card\",\
             \"status\":\"ok\",\"result\":{\"id\":\"ch_1234567890abcdef\",\"amount\":1999,\"currency\":\"eur\"}}');\n";
        let script = self.scripts.write("inserts.sql", insert)?;
        let mut pgbench = self.pgbench(database, &script);
        pgbench.args(["-M", "prepared", "-c", "64", "-j", "2", "-T", &self.options.seconds.to_string()]);
        let text = self.servers.output(&mut pgbench)?;
        let rate = text.split("tps = ").nth(1).and_then(|rest| rest.split(' ').next());
        let rate = rate.ok_or_else(|| format!("pgbench printed no rate: {text}"))?;
        Ok(Line(format!(r#"{{"workload":"pgbench","store":"postgres","c":64,"steps_per_s":{rate}}}"#)))
    }

    fn composer_bench(&mut self, database: &str, arguments: &[&str]) -> Result<Line> {
        let mut bench = cargo(&["run", "--quiet", "--release", "--package", "composer-bench", "--"]);
        bench
            .args(arguments)
            .args(["--secs", &self.options.seconds.to_string()])
            .args(&self.options.passed_on)
            .env("COMPOSER_URL", self.url(database));
        let text = self.servers.output(&mut bench)?;
        let line = text.lines().map(str::trim).rfind(|line| line.starts_with('{') && line.ends_with('}'));
        line.map(|line| Line(line.to_owned()))
            .ok_or_else(|| format!("composer-bench printed no line: {text}"))
    }

    fn sql(&mut self, database: &str, statement: &str) -> Result<()> {
        let script = self.scripts.write("once.sql", &format!("{statement};\n"))?;
        let mut pgbench = self.pgbench(database, &script);
        self.servers.output(pgbench.args(["-M", "simple", "-c", "1", "-t", "1"])).map(drop)
    }

    /// Also runs single statements: so the client programs of PostgreSQL are not needed.
    fn pgbench(&self, database: &str, script: &Path) -> Command {
        let mut pgbench = Command::new(&self.pgbench);
        pgbench.arg("-n").arg("-f").arg(script).arg(self.url(database));
        pgbench
    }

    fn url(&self, database: &str) -> String {
        let (server, _) = self.servers.postgres_url().rsplit_once('/').expect("a URL has a path");
        format!("{server}/{database}")
    }
}

/// Script files, removed at the end.
struct Scripts(PathBuf);

impl Scripts {
    fn make() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("composer-bench-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Self(folder))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What one measurement printed: a flat JSON object.
#[derive(Clone)]
struct Line(String);

impl std::fmt::Display for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Line {
    fn number(&self, field: &str) -> Option<f64> {
        let (_, rest) = self.0.split_once(&format!("\"{field}\""))?;
        let value = rest.trim_start().strip_prefix(':')?.trim_start();
        value.split([',', '}', ' ']).next()?.parse().ok()
    }

    fn figure(&self, figure: Figure) -> Option<f64> {
        match figure {
            Figure::PerSecond => self.number("steps_per_s"),
            Figure::P50 => self.number("p50_ms"),
            Figure::FirstProgress => self.number("first_progress_s"),
        }
    }
}

#[derive(Default)]
struct Results {
    lines: BTreeMap<&'static str, Vec<Line>>,
}

impl Results {
    fn add(&mut self, name: &'static str, line: Line) {
        self.lines.entry(name).or_default().push(line);
    }

    fn table(&self) -> String {
        let rounds = self.lines.values().map(Vec::len).max().unwrap_or(0);
        let mut table = format!(
            "medians of {rounds} rounds [lowest..highest]; ratios are to the baseline of the same round\n\n\
             | workload | figure | p50 / p99 ms | ratio | goal |\n|---|---|---|---|---|\n"
        );
        for measurement in &MEASUREMENTS {
            let Some(lines) = self.lines.get(measurement.name) else { continue };
            let row = [
                measurement.name.to_owned(),
                shown_figure(measurement.figure, lines),
                shown_percentiles(lines),
                self.shown_ratio(measurement, lines),
                measurement.baseline.as_ref().map_or("", |baseline| baseline.goal).to_owned(),
            ];
            let _ = writeln!(table, "| {} |", row.join(" | "));
        }
        table + &self.recovery()
    }

    fn shown_ratio(&self, measurement: &Measurement, lines: &[Line]) -> String {
        let Some(baseline) = &measurement.baseline else { return String::new() };
        let of = MEASUREMENTS.iter().find(|it| it.name == baseline.name);
        let Some((of, base)) = of.zip(self.lines.get(baseline.name)) else { return String::new() };
        let ratios = lines.iter().zip(base).filter_map(|(line, base)| {
            Some(line.figure(measurement.figure)? / (baseline.times * base.figure(of.figure)?))
        });
        spread(ratios.collect(), |ratio| format!("{ratio:.2}"))
    }

    /// What a take-over must not do is not a median.
    fn recovery(&self) -> String {
        let Some(lines) = self.lines.get("recovery, a worker killed") else { return String::new() };
        let worst = |field| lines.iter().filter_map(|line| line.number(field)).fold(0.0, f64::max);
        format!(
            "\nrecovery, worst of {}: first progress after {:.2} s, {} lost, {} steps executed twice\n",
            lines.len(),
            worst("first_progress_s"),
            worst("lost"),
            worst("steps_twice")
        )
    }
}

fn shown_figure(figure: Figure, lines: &[Line]) -> String {
    let values = lines.iter().filter_map(|line| line.figure(figure)).collect();
    match figure {
        Figure::PerSecond => spread(values, |value| format!("{value:.0}")) + "/s",
        Figure::P50 => spread(values, |value| format!("{value:.2}")) + " ms",
        Figure::FirstProgress => spread(values, |value| format!("{value:.2}")) + " s",
    }
}

fn shown_percentiles(lines: &[Line]) -> String {
    let of = |field| median(lines.iter().filter_map(|line| line.number(field)).collect());
    match (of("p50_ms"), of("p99_ms")) {
        (Some(p50), Some(p99)) if p50 > 0.0 => format!("{p50:.2} / {p99:.2}"),
        _ => String::new(),
    }
}

fn spread(mut values: Vec<f64>, shown: impl Fn(f64) -> String) -> String {
    values.sort_by(f64::total_cmp);
    let Some(middle) = median(values.clone()) else { return "?".to_owned() };
    match (values.first(), values.last()) {
        (Some(low), Some(high)) if values.len() > 1 => {
            format!("{} [{}..{}]", shown(middle), shown(*low), shown(*high))
        }
        _ => shown(middle),
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        even if even % 2 == 0 => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut results = Results::default();
        for (base, rate) in [(100.0, 300.0), (200.0, 400.0), (100.0, 500.0)] {
            results.add(PGBENCH, Line(format!(r#"{{"workload":"pgbench","steps_per_s":{base}}}"#)));
            let line =
                format!(r#"{{"workload": "throughput", "steps_per_s": {rate}, "p50_ms": 1.5, "p99_ms": 3}}"#);
            results.add("throughput, C=64, K=10", Line(line));
        }
        let expected =
            "| throughput, C=64, K=10 | 400 [300..500]/s | 1.50 / 3.00 | 3.00 [2.00..5.00] | at least 1.5 |";
        assert!(results.table().contains(expected), "{}", results.table());
    }

    #[test]
    fn a_latency_is_held_against_as_many_inserts_as_it_has_commits() {
        let mut results = Results::default();
        results.add(INSERTS, Line(r#"{"workload":"inserts","p50_ms":0.25}"#.to_owned()));
        results.add("latency, lone run, K=10", Line(r#"{"workload":"latency","p50_ms":4.125}"#.to_owned()));
        assert!(
            results.table().contains("| latency, lone run, K=10 | 4.12 ms |  | 1.50 |"),
            "{}",
            results.table()
        );
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let mut results = Results::default();
        results.add("throughput, C=64, K=10", Line(r#"{"workload":"throughput"}"#.to_owned()));
        assert_eq!(
            results.table().lines().filter(|line| line.starts_with("| ")).count(),
            2,
            "{}",
            results.table()
        );
    }
}
