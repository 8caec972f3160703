//! A process that works, or starts runs, or both, as the JSON of its one argument says; see `kit::Setup`.

use std::io::Write;

use composer_tests::kit::{self, Setup, workflow::interpret};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    kit::log::init();
    let setup: Setup =
        serde_json::from_str(&std::env::args().nth(1).ok_or("an argument: the setup as JSON")?)?;
    let composer = kit::composer(&setup).await?;
    let worker = kit::worker(&composer, &setup);
    if setup.start.is_empty() {
        return Ok(worker.run().await?);
    }
    let worker = match setup.work {
        true => Some(worker.start().await?),
        false => None,
    };
    for start in setup.start {
        let run = composer.start(interpret(start.commands)).id(start.id).await?;
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", run.run_id())?;
        out.flush()?;
    }
    std::future::pending::<()>().await;
    drop(worker);
    Ok(())
}
