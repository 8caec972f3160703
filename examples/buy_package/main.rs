//! Two hundred customers buy a data package, and a worker is killed in the middle.
//!
//! ```text
//! cargo run --example buy_package                              # on an embedded database in a temporary folder
//! cargo run --example buy_package -- --db orders.db            # in this file, which stays
//! cargo run --example buy_package -- --keep                    # leaves the temporary folder, and says where it is
//! COMPOSER_URL=postgres://… cargo run --example buy_package    # on Postgres
//! ```
//!
//! Read `workflow.rs` first: it is all that the business has to write. The rest is the show: `service.rs` plays the
//! payment and activation services, `workers.rs` are the processes that carry the purchases out, and this file starts
//! everything, kills one of the two workers while a charge is under way, and checks what has become of each order.

mod orders;
mod report;
mod service;
mod workers;
mod workflow;

use std::{
    fs,
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use composer_runtime::{Composer, RunHandle};
use composer_sdk::prelude::*;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{interval, timeout},
};

use crate::{
    orders::{Case, End},
    report::{Killed, Outcome, Report},
    service::Service,
    workers::WorkerProcess,
    workflow::{PurchaseError, buy_package},
};

/// After so many orders, a worker is killed.
const KILL_AFTER: usize = 60;

/// Nothing here takes long: a promise that is not kept by then is broken.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [argument, services] = args.as_slice()
        && argument == workers::ARGUMENT
    {
        workers::work(services.clone()).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let data = Data::choose(&args)?;
    // Whatever ends the show, its guards end the workers and remove the temporary folder.
    tokio::select! {
        shown = timeout(PATIENCE, show(&data)) => match shown {
            Ok(kept) => kept,
            Err(_) => Err(Error::new(format!("not all orders came to an end within {PATIENCE:?}"))),
        },
        _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(130)),
    }
}

/// The show, from the first process to the last.
async fn show(data: &Data) -> Result<ExitCode> {
    let began = Instant::now();
    let cases = orders::read()?;
    let service = Service::start(&cases).await?;
    let composer = Composer::builder().url(&data.url).poll(Duration::from_millis(100)).connect().await?;
    let start = |name| WorkerProcess::start(name, &data.url, &service.url_for(name));
    let mut workers = [start("worker-1")?, start("worker-2")?];
    let pids = workers.each_ref().map(WorkerProcess::pid);
    println!("{} orders, two workers (pids {} and {}), {}", cases.len(), pids[0], pids[1], data.place);

    let runs = start_all(&composer, cases).await?;
    let (done, progress) = watch::channel(0);
    let (outcomes, killed) =
        tokio::try_join!(all_ends(runs, done), kill_in_a_charge(&mut workers, &service, progress))?;
    for heir in workers.iter_mut().filter(|worker| worker.pid() != killed.pid) {
        heir.finish().await?;
    }

    let report = Report { outcomes, killed, ledger: service.ledger(), took: began.elapsed() };
    println!("\n{report}");
    if data.folder.is_none() {
        println!("  the data stays: {}", data.place);
    }
    let broken = report.broken();
    for promise in &broken {
        println!("  BROKEN: {promise}");
    }
    Ok(if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Starts a run for each order. The ids are new in each invocation, so that a shared database can be used again.
async fn start_all(composer: &Composer, cases: Vec<Case>) -> Result<Vec<(Case, RunHandle<buy_package>)>> {
    let invocation = fastrand::u32(..);
    let mut runs = Vec::with_capacity(cases.len());
    for case in cases {
        let id = format!("order-{invocation:08x}-{}", case.order.number);
        let run = composer.start(buy_package(case.order.clone())).id(id).await?;
        runs.push((case, run));
    }
    Ok(runs)
}

/// Waits for every run's end, counts in `done`, and shows how far it is.
async fn all_ends(
    runs: Vec<(Case, RunHandle<buy_package>)>,
    done: watch::Sender<usize>,
) -> Result<Vec<Outcome>> {
    let all = runs.len();
    let mut open: JoinSet<Result<Outcome>> = runs.into_iter().map(|(case, run)| end_of(case, run)).collect();
    let mut outcomes = Vec::with_capacity(all);
    let mut progress = Progress::new(all);
    loop {
        tokio::select! {
            ended = open.join_next() => match ended {
                Some(outcome) => outcomes.push(outcome??),
                None => break,
            },
            () = progress.due() => progress.show(outcomes.len()),
        }
        done.send_replace(outcomes.len());
    }
    progress.show(all);
    outcomes.sort_by(|a, b| a.case.order.number.cmp(&b.case.order.number));
    Ok(outcomes)
}

/// Waits for one run's end.
async fn end_of(case: Case, run: RunHandle<buy_package>) -> Result<Outcome> {
    let end = match run.result().await? {
        Ok(_) => End::Completed,
        Err(PurchaseError::Declined(_)) => End::Declined,
        Err(_) => End::Failed,
    };
    let reason = run.status().await?.reason.unwrap_or_default();
    Ok(Outcome { case, end, reason })
}

/// Kills a worker at the worst moment: a charge that it asked for is booked, and the answer is still on its way.
async fn kill_in_a_charge(
    workers: &mut [WorkerProcess],
    service: &Service,
    mut done: watch::Receiver<usize>,
) -> Result<Killed> {
    done.wait_for(|done| *done >= KILL_AFTER).await?;
    let charge = service.hold_next_charge().await;
    let victim = workers.iter_mut().find(|worker| worker.name() == charge.worker);
    let victim = victim.ok_or_else(|| Error::new(format!("{} is none of ours", charge.worker)))?;
    victim.kill()?;
    let at = Instant::now();
    let clear = if std::io::stdout().is_terminal() { format!("\r{:60}\r", "") } else { String::new() };
    println!("{clear}killed {} (pid {}) in the middle of a charge", charge.worker, victim.pid());
    Ok(Killed { worker: charge.worker.clone(), pid: victim.pid(), at })
}

/// How far it is: a bar on a terminal, a line a second elsewhere.
struct Progress {
    all: usize,
    terminal: bool,
    tick: tokio::time::Interval,
}

impl Progress {
    fn new(all: usize) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let every = if terminal { Duration::from_millis(100) } else { Duration::from_secs(1) };
        Self { all, terminal, tick: interval(every) }
    }

    async fn due(&mut self) {
        self.tick.tick().await;
    }

    fn show(&self, done: usize) {
        let Self { all, terminal, .. } = *self;
        if terminal {
            let full = done * 40 / all;
            print!("\r[{}{}] {done}/{all} orders ", "#".repeat(full), ".".repeat(40 - full));
            let _ = std::io::stdout().flush();
        } else {
            println!("{done}/{all} orders");
        }
    }
}

/// Where the runs are kept.
struct Data {
    url: String,
    /// In words.
    place: String,
    /// Removed in the end.
    folder: Option<PathBuf>,
}

impl Data {
    fn choose(args: &[String]) -> Result<Self> {
        match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["--db", file] => {
                Ok(Self { url: format!("sqlite:{file}"), place: format!("database: {file}"), folder: None })
            }
            [] => match std::env::var("COMPOSER_URL") {
                Ok(url) if !url.is_empty() => {
                    Ok(Self { url, place: "database: COMPOSER_URL".into(), folder: None })
                }
                _ => Self::temporary(false),
            },
            ["--keep"] => Self::temporary(true),
            other => Err(Error::new(format!(
                "{} is not understood: write --db FILE, --keep or nothing",
                other.join(" ")
            ))),
        }
    }

    fn temporary(keep: bool) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("buy_package-{}", std::process::id()));
        fs::create_dir(&folder).context(format!("{} cannot be made", folder.display()))?;
        let file = folder.join("orders.db");
        let place = format!("database: {}", file.display());
        Ok(Self { url: format!("sqlite:{}", file.display()), place, folder: (!keep).then_some(folder) })
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            let _ = fs::remove_dir_all(folder);
        }
    }
}
