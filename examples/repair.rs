//! Repairing a run: the code of the book's chapter about it, as a program.
//!
//! ```text
//! cargo run --example repair
//! ```

use std::sync::{Arc, Mutex};

use composer_runtime::{Composer, RunHandle};
use composer_sdk::prelude::*;

/// The world outside: what was done to it, and what does not work at the moment.
#[derive(Debug, Clone, Default)]
struct World(Arc<Mutex<(Vec<String>, Vec<&'static str>)>>);

impl World {
    fn breaks(&self, what: &'static str) {
        self.0.lock().expect("nothing panics under this lock").1.push(what);
    }
    fn is_mended(&self) {
        self.0.lock().expect("nothing panics under this lock").1.clear();
    }
    fn take(&self) -> String {
        std::mem::take(&mut self.0.lock().expect("nothing panics under this lock").0).join(", ")
    }
    fn does(&self, what: &'static str, order: u32) -> Result<()> {
        let mut world = self.0.lock().expect("nothing panics under this lock");
        if world.1.contains(&what) {
            return Err(Error::new(format!("no {what} today")));
        }
        world.0.push(format!("{what} {order}"));
        Ok(())
    }
}

// ANCHOR: workflow
#[activity]
async fn reserve(#[state] world: &World, order: u32) -> Result<()> {
    world.does("reserve", order)
}

#[activity(retry(max_attempts = 1))]
async fn release(#[state] world: &World, order: u32) -> Result<()> {
    world.does("release", order)
}

#[activity(retry(max_attempts = 2, first = "1h", max = "1h"))]
async fn charge(#[state] world: &World, order: u32) -> Result<()> {
    world.does("charge", order)
}

#[activity]
async fn refund(#[state] world: &World, order: u32) -> Result<()> {
    world.does("refund", order)
}

#[activity(retry(max_attempts = 1))]
async fn send(#[state] world: &World, order: u32, address: &str) -> Result<String> {
    world.does("send", order)?;
    Ok(format!("order {order} is on its way to {address}"))
}

static APPROVED: Signal<()> = Signal::new("approved");

#[workflow]
async fn purchase(order: u32, address: String) -> Result<String> {
    compensate(release(order)); // step 1
    reserve(order).await?; // step 2
    APPROVED.recv().await;
    compensate(refund(order)); // step 3
    charge(order).await?; // step 4
    send(order, &address).await // step 5
}
// ANCHOR_END: workflow

/// Waits until the run's journal has a line of that kind.
async fn until(run: &RunHandle<purchase>, kind: &str) -> Result<()> {
    while !run.journal().await?.iter().any(|line| line.kind == kind) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

// ANCHOR: look
/// What an operator looks at first.
async fn look(run: &RunHandle<purchase>) -> Result<()> {
    let row = run.status().await?;
    println!("{} is {:?}: {}", row.workflow_id, row.status, row.reason.unwrap_or_default());
    for line in run.journal().await? {
        println!("  {:<16} step {:<2} {}", line.kind, line.step.unwrap_or(0), line.name);
    }
    Ok(())
}
// ANCHOR_END: look

#[tokio::main]
async fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("composer-repair-{}", std::process::id()));
    let composer = Composer::connect(format!("sqlite:{}", folder.join("composer.db").display())).await?;
    let world = World::default();
    let worker = composer
        .worker()
        .workflow::<purchase>()
        .activities::<(reserve, release, charge, refund, send)>()
        .state(world.clone())
        .start()
        .await?;
    let start = async |order: u32| {
        composer.start(purchase(order, "Ada, London".into())).id(format!("order-{order}")).await
    };

    let run = start(1).await?;
    // ANCHOR: pause
    run.pause("the warehouse is being counted").await?;
    run.signal(&APPROVED, ()).await?; // kept
    run.resume().await?;
    // ANCHOR_END: pause
    println!("{}", run.result().await??);

    world.breaks("charge");
    let run = start(2).await?;
    run.signal(&APPROVED, ()).await?;
    until(&run, "attempt_failed").await?;
    world.is_mended();
    // ANCHOR: retry
    // The next attempt is due in an hour, but the bank is back.
    run.retry_now().await?;
    // ANCHOR_END: retry
    println!("{}", run.result().await??);
    world.take();

    // ANCHOR: fork
    let paris = purchase(2, "Bob, Paris".into());
    let again = run.fork(5).input(paris).id("order-2-again").await?;
    println!("{}", again.result().await??);
    // ANCHOR_END: fork
    println!("the fork did: {}", world.take());

    world.breaks("send");
    let run = start(3).await?;
    run.signal(&APPROVED, ()).await?;
    println!("{:#}", run.result().await?.expect_err("nothing can be sent"));
    println!("the run did: {}", world.take());
    world.is_mended();
    // ANCHOR: redrive
    let again = composer.get::<purchase>("order-3").await?.redrive().await?;
    again.signal(&APPROVED, ()).await?;
    println!("{}", again.result().await??);
    // ANCHOR_END: redrive
    println!("the redrive did: {}", world.take());

    world.breaks("release");
    let run = start(4).await?;
    until(&run, "step_completed").await?;
    run.cancel("bought elsewhere").await?;
    until(&run, "undo_failed").await?;
    while run.status().await?.reason.is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    look(&run).await?;
    // ANCHOR: terminate
    run.terminate("released by hand").await?;
    // ANCHOR_END: terminate
    println!("{:#}", run.result().await?.expect_err("it was terminated"));

    worker.shutdown().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
