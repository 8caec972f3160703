//! Runs that wait: what N of them cost a worker in memory and in the time of a claim, beside a schema without any.

use std::{
    process::{Child, Command, Stdio},
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use composer_runtime::{
    Composer, IdPolicy,
    store::{Claim, NewRun, NewSession, Plain, SessionId, Store, StoreOptions, connect},
};
use composer_sdk::{Definition, id::RunId, payload::Payload};
use serde::Serialize;

use crate::{Args, Error, Line, line, workflows::nap};

/// Rounds of claims, alternating between the two schemas; claims in a round.
const ROUNDS: usize = 5;
const CLAIMS: usize = 40;

/// What N parked runs cost.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    parked: u64,
    parked_per_s: f64,
    /// Resident memory of an idle worker, in kB: without and with them.
    rss_without_kb: u64,
    rss_with_kb: u64,
    /// The time of a claim with them to that without: the median of the rounds' ratios, and the slower of the medians.
    claim_ratio: f64,
    claim_without_ms: f64,
    claim_with_ms: f64,
}

pub(crate) async fn measure(args: Args) -> Result<Line, Error> {
    let n = args.n.unwrap_or(100_000);
    let since = Instant::now();
    let parked_per_s = park(&args.url, n).await?;
    let (without, with) = (open(&args.url, "empty").await?, open(&args.url, "full").await?);
    let mut ratios = vec![];
    let mut medians = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let (one, other) = (claims(&without).await?, claims(&with).await?);
        ratios.push(other / one);
        medians.0.push(one);
        medians.1.push(other);
    }
    let report = Report {
        parked: n,
        parked_per_s,
        rss_without_kb: resident(&args.url, "empty").await?,
        rss_with_kb: resident(&args.url, "full").await?,
        claim_ratio: median(ratios),
        claim_without_ms: median(medians.0),
        claim_with_ms: median(medians.1),
    };
    let secs = since.elapsed().as_secs_f64();
    Ok(Line { parked: Some(report), ..line("parked", &args, n, secs, vec![]) })
}

/// An idle worker, as a process of its own.
pub(crate) async fn worker(url: &str, schema: &str) -> Result<(), Error> {
    let composer = Composer::builder().url(url).schema(schema).connect().await?;
    composer.worker().workflow::<nap>().run().await?;
    Ok(())
}

/// Starts N runs that sleep for an hour, and waits until all of them are rows.
async fn park(url: &str, n: u64) -> Result<f64, Error> {
    Composer::builder().url(url).schema("empty").connect().await?;
    let composer = Composer::builder().url(url).schema("full").connect().await?;
    let worker = composer.worker().workflow::<nap>().linger(Duration::ZERO).max_runs(4_000).start().await?;
    let since = Instant::now();
    let started = AtomicU64::new(0);
    let clients = (0..256).map(|_| async {
        while started.fetch_add(1, Relaxed) < n {
            composer.start(nap()).await?;
        }
        Ok::<_, Error>(())
    });
    futures::future::try_join_all(clients).await?;
    while composer.counts().parked < n {
        if since.elapsed() > Duration::from_secs(300) {
            return Err(format!(
                "only {} of {n} runs are parked after five minutes",
                composer.counts().parked
            )
            .into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let secs = since.elapsed().as_secs_f64();
    worker.shutdown().await?;
    Ok(n as f64 / secs)
}

struct Opened {
    store: Arc<dyn Store>,
    session: SessionId,
    _conn: Box<dyn composer_runtime::store::SessionConn>,
}

async fn open(url: &str, schema: &str) -> Result<Opened, Error> {
    let options =
        StoreOptions { url: url.into(), schema: schema.into(), codec: Arc::new(Plain), pool_size: 2 };
    let store = connect(options).await?;
    let new = NewSession {
        name: "bench".into(),
        build: "bench".into(),
        workflows: vec![nap::NAME.into()],
        lease: Duration::from_secs(600),
    };
    let (session, _, conn) = store.open_session(&new).await?;
    Ok(Opened { store, session, _conn: conn })
}

/// The median time in which one due run is claimed, in milliseconds.
async fn claims(opened: &Opened) -> Result<f64, Error> {
    let mut times = vec![];
    for _ in 0..CLAIMS {
        let now = opened.store.now().await?;
        let run = NewRun {
            run_id: RunId::new(now),
            workflow_id: None,
            workflow: nap::NAME.into(),
            input: Payload::from(b"[]".to_vec()),
            delay: Duration::ZERO,
            timeout: None,
            tags: Default::default(),
            build: "bench".into(),
            signal: None,
        };
        opened.store.start(&run, IdPolicy::UseExisting, None).await?;
        let claim = Claim {
            session: opened.session,
            build: "bench".into(),
            workflows: vec![nap::NAME.into()],
            limit: 100,
            stuck_backoff: Duration::from_secs(30),
            max_strikes: 5,
        };
        let begun = Instant::now();
        let claimed = opened.store.claim(&claim).await?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        if claimed.len() != 1 {
            return Err(format!("{} runs claimed where one is due", claimed.len()).into());
        }
    }
    Ok(median(times))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The resident memory of a worker that has been idle for a few polls.
async fn resident(url: &str, schema: &str) -> Result<u64, Error> {
    struct Killed(Child);
    impl Drop for Killed {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["idle", "--url", url, "--schema", schema]).stdin(Stdio::null()).stdout(Stdio::null());
    let child = Killed(command.spawn()?);
    tokio::time::sleep(Duration::from_secs(4)).await;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.0.id()))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS in /proc")?;
    Ok(line.split_whitespace().nth(1).and_then(|kb| kb.parse().ok()).ok_or("no number in VmRSS")?)
}
