//! Talking to a run: signals in, published state out. The code of the book's chapter about it, as a program.
//!
//! ```text
//! cargo run --example talking
//! ```

use composer_runtime::{Composer, RunHandle};
use composer_sdk::prelude::*;
use serde::{Deserialize, Serialize};

// ANCHOR: names
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Decision {
    Approve { by: String },
    Refuse { why: String },
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Stage {
    Waiting,
    Paid,
    Refused,
}

static DECISION: Signal<Decision> = Signal::new("decision");
static STAGE: Published<Stage> = Published::new("stage");
// ANCHOR_END: names

#[activity]
async fn pay(cents: u64) -> Result<()> {
    println!("paying {cents}");
    Ok(())
}

// ANCHOR: workflow
#[workflow]
async fn expense(cents: u64) -> Result<String> {
    STAGE.set(&Stage::Waiting);
    match DECISION.recv_timeout(Duration::days(14)).await {
        Some(Decision::Approve { by }) => {
            pay(cents).await?;
            STAGE.set(&Stage::Paid);
            Ok(format!("approved by {by}"))
        }
        Some(Decision::Refuse { why }) => {
            STAGE.set(&Stage::Refused);
            Ok(format!("refused: {why}"))
        }
        None => Err(Error::new("nobody has decided in two weeks")),
    }
}
// ANCHOR_END: workflow

/// Waits until the run shows that.
async fn until_shown(run: &RunHandle<expense>, stage: Stage) -> Result<()> {
    while run.published(&STAGE).await?.as_ref() != Some(&stage) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("it is {stage:?}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("composer-talking-{}", std::process::id()));
    let composer = Composer::connect(format!("sqlite:{}", folder.join("composer.db").display())).await?;
    let worker = composer.worker().workflow::<expense>().activity::<pay>().start().await?;

    let run = composer.start(expense(4_200)).id("expense-17").await?;
    until_shown(&run, Stage::Waiting).await?;
    // ANCHOR: outside
    // Anywhere else, by the id alone.
    let run = composer.get::<expense>("expense-17").await?;
    run.signal(&DECISION, Decision::Approve { by: "Ada".into() }).await?;
    println!("{}", run.result().await??);
    println!("{:?}", run.published(&STAGE).await?);
    // ANCHOR_END: outside

    worker.shutdown().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
