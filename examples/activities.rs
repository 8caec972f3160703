//! What activities may do and how they fail: the code of the book's chapter about them, as a program.
//!
//! ```text
//! cargo run --example activities
//! ```

use std::path::PathBuf;

use composer_runtime::Composer;
use composer_sdk::{activity, options::Retry, prelude::*};
use futures::future::{FutureExt, join_all};
use serde::{Deserialize, Serialize};

// ANCHOR: declared
/// Why a parcel is not on its way.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum ParcelError {
    #[error("nobody lives at {0}")]
    UnknownAddress(String),
    #[error("all couriers are busy")]
    Busy,
    /// What only the engine can say: timed out, cancelled, a value that cannot be read.
    #[error(transparent)]
    Engine(#[from] Failure),
}

impl ParcelError {
    fn may_heal(&self) -> bool {
        !matches!(self, Self::UnknownAddress(_))
    }
}

#[activity(
    retry(max_attempts = 6, first = "20ms", factor = 2.0, max = "1s", on = ParcelError::may_heal),
    timeout = "5s",
    total_timeout = "1m"
)]
async fn book_courier(#[state] couriers: &Couriers, address: &str) -> Result<String, ParcelError> {
    couriers.ask(address).await
}
// ANCHOR_END: declared

// ANCHOR: matched
#[workflow]
async fn ship(address: String) -> Result<String, ParcelError> {
    match book_courier(&address).await {
        // The variant is the one that the activity returned, also when this is a replay in another process.
        Err(ParcelError::UnknownAddress(_)) => book_courier("the depot").await,
        other => other,
    }
}
// ANCHOR_END: matched

// ANCHOR: state
/// What activities share: given to the worker once, with `.state(…)`.
#[derive(Debug)]
struct Couriers {
    known: Vec<String>,
}
// ANCHOR_END: state

/// Where labels are kept.
#[derive(Debug)]
struct Archive {
    folder: PathBuf,
}

impl Couriers {
    async fn ask(&self, address: &str) -> Result<String, ParcelError> {
        if activity::attempt() < 3 {
            return Err(ParcelError::Busy);
        }
        if !self.known.iter().any(|known| known == address) {
            return Err(ParcelError::UnknownAddress(address.into()));
        }
        Ok(format!("a courier to {address}"))
    }
}

// ANCHOR: any_error
/// `composer_sdk::Result` takes any error with `?`, and keeps its chain across the journal.
#[activity]
async fn weight(label: String) -> Result<u32> {
    let grams = label.strip_suffix(" g").ok_or("no unit").permanent()?;
    grams.trim().parse::<u32>().context(format!("the weight on {label:?}")).permanent()
}
// ANCHOR_END: any_error

// ANCHOR: asks
/// What an activity may ask about itself.
#[activity(retry(max_attempts = 3), timeout = "30s")]
async fn print_label(parcel: String) -> Result<String> {
    // For a service that is not spoken to with `composer_sdk::http`: the same on every attempt of this call.
    let key = activity::idempotency_key();
    let printing = async { format!("{parcel}, attempt {}, key {key}", activity::attempt()) };
    tokio::select! {
        label = printing => Ok(label),
        // The run was cancelled, the call was dropped, or the time is up: leave things tidy.
        () = activity::cancelled() => Err(Error::new("told to stop")),
    }
}
// ANCHOR_END: asks

// ANCHOR: blocking
/// A plain `fn` on a thread that may block: for file systems, compression, a library without async.
#[activity(blocking, timeout = "10s")]
fn archive(#[state] archive: &Archive, label: &str) -> Result<u64> {
    std::fs::write(archive.folder.join("label.txt"), label).context("the archive")?;
    Ok(label.len() as u64)
}
// ANCHOR_END: blocking

// ANCHOR: plain
/// Inside an activity, tasks are ordinary, and `name::run(…)` is the plain function.
#[activity]
async fn weigh_all(labels: Vec<String>) -> Result<u32> {
    let mut tasks = tokio::task::JoinSet::new();
    for label in labels {
        tasks.spawn(weight::run(label));
    }
    let mut sum = 0;
    while let Some(grams) = tasks.join_next().await {
        sum += grams??;
    }
    Ok(sum)
}
// ANCHOR_END: plain

// ANCHOR: options
#[workflow]
async fn pack(labels: Vec<String>) -> Result<String> {
    // For this call only; the attribute says what holds otherwise.
    let once = Retry::DEFAULT.max_attempts(1);
    let total = weigh_all(labels.clone()).retry(once).timeout(Duration::from_secs(2)).await?;
    // ANCHOR_END: options

    // ANCHOR: together
    // Two at the same time; the first error ends both.
    let (first, label) = try_join!(weight(labels[0].clone()), print_label("the first".into()))?;
    // Many at the same time. The calls are built from owned values.
    let labels: Vec<String> = join_all(labels.iter().map(|label| print_label(label.clone())))
        .await
        .into_iter()
        .collect::<Result<_>>()?;
    // ANCHOR_END: together

    // ANCHOR: branches
    // Calls of different activities have different types; boxed, they have one.
    let heaviest = if total > 1_000 { weight("1000 g".into()).boxed() } else { weigh_all(vec![]).boxed() };
    // A branch of its own needs its error's type spelled out …
    let (checked, archived) = join!(
        async {
            let grams = heaviest.await?;
            Ok::<_, Error>(grams.max(first))
        },
        // … and an ordinary async function, which needs no attribute, says it by itself.
        keep(label)
    );
    // ANCHOR_END: branches
    Ok(format!("{total} g, {} labels, {} checked, {} bytes kept", labels.len(), checked?, archived?))
}

// ANCHOR: helper
/// A part of a workflow: what it awaits are steps of the workflow that awaits it.
async fn keep(label: String) -> Result<u64> {
    archive(&label).await
}
// ANCHOR_END: helper

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("composer-activities-{}", std::process::id()));
    let composer = Composer::connect(format!("sqlite:{}", folder.join("composer.db").display())).await?;
    // ANCHOR: worker
    let worker = composer
        .worker()
        .workflow::<ship>()
        .workflow::<pack>()
        .activity::<book_courier>()
        .activity::<weight>()
        .activity::<print_label>()
        .activity::<archive>()
        .activity::<weigh_all>()
        .state(Couriers { known: vec!["the depot".into()] })
        .state(Archive { folder: folder.clone() })
        .start()
        .await?;
    // ANCHOR_END: worker

    let shipped = composer.start(ship("nowhere".into())).await?;
    println!("{:?}", shipped.result().await?);
    let packed = composer.start(pack(vec!["250 g".into(), "1200 g".into()])).await?;
    println!("{:?}", packed.result().await?);
    // ANCHOR: failing
    let broken = composer.start(pack(vec!["heavy".into()])).await?;
    println!("{:?}", broken.result().await?);
    println!("{}", broken.status().await?.reason.unwrap_or_default());
    // ANCHOR_END: failing

    worker.shutdown().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
