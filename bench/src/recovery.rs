//! Two worker processes, one of them killed in the middle: how soon its runs go on, and what was done twice.

use std::{
    collections::{HashMap, HashSet},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use composer_runtime::Composer;
use serde::Serialize;

use crate::{
    Args, Error, Line, line,
    workflows::{slow, slow_steps},
};

/// The longest that anything here may take.
const BOUND: Duration = Duration::from_secs(60);

/// What became of the runs.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// From the kill to the first step of a run that the dead worker held.
    first_progress_s: f64,
    completed: u64,
    lost: u64,
    /// Steps that were executed twice, with the same idempotency key.
    steps_twice: u64,
}

/// What each killed worker was: a process of this same program.
pub(crate) async fn worker(url: &str) -> Result<(), Error> {
    let composer = Composer::connect(url).await?;
    composer.worker().workflow::<slow_steps>().activity::<slow>().run().await?;
    Ok(())
}

/// A child that does not outlive this process's interest.
struct Process(Child);

impl Process {
    fn start(url: &str) -> Result<Self, Error> {
        let child = Command::new(std::env::current_exe()?)
            .args(["worker", "--url", url])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A line that an executed step left.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Trace {
    pid: u32,
    run: u32,
    step: u32,
}

fn read(traces: &Path) -> Vec<Trace> {
    let text = std::fs::read_to_string(traces).unwrap_or_default();
    let parse = |line: &str| {
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse().ok();
        Some(Trace { pid: number()?, run: number()?, step: number()? })
    };
    text.lines().filter_map(parse).collect()
}

pub(crate) async fn measure(args: Args) -> Result<Line, Error> {
    let url = match args.url.is_empty() {
        true => format!(
            "sqlite:{}",
            std::env::temp_dir().join(format!("bench-{}.db", std::process::id())).display()
        ),
        false => args.url.clone(),
    };
    let traces = std::env::temp_dir().join(format!("composer-bench-{}.traces", std::process::id()));
    let composer = Composer::connect(&url).await?;
    let n = args.n.unwrap_or(200) as u32;
    let since = Instant::now();
    let mut workers = [Process::start(&url)?, Process::start(&url)?];
    let mut runs = vec![];
    for run in 0..n {
        runs.push(composer.start(slow_steps(traces.display().to_string(), run)).await?);
    }
    // In the middle: when about a third of all steps are done. The one that has done more dies.
    wait_for(|| read(&traces).len() as u32 > n * 3).await?;
    let done = read(&traces);
    let share = |worker: &Process| done.iter().filter(|trace| trace.pid == worker.0.id()).count();
    workers.sort_by_key(share);
    let [heir, mut victim] = workers;
    let pid = victim.0.id();
    victim.0.kill()?;
    victim.0.wait()?;
    let killed = Instant::now();
    let before = read(&traces);
    let orphans: HashSet<u32> = owned_by(&before, pid);
    wait_for(|| read(&traces)[before.len()..].iter().any(|trace| orphans.contains(&trace.run))).await?;
    let first_progress_s = killed.elapsed().as_secs_f64();
    let mut completed = 0;
    for run in &runs {
        completed += u64::from(
            tokio::time::timeout(BOUND, run.result()).await.is_ok_and(|end| matches!(end, Ok(Ok(())))),
        );
    }
    drop(heir);
    let mut times: HashMap<(u32, u32), u64> = HashMap::new();
    read(&traces).iter().for_each(|trace| *times.entry((trace.run, trace.step)).or_default() += 1);
    let steps_twice = times.values().filter(|times| **times > 1).count() as u64;
    let _ = std::fs::remove_file(&traces);
    let report = Report { first_progress_s, completed, lost: u64::from(n) - completed, steps_twice };
    let args = Args { k: 10, c: n as usize, url, ..args };
    Ok(Line {
        recovery: Some(report),
        ..line("recovery", &args, u64::from(n), since.elapsed().as_secs_f64(), vec![])
    })
}

/// The runs whose last step was done by a process, and that were not finished.
fn owned_by(traces: &[Trace], pid: u32) -> HashSet<u32> {
    let mut last: HashMap<u32, &Trace> = HashMap::new();
    for trace in traces {
        last.insert(trace.run, trace);
    }
    last.values().filter(|trace| trace.pid == pid && trace.step < 9).map(|trace| trace.run).collect()
}

async fn wait_for(condition: impl Fn() -> bool) -> Result<(), Error> {
    let since = Instant::now();
    while !condition() {
        if since.elapsed() > BOUND {
            return Err("what the measurement waits for did not come in a minute".into());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
