//! What Composer does in a second, and how soon: one JSON line a workload.
//!
//! ```text
//! composer-bench throughput|latency|fanout|recovery|parked|inserts [--n N] [--k K] [--c C] [--secs S] [--threads T] [--url URL]
//! ```
//!
//! *throughput*: workflows of K no-op steps, C of them at a time, started and awaited. *latency*: the same, one at a
//! time. *fanout*: one workflow that joins N activities. *recovery*: N workflows of ten 100 ms steps on two worker
//! processes, one of which is killed in the middle. *parked*: what N waiting runs (100,000) cost a worker. *inserts*: single-row inserts by the same driver on a kept
//! connection, to hold the others against. Without `--n`, throughput, latency and inserts run for `--secs`. The
//! worker's runtime has `--threads`: as many as there are cores for latency and inserts, else half of them, since the
//! database is on the same machine.

mod parked;
mod recovery;
mod workflows;

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use composer_runtime::Composer;
use serde::Serialize;

use crate::workflows::{fan_out, nothing, steps};

/// What every workload says of itself.
#[derive(Debug, Default, Serialize)]
struct Line {
    workload: &'static str,
    store: String,
    n: u64,
    k: u32,
    c: usize,
    secs: f64,
    workflows_per_s: f64,
    steps_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Steps in one statement of the journal writer, on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps_per_batch: Option<f64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    recovery: Option<recovery::Report>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    parked: Option<parked::Report>,
}

/// The command line.
#[derive(Debug, Clone)]
struct Args {
    workload: String,
    n: Option<u64>,
    k: u32,
    c: usize,
    secs: f64,
    threads: usize,
    url: String,
    schema: String,
}

impl Args {
    fn parse() -> Result<Self, String> {
        let mut given = std::env::args().skip(1);
        let workload =
            given.next().ok_or("which workload? throughput, latency, fanout, recovery, parked or inserts")?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // One run at a time leaves the cores idle: it gets the runtime that `#[tokio::main]` makes. Under load the
        // database, on the same machine, needs the other half.
        let lone = matches!(workload.as_str(), "latency" | "inserts");
        let mut args = Self {
            workload,
            n: None,
            k: 10,
            c: 64,
            secs: 5.0,
            threads: if lone { cores } else { (cores / 2).max(1) },
            url: std::env::var("COMPOSER_URL").unwrap_or_default(),
            schema: "composer".into(),
        };
        while let Some(name) = given.next() {
            let value = given.next().ok_or(format!("{name} needs a value"))?;
            let number = || value.parse::<f64>().map_err(|_| format!("{name} {value}: not a number"));
            match name.as_str() {
                "--n" => args.n = Some(number()? as u64),
                "--k" => args.k = number()? as u32,
                "--c" => args.c = number()? as usize,
                "--secs" => args.secs = number()?,
                "--threads" => args.threads = number()? as usize,
                "--url" => args.url = value,
                "--schema" => args.schema = value,
                other => return Err(format!("unknown option {other}")),
            }
        }
        Ok(args)
    }

    /// When enough was measured.
    fn enough(&self) -> impl Fn(u64, Instant) -> bool + use<> {
        let (n, secs) = (self.n, Duration::from_secs_f64(self.secs));
        move |done, since| n.map_or(since.elapsed() >= secs, |n| done >= n)
    }
}

fn main() {
    let args = Args::parse().unwrap_or_else(|wrong| fail(&wrong));
    let runtime = if args.threads <= 1 {
        tokio::runtime::Builder::new_current_thread().enable_all().build()
    } else {
        tokio::runtime::Builder::new_multi_thread().worker_threads(args.threads).enable_all().build()
    };
    let done = runtime.expect("a runtime").block_on(measure(args));
    match done {
        Ok(Some(line)) => println!("{}", serde_json::to_string(&line).expect("numbers and text are JSON")),
        Ok(None) => {}
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(why: &str) -> ! {
    eprintln!("composer-bench: {why}");
    std::process::exit(2)
}

type Error = Box<dyn std::error::Error + Send + Sync>;

async fn measure(args: Args) -> Result<Option<Line>, Error> {
    match args.workload.as_str() {
        "throughput" => throughput(args, "throughput").await.map(Some),
        "latency" => throughput(Args { c: 1, ..args }, "latency").await.map(Some),
        "fanout" => fanout(args).await.map(Some),
        "inserts" => inserts(args).await.map(Some),
        "recovery" => recovery::measure(args).await.map(Some),
        "parked" => parked::measure(args).await.map(Some),
        // What `recovery` and `parked` start.
        "worker" => recovery::worker(&args.url).await.map(|()| None),
        "idle" => parked::worker(&args.url, &args.schema).await.map(|()| None),
        other => Err(format!("no workload {other}").into()),
    }
}

async fn connect(args: &Args) -> Result<Composer, Error> {
    if args.url.is_empty() {
        Ok(Composer::connect_from_env().await?)
    } else {
        Ok(Composer::connect(&args.url).await?)
    }
}

fn store_of(url: &str) -> String {
    if url.starts_with("postgres") { "postgres".into() } else { "sqlite".into() }
}

/// C clients, each in a loop: start a run of K steps, wait for its result.
async fn throughput(args: Args, workload: &'static str) -> Result<Line, Error> {
    let composer = connect(&args).await?;
    let worker = composer
        .worker()
        .workflow::<steps>()
        .activity::<nothing>()
        .max_runs(args.c.max(1000) * 2)
        .max_activities(args.c.max(500))
        .start()
        .await?;
    // Caches, plans and connections are warm before anything counts.
    for _ in 0..50 {
        composer.start(steps(args.k)).await?.result().await??;
    }
    let before = composer.counts();
    let started = AtomicU64::new(0);
    let enough = args.enough();
    let since = Instant::now();
    let clients = (0..args.c).map(|_| async {
        let mut times = vec![];
        while !enough(started.fetch_add(1, Relaxed), since) {
            let begun = Instant::now();
            composer.start(steps(args.k)).await?.result().await??;
            times.push(begun.elapsed());
        }
        Ok::<_, Error>(times)
    });
    let times: Vec<Duration> = futures::future::try_join_all(clients).await?.into_iter().flatten().collect();
    let secs = since.elapsed().as_secs_f64();
    let after = composer.counts();
    worker.shutdown().await?;
    let n = times.len() as u64;
    let steps_per_batch =
        (after.steps - before.steps) as f64 / (after.batches - before.batches).max(1) as f64;
    Ok(Line { steps_per_batch: Some(steps_per_batch), ..line(workload, &args, n, secs, times) })
}

fn line(workload: &'static str, args: &Args, n: u64, secs: f64, mut times: Vec<Duration>) -> Line {
    times.sort_unstable();
    let at = |part: f64| {
        let place = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
        times.get(place).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    let per_s = n as f64 / secs;
    Line {
        workload,
        store: store_of(&args.url),
        n,
        k: args.k,
        c: args.c,
        secs,
        workflows_per_s: per_s,
        steps_per_s: per_s * f64::from(args.k),
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        ..Line::default()
    }
}

/// One workflow that asks for N activities at once.
async fn fanout(args: Args) -> Result<Line, Error> {
    let composer = connect(&args).await?;
    let worker = composer.worker().workflow::<fan_out>().activity::<nothing>().start().await?;
    let n = args.n.unwrap_or(1000) as u32;
    let mut times = vec![];
    composer.start(fan_out(10)).await?.result().await??;
    let since = Instant::now();
    for _ in 0..10 {
        let begun = Instant::now();
        composer.start(fan_out(n)).await?.result().await??;
        times.push(begun.elapsed());
    }
    let secs = since.elapsed().as_secs_f64();
    worker.shutdown().await?;
    let args = Args { k: n, c: 1, ..args };
    Ok(line("fanout", &args, 10, secs, times))
}

/// What a step would cost if a program wrote its row by hand.
async fn inserts(args: Args) -> Result<Line, Error> {
    use sqlx::Connection;
    const TABLE: &str = "create table if not exists bench_inserts (run_id uuid, seq int, payload bytea, \
                         primary key (run_id, seq))";
    const INSERT: &str = "insert into bench_inserts (run_id, seq, payload) values ($1, $2, $3)";
    if !args.url.starts_with("postgres") {
        return Err("inserts are measured on Postgres: give --url postgres://… or COMPOSER_URL".into());
    }
    let mut conn = sqlx::PgConnection::connect(&args.url).await?;
    sqlx::query(TABLE).execute(&mut conn).await?;
    let payload = vec![b'x'; 105];
    let enough = args.enough();
    let mut times = vec![];
    let since = Instant::now();
    while !enough(times.len() as u64, since) {
        let begun = Instant::now();
        let id = uuid::Uuid::now_v7();
        sqlx::query(INSERT).bind(id).bind(1_i32).bind(&payload).execute(&mut conn).await?;
        times.push(begun.elapsed());
    }
    let secs = since.elapsed().as_secs_f64();
    let args = Args { k: 1, c: 1, ..args };
    Ok(line("inserts", &args, times.len() as u64, secs, times))
}
